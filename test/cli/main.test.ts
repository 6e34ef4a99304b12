import { describe, expect, it, test } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { createFakeIo, type FakeIo, type FakeIoOptions } from '../helpers/fake-io.ts';

async function rye(args: readonly string[], options?: FakeIoOptions): Promise<[number, FakeIo]> {
  const io = createFakeIo(options);
  return [await main(args, io), io];
}

const listing = (items: Rye['items']['list']): Partial<Rye> => ({
  items: { list: items } as Rye['items'],
});

describe('a group without a command', () => {
  it.each([
    {
      args: ['git'],
      usage: 'Usage: rye git [options]',
      message: '`rye git` needs a command',
    },
  ])('prints its help on stderr for $args', async ({ args, usage, message }) => {
    const [code, io] = await rye(args);
    expect(io.err()).toContain(usage);
    expect(io.err()).toContain('Commands:');
    expect(io.out()).toBe('');
    expect(code).toBe(2);
    const [jsonCode, jsonIo] = await rye([...args, '--json']);
    expect(JSON.parse(jsonIo.out())).toMatchObject({
      success: false,
      error: { code: 'usage', message },
    });
    expect(jsonCode).toBe(2);
  });
});

describe('help and version as words', () => {
  it.each([
    { words: [], options: ['--help'] },
    { words: ['help'], options: ['--help'] },
    { words: ['help', 'keys'], options: ['keys', '--help'] },
    { words: ['version'], options: ['--version'] },
  ])('prints for $words what $options prints', async ({ words, options }) => {
    const [code, io] = await rye(words);
    const [, expected] = await rye(options);
    expect([code, io.err()]).toEqual([0, '']);
    expect(io.out()).toBe(expected.out());
    expect(io.out()).not.toBe('');
  });
});

describe('usage errors', () => {
  const cases: readonly (readonly [name: string, args: readonly string[], message: string])[] = [
    [
      'unknown command',
      ['lits'],
      'rye: unknown command "lits" [usage]\nhint: Did you mean `rye list`?',
    ],
    [
      'unknown command that is nearly version',
      ['verison'],
      'rye: unknown command "verison" [usage]\nhint: Did you mean `rye version`?',
    ],
    [
      'unknown command of a group with a default',
      ['threads', 'logz'],
      'unknown command "logz" [usage]\nhint: Did you mean `rye threads logs`?',
    ],
    [
      'unknown option',
      ['doctor', '--jsn'],
      'unknown option --jsn [usage]\nhint: Did you mean --json?',
    ],
    ['missing argument', ['list'], 'missing argument <type> [usage]'],
    ['excess argument', ['list', 'tool', 'x'], 'unexpected argument "x" [usage]'],
    [
      'bad choice',
      ['list', 'tool', '--space', 'moon'],
      '--space <SPACE>: expected one of project, user, system, got "moon" [usage]',
    ],
    [
      'bad number',
      ['search', 'all', 'x', '--limit', '1.5'],
      '--limit <N>: expected a whole number, got "1.5"',
    ],
    [
      'empty number',
      ['search', 'all', 'x', '--limit', ''],
      '--limit <N>: expected a whole number, got ""',
    ],
    ['unknown type', ['list', 'toolz'], 'unknown type "toolz" [usage]\nhint: Did you mean tool?'],
    ['validate without a pattern', ['validate', 'tool'], 'rye validate tool needs an ID or a glob'],
    [
      'unknown limit',
      ['run', 'x', '--limit', 'turn=1'],
      'unknown limit "turn" [unknown_limit]\nhint: Did you mean turns?',
    ],
    [
      'bad limit',
      ['run', 'x', '--limit', 'turns=many'],
      '--limit turns: expected a number ≥ 0, got "many" [invalid_limit]',
    ],
    [
      'pair without a name',
      ['run', 'x', '--input', '=1'],
      '--input expects NAME=VALUE, got "=1" [usage]',
    ],
    [
      'input given twice',
      ['run', 'x', '--input', 'a=1', '--input', 'a=2'],
      '--input a is given twice [usage]',
    ],
    [
      'inputs that are no object',
      ['run', 'x', '--inputs', '[1]'],
      '--inputs is not a JSON object [invalid_input]',
    ],
  ];

  test.each(cases)('%s', async (_, args, message) => {
    const [code, io] = await rye(args);
    expect(io.err()).toContain(message);
    expect(io.out()).toBe('');
    expect(code).toBe(2);
  });

  test.each(cases)('%s, as one JSON document', async (_, args) => {
    const [code, io] = await rye([...args, '--json']);
    const document: unknown = JSON.parse(io.out());
    expect(document).toMatchObject({ success: false, error: { code: expect.any(String) } });
    expect(io.err()).toBe('');
    expect(code).toBe(2);
  });

  it('ends a stream-json call with exactly one result line', async () => {
    const [code, io] = await rye(['run', 'x', '--output-format', 'stream-json', '--bogus']);
    expect(io.out().split('\n')).toHaveLength(2);
    expect(JSON.parse(io.out())).toMatchObject({ event_type: 'result', success: false });
    expect(code).toBe(2);
  });
});

