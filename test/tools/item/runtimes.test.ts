import { expect, it } from 'vitest';
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
