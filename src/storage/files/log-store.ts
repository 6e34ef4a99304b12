import { createHash } from 'node:crypto';
import {
  closeSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  openSync,
  readSync,
  statSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import type { LogHeader } from '../../core/events.ts';
import { assertThreadId, type IdSource } from '../../core/ids.ts';
import {
  makeFolders,
  stageFile,
  syncFolder,
  writeFully,
  writeWhole,
} from '../../disk/whole-file.ts';
import { chainStart } from '../../log/checkpoint.ts';
import { encodeHeader } from '../../log/codec.ts';
import { LOG_START } from '../../log/cursor.ts';
import type {
  EntryLookup,
  LogStore,
  LogWriter,
  LogWriterOptions,
  OpenedLog,
  ProcessTable,
} from '../store.ts';
import { type Lease, readLease, takeLease } from './lease.ts';
import { readChunksSync } from './lines.ts';
import { archiveLog, isArchived } from './log-archive.ts';
import { lookUpByIndex, removeIndex, writeIndex } from './log-index.ts';
import { findPosition } from './log-position.ts';
import { missingLog, readLog, verifyLog } from './log-reader.ts';
import { scanLog } from './log-scan.ts';
import { archivedEvents, eventsSince, followLog, tailLog } from './log-tail.ts';
import { FileLogWriter, type WriterPosition } from './log-writer.ts';

export interface FileLogStoreOptions {
  /** The folder of all threads, `.ai/state/threads`. */
  readonly threadsPath: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly processes: ProcessTable;
}

/** Logs as `<threads>/<thread_id>/transcript.jsonl`, one writer each, held by a lease beside the file. */
export function createFileLogStore(options: FileLogStoreOptions): LogStore {
  const folderOf = (threadId: string): string => {
    assertThreadId(threadId);
    return join(options.threadsPath, threadId);
  };
  const pathOf = (threadId: string): string => join(folderOf(threadId), 'transcript.jsonl');
  return {
    create: (header, writer) => createLog(pathOf(header.thread_id), header, { ...options, writer }),
    reopen: (threadId, writer) => reopenLog(pathOf(threadId), threadId, { ...options, writer }),
    read: async (threadId) => await readWhole(pathOf(threadId), threadId, false),
    readEntries: async (threadId) => await readWhole(pathOf(threadId), threadId, true),
    lookUp: async (threadId, id) => await lookUp(pathOf(threadId), threadId, id),
    verify: async (threadId, verify) => await verifyLog(pathOf(threadId), threadId, verify),
    tail: async (threadId, count) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? await lastOf(archivedEvents(path, threadId, 0), count)
        : await tailLog(path, threadId, count);
    },
    since: (threadId, seq) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? archivedEvents(path, threadId, seq)
        : eventsSince(path, threadId, seq);
    },
    follow: (threadId, follow) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? archivedEvents(path, threadId, follow.since ?? 0)
        : followLog(path, { threadId, ...follow });
    },
    archive: async (threadId) => {
      const archived = await archiveLog(pathOf(threadId));
      removeIndex(pathOf(threadId));
      return archived;
    },
    isArchived: (threadId) => isArchived(pathOf(threadId)),
    hold: (threadId, owner, epoch) => {
      const { processes } = options;
      const folder = folderOf(threadId);
      const lease = onDisk(folder, () => takeLease({ folder, threadId, owner, epoch, processes }));
      return {
        release: () => lease.release(),
        open: (writer) => {
          assertThere(pathOf(threadId), threadId);
          return openUnder(lease, pathOf(threadId), threadId, { ...options, writer });
        },
      };
    },
    path: pathOf,
    holder(threadId) {
      const owner = readLease(folderOf(threadId))?.owner;
      return owner && options.processes.isAlive(owner) ? owner : undefined;
    },
  };
}

/** The last `count` of a stream; holds twice as many. */
async function lastOf<T>(items: AsyncIterable<T>, count: number): Promise<readonly T[]> {
  let last: T[] = [];
  if (count === 0) return last;
  for await (const item of items) {
    last.push(item);
    if (last.length === 2 * count) last = last.slice(count);
  }
  return last.slice(-count);
}

/** Sound logs are read fast; a log with a defect is read again with care. */
async function readWhole(path: string, threadId: string, entriesOnly: boolean): Promise<OpenedLog> {
  try {
    const scanned = await scanLog(path, threadId, { entriesOnly });
    return scanned ?? (await readLog(path, threadId));
  } catch (error) {
    throw missingLog(error, threadId);
  }
}

async function lookUp(path: string, threadId: string, id: string): Promise<EntryLookup> {
  const found = lookUpByIndex(path, threadId, id);
  if (typeof found === 'object') return { entry: found };
  const opened = await readWhole(path, threadId, true);
  // an index that knows nothing of an entry which is there is no good either
  if (found === 'stale' || opened.events.some((event) => event.id === id)) {
    writeIndex(path, threadId, opened);
  }
  return { opened };
}

