import { existsSync, type FSWatcher, watch } from 'node:fs';
import { dirname } from 'node:path';

/** Wakes a waiter when a file changes. */
export interface ChangeWatch {
  /** Resolves at the next change since the last call, after `ms`, or when `signal` aborts. */
  next(ms: number, signal: AbortSignal): Promise<void>;
  close(): void;
}

/**
 * Watches the files whose names start with the name of `path`: each commit to a SQLite database, by any process, changes
 * its `-wal`. If the system can't watch, waiters wake by time alone.
 */
export function watchFile(path: string): ChangeWatch {
  const folder = dirname(path);
  const name = path.slice(folder.length + 1);
  let changed = false;
  let wake: (() => void) | undefined;
  const watcher = openWatcher(folder, (file) => {
    if (file !== null && !file.startsWith(name)) return;
    changed = true;
    wake?.();
  });
  return {
    async next(ms, signal) {
      if (!changed && !signal.aborted) {
        await new Promise<void>((resolve) => {
          const done = (): void => {
            clearTimeout(timer);
            signal.removeEventListener('abort', done);
            wake = undefined;
            resolve();
          };
          const timer = setTimeout(done, ms);
          signal.addEventListener('abort', done, { once: true });
          wake = done;
        });
      }
      changed = false;
    },
    close: () => watcher?.close(),
  };
}

function openWatcher(
  folder: string,
  onChange: (file: string | null) => void,
): FSWatcher | undefined {
  if (!existsSync(folder)) return undefined;
  try {
    const watcher = watch(folder, { persistent: false }, (_event, file) => onChange(file));
    // without a watch, waiters still wake by time
    watcher.on('error', () => watcher.close());
    return watcher;
  } catch {
    return undefined;
  }
}
