import { expect, it } from 'vitest';
import type { ToolRuntime } from '../../../src/kernel/items/tool-runtime.ts';
import { type RuntimeCall, runtimeCommand } from '../../../src/kernel/tools/item/runtimes.ts';

const CALL: RuntimeCall = {
  id: 'team/ask',
  file: '/copy/ask',
  folder: '/copy',
  projectPath: '/project',
  input: { question: 'who?' },
  secrets: [],
  env: { HOST: 'example.org', API_TOKEN: 't-123' },
};

it('a variable that may hold a secret is no word of a command line, which everyone can read', () => {
  const words = (arg: string) =>
    runtimeCommand({ how: 'words' }, { program: 'curl', args: [arg] }, CALL).args;
  expect(words('https://${HOST}/{question}')).toEqual(['https://example.org/who?']);
  expect(words('${OTHER_TOKEN:-none}')).toEqual(['none']);
  expect(() => words('-HAuthorization: ${API_TOKEN}')).toThrow(
    expect.objectContaining({
      code: 'invalid_input',
      message: expect.stringContaining('API_TOKEN'),
    }),
  );
});

const PLAIN = { program: '/bin/tool', args: ['-x'] };

it.each<[string, ToolRuntime | undefined, object]>([
  ['none', undefined, PLAIN],
  ['the project', { how: 'project' }, { ...PLAIN, args: ['-x', '/project'] }],
  [
    'arguments',
    { how: 'arguments', params: false },
    { ...PLAIN, args: ['-x', '--project-path', '/project'] },
  ],
  [
    'arguments with parameters',
    { how: 'arguments', params: true },
    {
      ...PLAIN,
      args: ['-x', '--project-path', '/project', '--params', '{"question":"who?"}'],
    },
  ],
  ['words', { how: 'words' }, PLAIN],
  [
    'a shell',
    { how: 'shell', script: 'echo {question} "$0" "$1"' },
    {
      program: expect.stringMatching(/bash$/),
      args: ['-c', expect.stringContaining('who?'), '/copy/ask', '/project'],
    },
  ],
  [
    'a function',
    { how: 'function' },
    {
      program: '/bin/tool',
      args: ['-B', '-c', expect.stringContaining('import'), '/copy/ask', '/project'],
    },
  ],
])('the command of a tool that takes %s', (_, runtime, expected) => {
  expect(runtimeCommand(runtime, PLAIN, CALL)).toEqual(expected);
});
