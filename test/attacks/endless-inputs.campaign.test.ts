// Requirement: bounded-work
import { execFileSync } from 'node:child_process';
import { mkdirSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { runCli } from '../helpers/run-cli.ts';
import { inLab } from './lab.ts';

it('input that never ends, or nests without end, is refused by name', async () => {
  await inLab(async (lab) => {
    const nested = (open: string, close: string): string =>
      `{"who": ${open.repeat(60_000)}1${close.repeat(60_000)}}`;
    const rye = async (...args: readonly string[]) =>
      await runCli(args, { cwd: lab.project, env: lab.env });
    for (const json of [nested('[', ']'), nested('{"a":', '}')]) {
      for (const args of [
        ['run', 'hello', '--inputs', json],
        ['answer', 'apr-1', json],
        ['approve', 'apr-1', '--input', json],
      ]) {
        const { code, stderr } = await rye(...args);
        expect(stderr, args[0]).toContain('[invalid_input]');
        expect(code).toBe(2);
      }
    }
    execFileSync('mkfifo', [lab.path('lock.json')]);
    const { stderr } = await rye('run', 'hello');
    expect(stderr).toContain('[guard_changed]');
    expect((await rye('doctor')).stdout).toContain('lock.json');
  });
});

const NAMES = 'abcdefghi'.split('');

/** Texts that stay small in a file and grow, or nest, without end when they are read. */
const BOMBS: Readonly<Record<string, string>> = {
  'aliases of aliases': [
    'a: &a [x, x, x, x, x, x, x, x, x]',
    ...NAMES.slice(1).map((name, at) => {
      const before = NAMES[at];
      return `${name}: &${name} [${Array.from({ length: 9 }, () => `*${before}`).join(', ')}]`;
    }),
  ].join('\n'),
  'keys that merge each other': [
    'a: &a {x: 1}',
    ...NAMES.slice(1).map((name, at) => {
      const before = NAMES[at];
      return `${name}: &${name} {${Array.from({ length: 9 }, (_, key) => `k${key}: {<<: *${before}, y: *${before}}`).join(', ')}}`;
    }),
  ].join('\n'),
  'lists in lists': `a: ${'['.repeat(60_000)}${']'.repeat(60_000)}`,
  'maps in maps': `a: ${'{a: '.repeat(20_000)}1${'}'.repeat(20_000)}`,
  'lists below lists': `a:\n  ${'- '.repeat(20_000)}x`,
};

it.each(Object.entries(BOMBS))(
  '%s in what is imported end by name',
  { timeout: 15_000 },
  async (_, bomb) => {
    await inLab(async (lab) => {
      const old = join(lab.project, 'old/.ai');
      const put = (name: string, text: string): void => {
        mkdirSync(dirname(join(old, name)), { recursive: true });
        writeFileSync(join(old, name), text);
      };
      put('config/agent/resilience.yaml', bomb);
      put('knowledge/k.md', `---\n${bomb}\n---\n\nText.\n`);
      put(
        'tools/t.sh',
        `#!/bin/sh\n# rye:tool\n${bomb.replaceAll(/^/gm, '# ')}\n# /rye:tool\necho 1\n`,
      );
      const rye = async (...args: readonly string[]) =>
        await runCli([...args, '--json'], { cwd: lab.project, env: lab.env });
      const { code, stdout, stderr } = await rye('import', 'rye-os', 'old', '--apply', '--yes');
      expect(code, stderr).toBe(0);
      const { items } = JSON.parse(stdout) as { items: readonly { id: string; code?: string }[] };
      const codes = new Map(items.map((item) => [item.id, item.code]));
      expect(codes.get('agent/resilience')).toBe('config_invalid');
      for (const id of ['k', 't']) expect(codes.get(id), id).toMatch(/_malformed$/);
      expect(stdout + stderr).not.toContain('bug in rye');
    });
  },
);

it('records of a session that nest without end are no records', async () => {
  await inLab(async (lab) => {
    const head = '{"type":"session","version":3,"id":"s-1","timestamp":"2026-01-01T00:00:00Z"}';
    const lists = `${'['.repeat(60_000)}${']'.repeat(60_000)}`;
    const maps = `${'{"a":'.repeat(60_000)}1${'}'.repeat(60_000)}`;
    const call = `{"type":"toolCall","id":"c","name":"n","arguments":${maps}}`;
    const entry = '"id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00Z"';
    for (const line of [
      lists,
      `{"type":"message",${entry},"message":{"role":"user","content":${lists},"timestamp":1}}`,
      `{"type":"message",${entry},"message":{"role":"assistant","content":[${call}],"timestamp":1}}`,
      `{"type":"custom",${entry},"customType":"x","data":${maps}}`,
    ]) {
      const file = join(lab.project, 'session.jsonl');
      writeFileSync(file, `${head}\n${line}\n`);
      const args = ['threads', 'import', file, '--json'];
      const { code, stdout } = await runCli(args, { cwd: lab.project, env: lab.env });
      expect(code, stdout).toBe(0);
      const { problems } = JSON.parse(stdout) as { problems: readonly object[] };
      expect(problems).toMatchObject([{ kind: 'malformed', line: 2 }]);
    }
  });
});

it('a long text in an input is no nesting', async () => {
  await inLab(async (lab) => {
    const text = 'x'.repeat(14 * 1024 * 1024);
    lab.write('../long.json', JSON.stringify({ who: text }));
    const args = ['run', 'hello', '--inputs', '@long.json', '--dry-run', '--json'];
    const { stdout } = await runCli(args, { cwd: lab.project, env: lab.env });
    expect(stdout).not.toContain('"internal"');
  });
});
