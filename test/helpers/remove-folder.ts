import { rmSync } from 'node:fs';

const LIMIT_MS = 30_000;
const POLL_MS = 50;

/**
 * Removes a folder with all that is in it. A process that a test ended may still write into the folder for a moment: then
 * the whole removal begins again, which `maxRetries` of `rmSync` does not do for a file that was added in between.
 */
export function removeFolder(folder: string): void {
  const end = performance.now() + LIMIT_MS;
  for (;;) {
    try {
      rmSync(folder, { recursive: true, force: true });
      return;
    } catch (error) {
      if (performance.now() > end) throw error;
      // the writer is another process, so that this one can wait
      Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, POLL_MS);
    }
  }
}
