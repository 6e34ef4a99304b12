import fs, { existsSync, readdirSync, statSync, utimesSync, writeFileSync } from 'node:fs';
import { syncBuiltinESMExports } from 'node:module';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { type Lease, takeLease, UNSEEN_HINT } from '../../src/kernel/storage/files/lease.ts';
import { processOwners } from '../../src/kernel/storage/owners.ts';
import { temporaryFolder } from './support.ts';

const owners = processOwners();

function take(folder: string, epoch: number, staleMs?: number): Lease {
  const lease = takeLease({ folder, threadId: 't', owner: owners.self(), epoch, owners, staleMs });
  onTestFinished(() => lease.release());
  return lease;
}

/** Moves the time of the last sign of life by these seconds. */
function age(path: string, seconds: number): void {
  const time = statSync(path).mtimeMs / 1000 - seconds;
  utimesSync(path, time, time);
}

/** A folder with the lease of a process that can't be seen from here. */
function unseen(): { readonly folder: string; readonly path: string } {
  const folder = temporaryFolder();
  const path = join(folder, 'lease.json');
  const holder = { pid: 5, process_start: 'x', host: 'box-1', epoch: 1 };
  writeFileSync(path, JSON.stringify(holder));
  return { folder, path };
}

describe('the lease of a holder that cannot be seen', () => {
  it.each([0, 50])('is refused %i s after a sign of life', (seconds) => {
    const { folder, path } = unseen();
    age(path, seconds);
    expect(() => take(folder, 1)).toThrow(
      expect.objectContaining({ code: 'thread_locked', hint: UNSEEN_HINT }),
    );
  });

  it.each([70, -70])(
    'is taken %i s after its last sign of life, and its log is copied',
    (seconds) => {
      const { folder, path } = unseen();
      age(path, seconds);
      const lease = take(folder, 1);
      expect(lease.isFromLiving).toBe(true);
      lease.assertHeld();
    },
  );

  it('is taken after the silence that is configured', () => {
    const { folder, path } = unseen();
    age(path, 5);
    expect(() => take(folder, 1, 6000)).toThrow('writes the log');
    take(folder, 1, 4000).assertHeld();
  });

  it('is refused to an older epoch, silent or not', () => {
    const { folder, path } = unseen();
    age(path, 1000);
    expect(() => take(folder, 0)).toThrow('writes the log');
  });
});

it('a lease shows that its holder lives until it is released', () => {
  vi.useFakeTimers({ toFake: ['setInterval', 'clearInterval'] });
  onTestFinished(() => void vi.useRealTimers());
  const folder = temporaryFolder();
  const path = join(folder, 'lease.json');
  const lease = take(folder, 1);
  const text = fs.readFileSync(path, 'utf8');
  const begun = statSync(path).mtimeMs;
  age(path, 1000);
  vi.advanceTimersByTime(5000);
  expect(statSync(path).mtimeMs).toBeGreaterThanOrEqual(begun);
  expect(fs.readFileSync(path, 'utf8')).toBe(text);
  lease.release();
  expect(vi.getTimerCount()).toBe(0);
  expect(readdirSync(folder)).toEqual([]);
});

/** Lets `act` happen once, right before the next call of a function of the file system. */
function before(name: 'unlinkSync' | 'renameSync' | 'linkSync', act: () => void): void {
  const real = fs[name] as (...args: unknown[]) => void;
  const restore = (): void => {
    Object.assign(fs, { [name]: real });
    syncBuiltinESMExports();
  };
  const once = (...args: unknown[]): void => {
    restore();
    act();
    real(...args);
  };
  Object.assign(fs, { [name]: once });
  syncBuiltinESMExports();
  onTestFinished(restore);
}

it.each(['renameSync', 'unlinkSync'] as const)(
  'a release leaves the lease of a taker that comes at that moment, before %s',
  (step) => {
    const folder = temporaryFolder();
    const first = take(folder, 1);
    let second: Lease | undefined;
    before(step, () => {
      second = take(folder, 2);
    });
    first.release();
    second?.assertHeld();
    expect(second).toBeDefined();
    second?.release();
    expect(existsSync(join(folder, 'lease.json'))).toBe(false);
    expect(readdirSync(folder)).toEqual([]);
  },
);

it('a lease that is put back gives way to one that was taken meanwhile', () => {
  const folder = temporaryFolder();
  const first = take(folder, 1);
  let third: Lease | undefined;
  before('renameSync', () => {
    const second = take(folder, 2);
    before('linkSync', () => {
      third = take(folder, 3);
    });
    onTestFinished(() => second.release());
  });
  first.release();
  third?.assertHeld();
  expect(third).toBeDefined();
});
