import { watch } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemCodeOf } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { FollowOptions } from '../store.ts';
import { type FileLine, LineSplitter, readChunks, withFile } from './lines.ts';
import { EventReader, missingLog } from './log-reader.ts';

const BLOCK_BYTES = 64 * 1024;
const LF = 0x0a;

/** The last `count` events, read in blocks from the end: the cost is that of the tail, not of the log. */
export async function tailLog(
  path: string,
  threadId: string,
  count: number,
): Promise<readonly (LogEvent | UnknownEvent)[]> {
  return await withFile(path, async (handle) => {
    const { size } = await handle.stat();
    // one more line than events: the first may be the header
    const start = await lineStartFromEnd(handle, size, count);
    const splitter = new LineSplitter(start);
    const reader = new EventReader();
    const events: (LogEvent | UnknownEvent)[] = [];
    const take = (line: FileLine): void => {
      if (line.offset > 0) events.push(...reader.events(line).map(({ event }) => event));
    };
    for await (const chunk of readChunks(handle, start)) {
      for (const line of splitter.push(chunk)) take(line);
    }
    return count === 0 ? [] : events.slice(-count);
  }).catch((error: unknown) => {
    throw missingLog(error, threadId);
  });
}

/** Offset of the `count`th line from the end; a torn last line is not counted. */
async function lineStartFromEnd(handle: FileHandle, size: number, count: number): Promise<number> {
  const block = Buffer.allocUnsafe(BLOCK_BYTES);
  let seen = 0;
  for (let end = size; end > 0; ) {
    const from = Math.max(0, end - BLOCK_BYTES);
    const { bytesRead } = await handle.read(block, 0, end - from, from);
    for (let at = bytesRead - 1; at >= 0; at -= 1) {
      if (block[at] !== LF) continue;
      seen += 1;
      if (seen > count) return from + at + 1;
    }
    end = from;
  }
  return 0;
}

/** Poll interval for file systems that report no changes, and for a file that is not there yet. */
const POLL_MS = 250;

/** Events as they are written. A record is given out once its line feed is there. */
export async function* followLog(
  path: string,
  { threadId, since = 0, signal }: FollowOptions & { readonly threadId: string },
): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
  const changes = watchFolder(path, signal);
  let handle: FileHandle | undefined;
  try {
    let position = 0;
    while (!signal.aborted) {
      const changed = changes.next();
      handle ??= await openIfThere(path);
      if (handle) {
        for await (const line of wholeLines(handle, position)) {
          position = line.offset + line.length;
          if (line.offset === 0) continue;
          for (const { event } of new EventReader().events(line)) {
            if (signal.aborted) return;
            if (event.seq > since) yield event;
          }
        }
      }
      await changed;
    }
  } catch (error) {
    throw missingLog(error, threadId);
  } finally {
    changes.close();
    await handle?.close();
  }
}

/**
 * Lines from `position` on that have their line feed. What follows the last one is read again next time: a writer that
 * opens the log after a crash takes it off and writes something else there.
 */
async function* wholeLines(
  handle: FileHandle,
  position: number,
): AsyncGenerator<FileLine, void, undefined> {
  const splitter = new LineSplitter(position);
  for await (const chunk of readChunks(handle, position)) yield* splitter.push(chunk);
}

async function openIfThere(path: string): Promise<FileHandle | undefined> {
  try {
    return await open(path, 'r');
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

interface ChangeSource {
  /** Resolves at the next change after this call, after the poll interval, or when the signal aborts. */
  next(): Promise<void>;
  close(): void;
}

/** Watches the file's folder rather than the file: the file may come later. A folder that is missing is polled. */
function watchFolder(path: string, signal: AbortSignal): ChangeSource {
  let wake: (() => void) | undefined;
  const onChange = (): void => wake?.();
  let watcher: ReturnType<typeof watch> | undefined;
  const arm = (): void => {
    try {
      watcher ??= watch(dirname(path), { persistent: false }, onChange).on('error', onChange);
    } catch {
      // no folder yet, or no watches left: the poll goes on
    }
  };
  signal.addEventListener('abort', onChange);
  return {
    async next() {
      arm();
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, signal.aborted ? 0 : POLL_MS);
        wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    },
    close() {
      signal.removeEventListener('abort', onChange);
      wake?.();
      watcher?.close();
    },
  };
}
