import { describe, expect, it } from 'vitest';
import { loadTree } from '../../src/faces/cli/command.ts';
import { main } from '../../src/faces/cli/main.ts';
import { ROOT } from '../../src/faces/cli/root.ts';
import { helpedCommands } from '../../src/faces/cli/short-help.ts';
import { createFakeIo } from '../helpers/fake-io.ts';
import { newPerson } from '../helpers/person.ts';

async function rye(args: readonly string[], columns = 80) {
  const io = createFakeIo({ columns });
  return { code: await main(args, io), out: io.out(), err: io.err() };
}

describe('the help of rye', () => {
  it('fits a small terminal, names each command once, and begins with what rye is', async () => {
    const { out } = await rye(['--help']);
    const lines = out.trimEnd().split('\n');
    expect(lines[0]).toBe('Run LLM agents like jobs, not chats.');
    expect(lines.length).toBeLessThan(24);
    expect(Math.max(...lines.map((line) => line.length))).toBeLessThanOrEqual(80);
    const names = (ROOT.commands ?? []).map(({ name }) => name);
    expect(helpedCommands().toSorted()).toEqual(names.toSorted());
    expect(lines.map((line) => /^ {2}([A-Z]\w+) /.exec(line)?.[1]).filter(Boolean)).toEqual([
      'Start',
      'Watch',
      'Decide',
      'Write',
      'Trust',
      'Operate',
    ]);
  });

  it('lists every command with its summary below the same headings on request', async () => {
    const { out, code } = await rye(['help', '--all']);
    expect(code).toBe(0);
    for (const { name, summary } of ROOT.commands ?? [])
      expect(out.replaceAll(/\s+/g, ' ')).toContain(` ${name} ${summary}`);
    expect(out).toContain('--user-space');
    expect(out).toContain('Examples:');
    expect(out.match(/^(?:Start|Watch|Decide|Write|Trust|Operate):$/gm)).toHaveLength(6);
    expect((await rye(['help', 'commands'])).out).toBe(out);
  });
});

describe('a short verb', () => {
  it.each([
    ['ps', 'list'],
    ['tree', 'tree'],
    ['show', 'show'],
    ['logs', 'logs'],
    ['resume', 'resume'],
    ['stop', 'cancel'],
  ])('rye %s is rye threads %s', async (verb, command) => {
    const { commands = [] } = await loadTree(ROOT);
    const of = (name: string, all = commands) => all.find((one) => one.name === name);
    const [short, long] = [of(verb), of(command, of('threads')?.commands)];
    expect(short?.run).toBeTypeOf('function');
    expect(short?.run).toBe(long?.run);
    expect(short?.options).toBe(long?.options);
    expect(short?.summary).toContain(`\`rye threads ${command}\``);
  });

  it('works on the last thread', async () => {
    const person = await newPerson();
    await person.rye(['run', 'hello', '--thread-id', 'one']);
    expect((await person.rye(['ps'])).out).toMatch(/^one +completed/m);
    expect((await person.rye(['tree'])).out).toContain('one');
    expect((await person.rye(['show', '@'])).out).toContain('status      completed');
    expect((await person.rye(['logs', '--last'])).out).toContain('thread_finished');
    expect(await person.rye(['stop', 'one'])).toEqual(
      await person.rye(['threads', 'cancel', 'one']),
    );
  });
});

describe('a word that is no command', () => {
  it.each([
    ['thread', '`rye threads`'],
    ['thread list', '`rye threads list`'],
    ['thread ls', '`rye threads list`'],
    ['threads ls', '`rye threads list`'],
    ['threads ps', '`rye threads list`'],
    ['threads log', '`rye threads logs`'],
    ['threads stop', '`rye threads cancel`'],
    ['threads delete', '`rye threads gc`'],
    ['key ls', '`rye keys list`'],
    ['schedules', '`rye schedule`'],
    ['schedule new', '`rye schedule add`'],
    ['models set', '`rye models use`'],
    ['log', '`rye logs`'],
    ['cancel', '`rye stop`'],
    ['sessions', '`rye ps`'],
    ['ui', '`rye threads open`'],
    ['steer', '`rye threads steer`'],
    ['export', '`rye threads export`'],
    ['login', 'ANTHROPIC_API_KEY'],
    ['update', 'npm'],
    ['xyzzy', 'rye help --all'],
  ])('rye %s has the hint %s', async (line, hint) => {
    const { code, out, err } = await rye(line.split(' '));
    expect([code, out, err]).toEqual([2, '', expect.stringContaining(hint)]);
    expect(err).not.toContain('run <directive>');
  });

  it.each([
    [['run', 'what is up'], "rye ask 'what is up'"],
    [['run', "what's up?"], String.raw`rye ask 'what'\''s up?'`],
    [['execute', 'directive', 'Why?'], "rye ask 'Why?'"],
    [['chat', 'fix this bug'], "rye ask 'fix this bug'"],
    [['run', 'two\nlines'], "rye ask '…'"],
  ])('rye %j is taken for a question', async (args, hint) => {
    const { code, err } = await rye(args);
    expect([code, err]).toEqual([2, expect.stringContaining(`hint: To ask a question: ${hint}\n`)]);
  });
});
