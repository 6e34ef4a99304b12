import { mkdtempSync, realpathSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import type { Clock } from '../../src/core/clock.ts';
import type { IdSource } from '../../src/core/ids.ts';
import { openStore } from '../../src/storage/open-store.ts';
import type { LogReopenOptions, Store } from '../../src/storage/store.ts';
import { testKey } from '../log/support.ts';

const NOW = '2026-02-17T10:00:56.000Z';

export const key = testKey();

/** A clock that does not move; storage never waits on it. */
export const stoppedClock: Clock = {
  now: () => Date.parse(NOW),
  monotonic: () => 0,
  sleep: async () => {},
};

export function countingIds(): IdSource {
  let count = 0;
  const next = (): string => {
    count += 1;
    return count.toString(16).padStart(16, '0');
  };
  return { entryId: next, uuid: next };
}

const root = realpathSync(mkdtempSync(join(tmpdir(), 'rye-storage-')));
const opened: Store[] = [];

afterAll(() => {
  for (const store of opened) store.close();
  rmSync(root, { recursive: true, force: true });
});

/** A fresh folder that is removed after the file's tests. */
export function temporaryFolder(): string {
  return mkdtempSync(join(root, 'project-'));
}

export interface TestStore extends Store {
  readonly projectPath: string;
  /** Options for a writer owned by this process. */
  writer(changes?: Partial<LogReopenOptions>): LogReopenOptions;
}

export function openTestStore(projectPath = temporaryFolder()): TestStore {
  const store = openStore({ projectPath, clock: stoppedClock, ids: countingIds() });
  opened.push(store);
  return {
    ...store,
    projectPath,
    writer: (changes) => ({
      signer: key.signer,
      verifier: key.verifier,
      durability: 'turn',
      owner: store.owners.self(),
      epoch: 1,
      ...changes,
    }),
  };
}
