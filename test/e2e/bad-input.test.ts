import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, onTestFinished, test } from 'vitest';
import { startWireServer } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** A directive's file with this XML inside its fence and nothing else that matters. */
function directive(name: string, inside: string, attributes = ''): string {
  return [
    '```xml',
    `<directive name="${name}" version="1.0.0"${attributes}>`,
    '<metadata><description>d</description><category></category><author>a</author>',
    inside,
    '</metadata>',
    '</directive>',
    '```',
    '',
    'Do it.',
    '',
  ].join('\n');
}

function write({ project }: Workspace, name: string, text: string): void {
  const file = path.join(project, '.ai', 'directives', `${name}.md`);
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, text);
}

interface Case {
  readonly name: string;
  /** Files in the project's directives folder, by id. */
  readonly files?: Readonly<Record<string, string>>;
  /** Ids that are signed before the run. */
  readonly sign?: readonly string[];
  /** Changes made after signing. */
  readonly spoil?: (here: Workspace) => void;
  readonly args: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly code: string;
  readonly exit: number;
  readonly message: RegExp;
  readonly hint?: RegExp;
}

const CASES: readonly Case[] = [
  {
    name: 'a missing directive, with near names',
    args: ['run', 'helo'],
    code: 'item_not_found',
    exit: 6,
    message: /helo/,
    hint: /hello/,
  },
  {
    name: 'malformed XML, with line and column',
    files: { broken: directive('broken', '<limits turns="3"></limit>') },
    args: ['run', 'broken', '--allow-unsigned'],
    code: 'xml_malformed',
    exit: 2,
    message: /broken\.md:\d+:\d+/,
  },
  {
    name: 'an extends cycle, naming the chain',
    files: { a: directive('a', '', ' extends="b"'), b: directive('b', '', ' extends="a"') },
    args: ['run', 'a', '--allow-unsigned'],
    code: 'extends_cycle',
    exit: 2,
    message: /a → b → a/,
  },
  {
    name: 'an unknown limit, with the nearest one',
    files: { limits: directive('limits', '<limits turnz="3"/>') },
    args: ['run', 'limits', '--allow-unsigned'],
    code: 'unknown_limit',
    exit: 2,
    message: /limits\.md:\d+.*turnz/,
    hint: /turns/,
  },
  {
    name: 'a wrong input type',
    args: ['run', 'hello', '--input', 'whom=Ada'],
    code: 'invalid_input',
    exit: 2,
    message: /whom/,
    hint: /who/,
  },
  {
    name: 'an unsigned item',
    files: { raw: directive('raw', '') },
    args: ['run', 'raw'],
    code: 'unsigned',
    exit: 3,
    message: /raw is not signed/,
    hint: /rye sign directive raw/,
  },
  {
    name: 'a tampered body',
    files: { body: directive('body', '') },
    sign: ['body'],
    spoil: ({ project }) =>
      appendFileSync(path.join(project, '.ai/directives/body.md'), 'and more'),
    args: ['run', 'body'],
    code: 'content_modified',
    exit: 3,
    message: /body/,
  },
  {
    name: 'a risk without an acknowledgement',
    files: {
      risky: directive(
        'risky',
        '<permissions><execute><tool>rye/bash</tool></execute></permissions>',
      ),
    },
    sign: ['risky'],
    args: ['run', 'risky'],
    code: 'acknowledge_required',
    exit: 4,
    message: /rye\.execute\.tool\.rye\.bash/,
    hint: /acknowledge/,
  },
  {
    name: 'a model without a price',
    spoil: ({ home }) => {
      const folder = path.join(home, '.ai/config/agent/providers');
      mkdirSync(folder, { recursive: true });
      writeFileSync(
        path.join(folder, 'anthropic.yaml'),
        'models: { claude-secret: { context_window: 100000, max_output_tokens: 8000 } }',
      );
    },
    args: ['run', 'hello', '--model', 'claude-secret'],
    env: { ANTHROPIC_API_KEY: 'k' },
    code: 'model_unpriced',
    exit: 5,
    message: /claude-secret/,
    hint: /--allow-unpriced/,
  },
  {
    name: 'a provider without a key',
    args: ['run', 'hello', '--provider', 'anthropic'],
    code: 'provider_key_missing',
    exit: 7,
    message: /anthropic/,
    hint: /ANTHROPIC_API_KEY/,
  },
  {
    name: 'an unreachable provider',
    args: ['run', 'hello', '--model', 'general', '-c', 'resilience.retry.max_retries=0'],
    env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: 'http://127.0.0.1:9' },
    code: 'provider_unreachable',
    exit: 7,
    message: /anthropic/,
  },
];

describe('bad input ends in a clear error with its code and exit status, and nothing is left running:', () => {
  test.each(CASES)(
    '$name',
    async ({ files = {}, sign = [], spoil, args, env, code, exit, message, hint = /^/ }) => {
      const here = await workspace();
      for (const [name, text] of Object.entries(files)) write(here, name, text);
      for (const name of sign) expect((await here.rye(['sign', 'directive', name])).code).toBe(0);
      spoil?.(here);
      const result = await here.rye(['--json', ...args], env === undefined ? {} : { env });
      const { error } = JSON.parse(result.stdout) as {
        error: { code: string; message: string; hint?: string };
      };
      expect({ code: error.code, exit: result.code }).toEqual({ code, exit });
      expect(error.message).toMatch(message);
      expect(error.hint ?? '').toMatch(hint);
      expect(result.stdout).not.toContain('    at ');
      const { threads } = (await here.json(['threads', 'list', '--active'])) as {
        threads: unknown[];
      };
      expect(threads).toEqual([]);
    },
  );
});

test('one changed byte anywhere in a signed directive is refused', async () => {
  const here = await workspace();
  const original = directive('target', '<limits turns="3"/>');
  write(here, 'target', original);
  await here.rye(['sign', 'directive', 'target']);
  const { content } = (await here.json(['fetch', 'directive', 'target'])) as { content: string };
  for (const at of [content.indexOf('Do it') + 1, content.indexOf('turns'), content.length - 1]) {
    write(here, 'target', `${content.slice(0, at)}~${content.slice(at + 1)}`);
    const { code, stderr } = await here.rye(['run', 'target']);
    expect(code).toBe(3);
    expect(stderr).toContain('[content_modified]');
  }
});

test('a state folder that is a file', async () => {
  const here = await workspace();
  writeFileSync(path.join(here.project, '.ai', 'state'), '');
  const { code, stderr } = await here.rye(['run', 'hello']);
  expect(code).toBe(1);
  expect(stderr).toContain('[state_unwritable]');
});

test('a provider that answers with garbage is reported as such', async () => {
  const here = await workspace();
  const server = await startWireServer([{ status: 200, body: '<html>', headers: {} }]);
  onTestFinished(() => server.close());
  const { code, stdout } = await here.rye(
    ['--json', 'run', 'hello', '--model', 'general', '-c', 'resilience.retry.max_retries=0'],
    { env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } },
  );
  expect(JSON.parse(stdout)).toMatchObject({ success: false, status: 'error' });
  expect(code).toBe(7);
});
