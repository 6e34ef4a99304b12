import { mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll } from 'vitest';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { LogReopenOptions, Store } from '../../src/kernel/storage/store.ts';
import { countingIds, STOPPED, testKey } from '../../testing/conformance/fixtures.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

export const key = testKey();

export { countingIds, STOPPED as stoppedClock };

const root = realpathSync(mkdtempSync(join(tmpdir(), 'rye-storage-')));
const opened: Store[] = [];

afterAll(() => {
  for (const store of opened) store.close();
  removeFolder(root);
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
  const store = openStore({ projectPath, clock: STOPPED, ids: countingIds() });
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
