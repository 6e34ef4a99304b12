import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

it('writes JUnit for every refusal of a run before its thread starts', async () => {
  const here = await workspace();
  const file = path.join(here.project, 'e.xml');
  for (const args of [
    ['hello', '--limit', 'bogus=1'],
    ['hello', '--limit', 'turns=1', '--max-turns', '2'],
    ['hello', '--inputs', '{'],
    ['hello', '--input', 'who'],
    ['hello', '--json-schema', 'nofile.json'],
    ['hello', '--isolation-result', 'merge'],
    ['hello', '--queue', 'q'],
    ['hello', '--output', 'no/such/folder.txt'],
    ['hello', '--thread-id', 'a', '--session-id', 'b'],
    ['hello', '--message', 'x'],
    ['nosuch'],
    [],
  ]) {
    writeFileSync(file, 'yesterday');
    const { code } = await here.rye(['run', ...args, '--junit', 'e.xml']);
    expect(code, args.join(' ')).not.toBe(0);
    expect(readFileSync(file, 'utf8'), args.join(' ')).toMatch(/failures="1"[^]*<failure type="/);
  }
});

it('refuses files of a result that the command does not wait for', async () => {
  const here = await workspace();
  for (const how of ['--async', '--dry-run', '--fleet']) {
    for (const option of [['--output', 'r.txt'], ['--junit', 'j.xml'], ['--print']]) {
      const { code, stderr } = await here.rye(['run', 'hello', how, ...option]);
      expect([code, stderr]).toEqual([
        2,
        expect.stringContaining(`for which ${how} does not wait`),
      ]);
    }
  }
  expect(await here.json(['threads', 'list'])).toMatchObject({ total: 0 });
});

it('writes JUnit of a thread that is verified', async () => {
  const here = await workspace();
  await here.rye(['run', 'hello', '--thread-id', 't']);
  const file = path.join(here.project, 'v.xml');
  expect((await here.rye(['verify', 'thread', 't', '--junit', 'v.xml'])).code).toBe(0);
  expect(readFileSync(file, 'utf8')).toMatch(/failures="0"[^]*name="thread t: transcript"/);
  const log = path.join(here.project, '.ai/state/threads/t/transcript.jsonl');
  writeFileSync(log, readFileSync(log, 'utf8').replaceAll(/world/gi, 'worms'));
  const broken = await here.rye(['verify', 'thread', 't', '--junit', 'v.xml']);
  expect(broken.code).toBe(3);
  expect(readFileSync(file, 'utf8')).toMatch(/name="thread t: transcript"[^>]*>\s*<failure type="/);
  expect((await here.rye(['verify', 'thread', 'nosuch', '--junit', 'n.xml'])).code).toBe(6);
  expect(existsSync(path.join(here.project, 'n.xml'))).toBe(true);
  const misplaced = await here.rye(['verify', 'directive', 'hello', '--accept-head']);
  expect([misplaced.code, misplaced.stderr]).toEqual([2, expect.stringContaining('--accept-head')]);
});

it('prints what was stored, and totals before a limit', async () => {
  const here = await workspace();
  for (const id of ['a', 'b', 'c']) await here.rye(['run', 'hello', '--thread-id', id]);
  for (const command of ['list', 'tree']) {
    const { threads, total } = await here.json(['threads', command, '--limit', '1']);
    expect([(threads as readonly unknown[]).length, total]).toEqual([1, 3]);
  }
  const { entries } = await here.json(['threads', 'entries', 'a']);
  const [{ id }] = entries as readonly [{ readonly id: string }];
  expect(await here.json(['threads', 'label', 'a', id, '  a \n b '])).toMatchObject({
    label: 'a b',
  });
  expect(await here.json(['threads', 'label', 'a', id, ' '])).toMatchObject({ label: null });
  expect(await here.json(['threads', 'rename', 'a', ' One \n two '])).toMatchObject({
    title: 'One two',
  });
  expect(await here.json(['threads', 'entries', 'a'])).toMatchObject({ title: 'One two' });
  expect(await here.json(['threads', 'rename', 'a', ' '])).toMatchObject({ title: null });
  expect(await here.json(['threads', 'entries', 'a'])).toMatchObject({ title: null });
  expect((await here.rye(['threads', 'rename', 'a', ''])).stdout).toBe('a: title removed\n');
  for (const args of [
    ['threads', 'wait', 'a', '--timeout', '-1'],
    ['approvals', '--watch', '--state', 'denied'],
    ['search', 'hello after:2026-02-31'],
  ]) {
    expect((await here.rye(args)).code, args.join(' ')).toBe(2);
  }
});

it('states why a compressed log is not changed', async () => {
  const here = await workspace();
  await here.rye(['run', 'hello', '--thread-id', 'old']);
  await here.rye(['threads', 'gc', '--older-than', '0s']);
  const { code, stderr } = await here.rye(['threads', 'rename', 'old', 'Title']);
  expect([code, stderr]).toEqual([2, expect.stringContaining('is compressed and cannot grow')]);
  expect((await here.rye(['threads', 'resume', 'old', '-m', 'again'])).code).toBe(0);
  expect((await here.rye(['threads', 'rename', 'old', 'Title'])).code).toBe(0);
});

it('finds 20 results, as the help states, and resolves --parent', async () => {
  const here = await workspace();
  for (let index = 10; index < 35; index += 1) {
    const file = path.join(here.project, `.ai/knowledge/quoll${index}.md`);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(
      file,
      `---\nname: quoll${index}\ntitle: Quoll ${index}\nentry_type: reference\nversion: 1.0.0\n---\nA quoll.\n`,
    );
  }
  const found = await here.json(['search', 'knowledge', 'quoll']);
  expect([(found['results'] as readonly unknown[]).length, found['total']]).toEqual([20, 25]);
  await here.rye(['run', 'hello', '--thread-id', 'root']);
  const child = await here.json(['run', 'hello', '--parent', '@']);
  expect(JSON.stringify(child)).not.toContain('invalid_thread_id');
});
