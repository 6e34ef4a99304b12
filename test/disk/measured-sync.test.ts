import { closeSync, mkdtempSync, openSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterEach, beforeEach, expect, it } from 'vitest';
import { measuredSync } from '../../src/kernel/disk/measured-sync.ts';

let folder: string;
let fd: number;

beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'rye-data-sync-'));
  fd = openSync(path.join(folder, 'log'), 'a');
});

afterEach(() => {
  closeSync(fd);
  rmSync(folder, { recursive: true, force: true });
});

/** Syncs `count` times on a disk that takes `ms` each time; tells which syncs were made on the main thread. */
async function places(took: () => number, count: number): Promise<string> {
  let now = 0;
  let isBegin = true;
  const monotonic = (): number => {
    if (!isBegin) now += took();
    isBegin = !isBegin;
    return now;
  };
  const sync = measuredSync({ monotonic });
  let found = '';
  for (let at = 0; at < count; at += 1) {
    const synced = sync(fd);
    found += synced === undefined ? 'm' : 'p';
    await synced;
  }
  return found;
}

it('syncs on the main thread while the disk is quick', async () => {
  expect(await places(() => 0.01, 200)).toBe('m'.repeat(200));
});

it('stays there after one long sync, such as that of a process that was paused', async () => {
  let count = 0;
  expect(await places(() => ((count += 1) % 2 === 0 ? 50 : 0.01), 50)).toBe('m'.repeat(50));
});

it('syncs in the pool once the disk is slow, and tries the main thread less and less often', async () => {
  expect(await places(() => 5, 70 + 128)).toBe(`mm${'p'.repeat(64)}m${'p'.repeat(128)}mpp`);
});

it('comes back to the main thread when the disk is quick again', async () => {
  let count = 0;
  expect(await places(() => ((count += 1) <= 2 ? 5 : 0.01), 80)).toBe(
    `mm${'p'.repeat(64)}${'m'.repeat(14)}`,
  );
});

it('fails with the error of the system on either thread', async () => {
  const closed = openSync(path.join(folder, 'other'), 'a');
  closeSync(closed);
  expect(() => measuredSync({ monotonic: () => 0 })(closed)).toThrow(/EBADF/);
  let now = 0;
  const slow = measuredSync({ monotonic: () => (now += 5) });
  await slow(fd);
  await slow(fd);
  await expect(async () => await slow(closed)).rejects.toThrow(/EBADF/);
});