interface OpenParts extends FileLogStoreOptions {
  readonly writer: LogWriterOptions;
}

function createLog(path: string, header: LogHeader, parts: OpenParts): LogWriter {
  const threadId = header.thread_id;
  const folder = dirname(path);
  const lease = onDisk(path, () => {
    makeFolders(folder, 0o700);
    return lend(folder, threadId, parts);
  });
  return openHeld(lease, path, (): LogWriter => {
    const fd = openNew(path, threadId);
    try {
      const line = Buffer.from(encodeHeader(header), 'utf8');
      writeFully(fd, line);
      syncCreation(fd, folder, parts.writer);
      const position: WriterPosition = {
        bytes: line.length,
        cursor: LOG_START,
        fileHash: createHash('sha256').update(line),
        segmentHash: createHash('sha256').update(line),
        segmentFrom: 0,
        prev: chainStart(threadId),
      };
      return writerOver({ path, threadId, fd, lease, position, parts });
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  });
}

/** An empty file is what a crash between creation and header leaves: it holds nothing and is taken over. */
function openNew(path: string, threadId: string): number {
  try {
    return openSync(path, 'ax', 0o600);
  } catch (error) {
    if (systemCodeOf(error) !== 'EEXIST') throw error;
    const target = statSync(path);
    // following a link would write to a file of somebody else's choice
    const isForeign = target.isFile() && lstatSync(path).isSymbolicLink();
    if (target.size === 0 && !isForeign) return openSync(path, 'a');
    throw new RyeError('already_exists', `thread ${threadId} already has a log`, {
      hint: 'Open it again to go on with it, or start a new thread.',
      details: { thread_id: threadId, path },
    });
  }
}

function assertThere(path: string, threadId: string): void {
  try {
    statSync(path);
  } catch (error) {
    throw missingLog(error, threadId);
  }
}

function reopenLog(path: string, threadId: string, parts: OpenParts): LogWriter {
  assertThere(path, threadId);
  const lease = onDisk(path, () => lend(dirname(path), threadId, parts));
  return openUnder(lease, path, threadId, parts);
}

function openUnder(lease: Lease, path: string, threadId: string, parts: OpenParts): LogWriter {
  return openHeld(lease, path, (): LogWriter => {
    if (lease.isFromLiving) moveToNewFile(path);
    const position = findPosition(path, threadId);
    const fd = openSync(path, 'a+');
    try {
      cutTornTail(path, fd, position.bytes);
      return writerOver({ path, threadId, fd, lease, position, parts });
    } catch (error) {
      closeSync(fd);
      throw error;
    }
  });
}

/** Puts a copy in the log's place, so that the descriptor of a stopped writer, should it wake up, leads nowhere. */
function moveToNewFile(path: string): void {
  const copy = stageFile(path);
  try {
    for (const chunk of readChunksSync(path)) copy.write(chunk);
    copy.commit();
  } finally {
    copy.discard();
  }
}

/** Moves what a crash left of the last record into `transcript.torn-<offset>`, then takes it off the log. */
function cutTornTail(path: string, fd: number, end: number): void {
  const length = statSync(path).size - end;
  if (length <= 0) return;
  const torn = Buffer.alloc(length);
  readSync(fd, torn, 0, length, end);
  writeWhole(join(dirname(path), `transcript.torn-${end}`), torn, { mode: 0o600 });
  ftruncateSync(fd, end);
  fsyncSync(fd);
}

function lend(folder: string, threadId: string, { writer, processes }: OpenParts): Lease {
  return takeLease({ folder, threadId, owner: writer.owner, epoch: writer.epoch, processes });
}

function writerOver({
  parts,
  ...rest
}: {
  readonly path: string;
  readonly threadId: string;
  readonly fd: number;
  readonly lease: Lease;
  readonly position: WriterPosition;
  readonly parts: OpenParts;
}): LogWriter {
  return new FileLogWriter({
    ...rest,
    options: parts.writer,
    clock: parts.clock,
    ids: parts.ids,
  });
}

/** A new file survives a power cut only once its folder is on the disk too. */
function syncCreation(fd: number, folder: string, { durability }: LogWriterOptions): void {
  if (durability === 'off') return;
  fsyncSync(fd);
  syncFolder(folder);
  syncFolder(dirname(folder));
}

/** Gives the lease back when opening fails. */
function openHeld<T>(lease: Lease, path: string, open: () => T): T {
  try {
    return onDisk(path, open);
  } catch (error) {
    lease.release();
    throw error;
  }
}

function onDisk<T>(path: string, effect: () => T): T {
  try {
    return effect();
  } catch (error) {
    const system = systemCodeOf(error);
    if (error instanceof RyeError || system === undefined) throw error;
    throw new RyeError('log_write_failed', `cannot open ${path} for writing: ${messageOf(error)}`, {
      hint: 'Check the permissions and the free space of the project folder.',
      details: { system },
      cause: error,
    });
  }
}