describe('information', () => {
  it('prints help on stdout with examples', async () => {
    const [code, io] = await rye(['execute', 'directive', '--help']);
    expect(code).toBe(0);
    expect(io.out()).toContain('Usage: rye execute directive');
    expect(io.out()).toContain('$ rye execute directive hello --input who=Ada');
  });

  it('shows the options of a subcommand alone, and names the help with the others', async () => {
    const [, io] = await rye(['threads', 'tree', '--help']);
    expect(io.out()).toMatch(/^Usage: rye threads tree/);
    expect(io.out()).toContain('Options of every command: rye help');
    expect(io.out()).not.toContain('--user-space');
    expect((await rye(['--help']))[1].out()).toContain('--user-space');
  });

  it('wraps help at the width of the terminal', async () => {
    const [, io] = await rye(['--help'], { columns: 60 });
    const lines = io.out().split('Examples:')[0]?.split('\n') ?? [];
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(60);
  });

  it.each([
    [['--help', '--json'], 'help'],
    [['--json', '--version'], 'version'],
  ])('prints %j as one JSON document', async (args, member) => {
    const [code, io] = await rye(args);
    expect(JSON.parse(io.out())).toEqual({
      success: true,
      [member]: expect.any(String),
      warnings: [],
    });
    expect(code).toBe(0);
  });
});

describe('global options', () => {
  it.each([
    [
      'before the command',
      ['--project', '/a/p', '--user-space', '/a/u', '-c', 'x=1', 'list', 'tool'],
    ],
    ['after the command', ['list', 'tool', '-C', '/a/p', '--user-space', '/a/u', '-c', 'x=1']],
  ])('are taken %s', async (_, args) => {
    const [code, io] = await rye(args, { rye: listing(() => Promise.resolve([])) });
    expect(code).toBe(0);
    expect(io.opened).toMatchObject([
      { projectPath: '/a/p', userSpacePath: '/a/u', configOverrides: ['x=1'] },
    ]);
  });

  it('fall back to the environment, then to the working directory and home', async () => {
    const source = { rye: listing(() => Promise.resolve([])), cwd: '/nowhere/at/all' };
    const env = { RYE_PROJECT: '/env/p', RYE_USER_SPACE: '/env/u' };
    const [, fromEnv] = await rye(['list', 'tool'], { ...source, env });
    const [, fromCwd] = await rye(['list', 'tool'], { ...source, env: { RYE_PROJECT: '' } });
    expect(fromEnv.opened).toMatchObject([{ projectPath: '/env/p', userSpacePath: '/env/u' }]);
    expect(fromCwd.opened).toMatchObject([
      { projectPath: '/nowhere/at/all', userSpacePath: '/home/ada' },
    ]);
  });
});

describe('a bug', () => {
  const broken = { rye: listing(() => Promise.reject(new TypeError('x is undefined'))) };

  it('shows a person no stack trace', async () => {
    const [code, io] = await rye(['list', 'tool'], broken);
    expect(io.err()).toMatch(/^rye: x is undefined \[internal\]\nhint: .*--verbose.*\n$/);
    expect(code).toBe(1);
  });

  it('shows the stack trace with --verbose', async () => {
    const [, io] = await rye(['list', 'tool', '--verbose'], broken);
    expect(io.err()).toContain('main.test.ts');
  });
});
