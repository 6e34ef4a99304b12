import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';

const CHILD = path.resolve(import.meta.dirname, 'kill-guard-child.ts');

/** Lists the processes, without zombies, that have these words among their arguments. */
function running(words: string): readonly string[] {
  return readdirSync('/proc').filter((pid) => {
    if (!/^\d+$/.test(pid)) return false;
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, 'latin1');
      const isZombie = stat.slice(stat.lastIndexOf(')') + 2).startsWith('Z');
      return !isZombie && readFileSync(`/proc/${pid}/cmdline`, 'latin1').includes(words);
    } catch {
      return false;
    }
  });
}

let started = 0;

/** Seconds that no other process sleeps for, also none of an earlier attempt or of another run of the suite. */
function ownSeconds(): string {
  started += 1;
  return `3600.${process.pid}${started}`;
}

async function owner(mode: string, seconds: string) {
  const child = spawn(process.execPath, ['--import', 'tsx', CHILD, mode, seconds], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  const ended = once(child, 'exit');
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  return { child, ended, guard: line.toString().trim() };
}

it('a rye that is killed takes its running tools with it, and what they started', async () => {
  const seconds = ownSeconds();
  const { child, ended } = await owner('hang', seconds);
  await vi.waitFor(() => expect(running(`sleep\0${seconds}`)).toHaveLength(2), 60_000);
  child.kill('SIGKILL');
  await ended;
  await vi.waitFor(() => expect(running(`sleep\0${seconds}`)).toEqual([]), 60_000);
});

it('the guard deletes the private folders of a killed rye, and nothing else', async () => {
  const root = mkdtempSync(path.join(tmpdir(), 'rye guard *-'));
  onTestFinished(() => removeFolder(root));
  const names = ['held one', 'given back', 'held two', 'never told'];
  const folders = names.map((name) => path.join(root, name));
  for (const folder of folders) mkdirSync(path.join(folder, 'deep'), { recursive: true });
  const { child, ended } = await owner('folders', root);
  child.kill('SIGKILL');
  await ended;
  await vi.waitFor(
    () => expect(readdirSync(root).toSorted()).toEqual(['given back', 'never told']),
    10_000,
  );
});

it('the guard creates the marks of a killed rye when it dies, not before, and no folder for them', async () => {
  const root = mkdtempSync(path.join(tmpdir(), 'rye guard *-'));
  onTestFinished(() => removeFolder(root));
  const { child, ended } = await owner('marks', root);
  expect(readdirSync(root)).toEqual([]);
  child.kill('SIGSTOP');
  const killedMs = Date.now();
  child.kill('SIGKILL');
  await ended;
  await vi.waitFor(() => expect(readdirSync(root).toSorted()).toEqual(['one mark', 'two']), 10_000);
  // file systems count in ticks
  expect(statSync(path.join(root, 'two')).mtimeMs).toBeGreaterThan(killedMs - 50);
});

it('the guard ends with its rye, keeps it from nothing, and leaves finished groups alone', async () => {
  const seconds = ownSeconds();
  const { ended, guard } = await owner('leave', seconds);
  expect(await ended).toEqual([0, null]);
  expect(guard).toMatch(/^\d+$/);
  await vi.waitFor(() => expect(running('sign what')).not.toContain(guard), 10_000);
  const [stray, ...others] = running(`sleep\0${seconds}`);
  expect(others).toEqual([]);
  process.kill(Number(stray), 'SIGKILL');
});
