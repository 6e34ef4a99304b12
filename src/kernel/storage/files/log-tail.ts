import { watch } from 'node:fs';
import { type FileHandle, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { systemCodeOf } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { openRegular } from '../../disk/regular-file.ts';
import { seqAt } from '../../log/codec.ts';
import { EventReader, eventsOf, lastOf, missingLog } from '../../log/reader.ts';
import {
  LineScanner,
  type LineVisitor,
  lineStartAfter,
  lineStartBefore,
} from '../../log/scanner.ts';
import type { FollowOptions } from '../store.ts';
import { readChunks, withFile } from './log-archive.ts';

const BLOCK_BYTES = 64 * 1024;

/** The last `count` events, read in blocks from the end: the cost is that of the tail, not of the log. */
export async function tailLog(
  path: string,
  threadId: string,
  count: number,
): Promise<readonly (LogEvent | UnknownEvent)[]> {
  return await withFile(path, async (handle) => {
    const { size } = await handle.stat();
    const start = await lineStartFromEnd(handle, size, count);
    return await lastOf(eventsOf(readChunks(handle, start), 0, start), count);
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
    let start = lineStartBefore(block, bytesRead);
    for (; start > 0; start = lineStartBefore(block, start - 1)) {
      seen += 1;
      if (seen > count) return from + start;
    }
    end = from;
  }
  return 0;
}

/** Events with a seq above `since`, in order. Costs O(events returned), not O(log). */
export async function* eventsSince(
  path: string,
  threadId: string,
  since: number,
): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
  let handle: FileHandle | undefined;
  try {
    handle = await openRegular(path);
    const start = await offsetAfter(handle, since);
    yield* eventsOf(readChunks(handle, start), since, start);
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
        const known = place && (await placeIn(handle, place));
        place = known ?? { position: await offsetAfter(handle, since), since };
        const reader = new FollowingReader(place);
        for await (const chunk of readChunks(handle, place.position)) {
          for (const event of reader.push(chunk)) {
            if (signal.aborted) return;
            yield event;
          }
        }
        place = reader.place;
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

/** The place of a follower in a log. */
interface FollowPlace {
  readonly position: number;
  /** Events up to this seq are not given out. */
  readonly since: number;
  /** The last line that was read. */
  readonly last?: { readonly offset: number; readonly bytes: Buffer } | undefined;
  /** The place of the last checkpoint, which a log keeps for ever. */
  readonly signed?: Pick<FollowPlace, 'position' | 'since'>;
}

/**
 * Reads on from a place. What follows the last line feed is read again next time: a writer that opens the log after a
 * crash takes it off and writes something else there.
 */
class FollowingReader implements LineVisitor {
  #place: FollowPlace;
  #events: (LogEvent | UnknownEvent)[] = [];
  readonly #scanner: LineScanner;
  readonly #reader: EventReader;

  constructor(place: FollowPlace) {
    this.#place = place;
    this.#scanner = new LineScanner([this], place.position);
    this.#reader = new EventReader({ event: (event, offset) => this.#take(event, offset) });
  }

  get place(): FollowPlace {
    return { ...this.#place, position: this.#scanner.offset };
  }

  /** Returns the new events in the lines that end in a chunk. */
  push(chunk: Uint8Array): readonly (LogEvent | UnknownEvent)[] {
    this.#events = [];
    this.#scanner.push(chunk);
    return this.#events;
  }

  lines(run: Buffer, offset: number): boolean {
    const start = lineStartBefore(run, run.length - 1);
    // a copy, because the memory of a run is used again
    const last = { offset: offset + start, bytes: Buffer.from(run.subarray(start)) };
    this.#reader.lines(run, offset);
    this.#place = { ...this.#place, last };
    return true;
  }

  oversized(): boolean {
    return true;
  }

  #take(event: LogEvent | UnknownEvent, offset: number): void {
    const { since } = this.#place;
    if (event.seq <= since) return;
    this.#events.push(event);
    if (event.event_type !== 'checkpoint') return;
    const signed = { position: offset, since: event.seq };
    this.#place = { ...signed, signed };
  }
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

/** The file at `path`, if it is there: a writer that takes a thread over puts a copy in the place of its log. */
async function currentHandle(
  path: string,
  handle: FileHandle | undefined,
): Promise<FileHandle | undefined> {
  try {
    const { ino } = await stat(path);
    if (handle && (await handle.stat()).ino === ino) return handle;
    const opened = await openRegular(path);
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
      // no folder yet, or no watches left: polling is enough
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

/** Bytes of one probe; also the span in which a scan costs no more than another probe. */
const PROBE_BYTES = 64 * 1024;

/**
 * Returns the start of a line at or shortly before the first event with a seq above `since`. Events are in the order of their
 * seq, so a few looks into the file find the place, and no index beside the log can be wrong about it.
 */
async function offsetAfter(handle: FileHandle, since: number): Promise<number> {
  if (since <= 0) return 0;
  const { size } = await handle.stat();
  let low = 0;
  let high = size;
  while (high - low > PROBE_BYTES) {
    const middle = low + Math.floor((high - low) / 2);
    const line = await firstLineBehind(handle, middle, high);
    if (line === undefined || line.seq > since) high = middle;
    else low = line.offset;
  }
  return low;
}

interface NumberedLine {
  readonly offset: number;
  readonly seq: number;
}

/** Finds the first event whose line starts after `from` and before `end`; skips damaged lines. */
async function firstLineBehind(
  handle: FileHandle,
  from: number,
  end: number,
): Promise<NumberedLine | undefined> {
  const probe = Buffer.allocUnsafe(PROBE_BYTES);
  for (let at = from; at < end; ) {
    const { bytesRead } = await handle.read(probe, 0, PROBE_BYTES, at);
    const bytes = probe.subarray(0, bytesRead);
    let next = lineStartAfter(bytes, 0);
    for (; next > 0 && at + next < end; next = lineStartAfter(bytes, next)) {
      const found = seqAt(bytes, next);
      // digits that the probe cuts off are another number
      if (found && found.end < bytes.length) return { offset: at + next, seq: found.seq };
    }
    if (bytesRead < PROBE_BYTES) return undefined;
    const last = lineStartBefore(bytes, bytesRead);
    // the next probe begins with the last line feed: the line after it may be there
    at += last === 0 ? bytesRead : Math.max(1, last - 1);
  }
  return undefined;
}
