import { watch } from 'node:fs';
import type { FileHandle } from 'node:fs/promises';
import { open, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemCodeOf } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { EventReader, type FileLine, LineSplitter, missingLog, newEvents } from '../log-reader.ts';
import type { FollowOptions } from '../store.ts';
import { readChunks, withFile } from './lines.ts';
import { offsetBehind } from './log-seek.ts';

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
    const text = block.subarray(0, bytesRead);
    for (let at = text.lastIndexOf(LF); at !== -1; at = lineFeedBefore(text, at)) {
      seen += 1;
      if (seen > count) return from + at + 1;
    }
    end = from;
  }
  return 0;
}

function lineFeedBefore(bytes: Buffer, at: number): number {
  return at === 0 ? -1 : bytes.lastIndexOf(LF, at - 1);
}

/** Events with a seq above `since`, in order: the cost is that of what is given out, not of the log. */
export async function* eventsSince(
  path: string,
  threadId: string,
  since: number,
): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
  let handle: FileHandle | undefined;
  try {
    handle = await open(path, 'r');
    const start = await offsetBehind(handle, since);
    for await (const line of wholeLines(handle, start)) yield* newEvents(line, since);
  } catch (error) {
    throw missingLog(error, threadId);
  } finally {
    await handle?.close();
  }
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
  let place: FollowPlace | undefined;
  try {
    while (!signal.aborted) {
      const changed = changes.next();
      handle = await currentHandle(path, handle);
      if (handle) {
        const found = place && (await placeIn(handle, place));
        place = found ?? { position: await offsetBehind(handle, since), since };
        for await (const line of wholeLines(handle, place.position)) {
          for (const event of newEvents(line, place.since)) {
            if (signal.aborted) return;
            yield event;
            if (event.event_type === 'checkpoint') place = signedPlace(line, event.seq);
          }
          place = { ...place, position: line.offset + line.length, last: keptLine(line) };
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

/** How far a follower has come. */
interface FollowPlace {
  readonly position: number;
  /** Events up to this seq are not given out. */
  readonly since: number;
  /** The last line that was read. */
  readonly last?: { readonly offset: number; readonly bytes: Buffer } | undefined;
  /** The place after the last checkpoint, which a log keeps for ever. */
  readonly signed?: Pick<FollowPlace, 'position' | 'since'>;
}

function signedPlace(line: FileLine, seq: number): FollowPlace {
  const signed = { position: line.offset + line.length, since: seq };
  return { ...signed, signed };
}

/** A copy, because the memory of a line is used again. */
function keptLine({ offset, bytes }: FileLine): FollowPlace['last'] {
  return bytes && { offset, bytes: Buffer.from(bytes) };
}

/**
 * The place from which to read on. A writer that opens the log after a crash takes unsigned lines off and writes other
 * ones there: if the last line is no longer where it was, the lines after the last checkpoint are new.
 */
async function placeIn(handle: FileHandle, place: FollowPlace): Promise<FollowPlace | undefined> {
  const { last, signed } = place;
  if (!last) return place;
  const { buffer } = await handle.read(
    Buffer.alloc(last.bytes.length),
    0,
    last.bytes.length,
    last.offset,
  );
  if (buffer.equals(last.bytes)) return place;
  return signed && { ...signed, signed };
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

/** The file at `path`, if it is there: a writer that takes a thread over puts a copy in the place of its log. */
async function currentHandle(
  path: string,
  handle: FileHandle | undefined,
): Promise<FileHandle | undefined> {
  try {
    const { ino } = await stat(path);
    if (handle && (await handle.stat()).ino === ino) return handle;
    const opened = await open(path, 'r');
    await handle?.close();
    return opened;
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return handle;
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
