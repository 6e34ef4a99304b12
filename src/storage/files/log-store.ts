import { createHash } from 'node:crypto';
import {
  closeSync,
  fdatasyncSync,
  fsyncSync,
  ftruncateSync,
  lstatSync,
  openSync,
  statSync,
} from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import type { LogHeader } from '../../core/events.ts';
import { assertThreadId, type IdSource } from '../../core/ids.ts';
import { makeFolders, stageFile, syncFolder, writeFully } from '../../disk/whole-file.ts';
import { encodeHeader } from '../../log/codec.ts';
import {
  eventsOf,
  type LogSource,
  lastOf,
  malformedLog,
  missingLog,
  readLog,
  verifyLog,
} from '../log-reader.ts';
import {
  emptyPosition,
  findPosition,
  type LogSink,
  SignedLogWriter,
  type WriterPosition,
} from '../signed-writer.ts';
import type {
  EntryLookup,
  LogReopenOptions,
  LogStore,
  LogWriter,
  LogWriterOptions,
  Owners,
} from '../store.ts';
import { type Lease, readLease, takeLease } from './lease.ts';
import { archiveLog, isArchived, logBytes, logChunks, readChunksSync } from './log-archive.ts';
import { lookUpByIndex, removeIndex, writeIndex } from './log-index.ts';
import { quarantinedIn, quarantineTail, saveArtifact } from './log-quarantine.ts';
import { eventsSince, followLog, tailLog } from './log-tail.ts';

export interface FileLogStoreOptions {
  /** The folder of all threads, `.ai/state/threads`. */
  readonly threadsPath: string;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly owners: Owners;
}

/** Logs as `<threads>/<thread_id>/transcript.jsonl`, one writer each, held by a lease beside the file. */
export function createFileLogStore(options: FileLogStoreOptions): LogStore {
  const folderOf = (threadId: string): string => {
    assertThreadId(threadId);
    return join(options.threadsPath, threadId);
  };
  const pathOf = (threadId: string): string => join(folderOf(threadId), 'transcript.jsonl');
  const sourceOf = (threadId: string): LogSource => fileSource(pathOf(threadId), threadId);
  return {
    create: async (header, writer) =>
      createLog(pathOf(header.thread_id), header, { ...options, writer }),
    reopen: async (threadId, writer) =>
      reopenLog(pathOf(threadId), threadId, { ...options, writer }),
    read: async (threadId, part) =>
      await readLog(sourceOf(threadId), { ...part, entriesOnly: false }),
    readEntries: async (threadId, part) =>
      await readLog(sourceOf(threadId), { ...part, entriesOnly: true }),
    lookUp: async (threadId, id) => await lookUp(sourceOf(threadId), id),
    verify: async (threadId, verify) => await verifyLog(sourceOf(threadId), verify),
    tail: async (threadId, count) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? await lastOf(eventsOf(sourceOf(threadId), 0), count)
        : await tailLog(path, threadId, count);
    },
    since: (threadId, seq) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? eventsOf(sourceOf(threadId), seq)
        : eventsSince(path, threadId, seq);
    },
    follow: (threadId, follow) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? eventsOf(sourceOf(threadId), follow.since ?? 0)
        : followLog(path, { threadId, ...follow });
    },
    archive: async (threadId) => {
      const archived = await archiveLog(pathOf(threadId));
      removeIndex(pathOf(threadId));
      return archived;
    },
    isArchived: async (threadId) => isArchived(pathOf(threadId)),
    quarantined: async (threadId) => quarantinedIn(folderOf(threadId)),
    size: async (threadId) => statSync(pathOf(threadId), { throwIfNoEntry: false })?.size,
    bytes: (threadId, { file, ...range } = {}) =>
      file === undefined
        ? logBytes(pathOf(threadId), range)
        : logBytes(join(folderOf(threadId), basename(file)), range),
    hold: async (threadId, owner, epoch) => {
      const { owners } = options;
      const folder = folderOf(threadId);
      const lease = onDisk(folder, () => takeLease({ folder, threadId, owner, epoch, owners }));
      return {
        release: () => lease.release(),
        open: async (writer) => {
          assertThere(pathOf(threadId), threadId);
          return openUnder(lease, pathOf(threadId), threadId, { ...options, writer });
        },
      };
    },
    location: pathOf,
    heldEpoch: async (threadId) => readLease(folderOf(threadId))?.epoch ?? 0,
    async holder(threadId) {
      const owner = readLease(folderOf(threadId))?.owner;
      return owner && options.owners.state(owner) !== 'gone' ? owner : undefined;
    },
  };
}

/** The log in a file, archived or not. */
function fileSource(path: string, threadId: string): LogSource {
  return {
    threadId,
    location: path,
    async *chunks(end) {
      try {
        yield* logChunks(path, end);
      } catch (error) {
        throw missingLog(error, threadId);
      }
    },
  };
}

async function lookUp(source: LogSource, id: string): Promise<EntryLookup> {
  const { location: path, threadId } = source;
  const found = lookUpByIndex(path, threadId, id);
  if (typeof found === 'object') return { entry: found };
  const opened = await readLog(source, { entriesOnly: true });
  // an index that lacks an entry of the log is stale too
  if (found === 'stale' || opened.events.some((event) => event.id === id)) {
    writeIndex(path, threadId, opened);
  }
  return { opened };
}

interface OpenParts extends FileLogStoreOptions {
  readonly writer: LogWriterOptions;
}

interface ReopenParts extends FileLogStoreOptions {
  readonly writer: LogReopenOptions;
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
      const writer = beginLog({ path, threadId, fd, lease, parts }, header);
      syncCreation(fd, folder, parts.writer);
      return writer;
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
    // a link could point to any file
    const isForeign = target.isFile() && lstatSync(path).isSymbolicLink();
    if (target.size === 0 && !isForeign) return openSync(path, 'a');
    throw new RyeError('already_exists', `thread ${threadId} already has a log`, {
      hint: 'Open it again to resume it, or start a new thread.',
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

function reopenLog(path: string, threadId: string, parts: ReopenParts): LogWriter {
  assertThere(path, threadId);
  const lease = onDisk(path, () => lend(dirname(path), threadId, parts));
  return openUnder(lease, path, threadId, parts);
}

function openUnder(lease: Lease, path: string, threadId: string, parts: ReopenParts): LogWriter {
  return openHeld(lease, path, (): LogWriter => {
    if (lease.isFromLiving) moveToNewFile(path);
    const found = findPosition(
      { location: path, threadId, verifier: parts.writer.verifier },
      readChunksSync(path),
    );
    if ('signedBytes' in found) {
      const { signedBytes, reason = '' } = found;
      if (signedBytes === 0 && !parts.writer.header) throw malformedLog(path, reason);
      quarantineTail(path, signedBytes);
    }
    return openSigned({ lease, path, threadId, parts });
  });
}

/** Opens a log that is signed up to its end. What was just quarantined, or by a recovery that died, is noted in it. */
function openSigned({
  lease,
  path,
  threadId,
  parts,
}: Omit<OverParts, 'fd'> & { readonly parts: ReopenParts }): LogWriter {
  const { header, verifier } = parts.writer;
  const isEmpty = statSync(path).size === 0;
  const fd = openSync(path, 'a+');
  try {
    const over = { path, threadId, fd, lease, parts };
    if (isEmpty && header) {
      const writer = beginLog(over, header);
      noteQuarantined(writer, dirname(path), 0);
      return writer;
    }
    const found = findPosition({ location: path, threadId, verifier }, readChunksSync(path));
    if ('signedBytes' in found) throw malformedLog(path, 'it changed while it was opened');
    const writer = writerOver({ ...over, position: found.position });
    noteQuarantined(writer, dirname(path), found.position.head.bytes);
    return writer;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
}

/** Records what was taken off a log at its present end. */
function noteQuarantined(writer: LogWriter, folder: string, end: number): void {
  const parts = quarantinedIn(folder).filter(({ offset }) => offset === end);
  writer.append(
    parts.map((payload) => ({ event_type: 'log_quarantined', payload, durable: true })),
  );
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

function lend(folder: string, threadId: string, { writer, owners }: OpenParts): Lease {
  return takeLease({ folder, threadId, owner: writer.owner, epoch: writer.epoch, owners });
}

interface OverParts {
  readonly path: string;
  readonly threadId: string;
  readonly fd: number;
  readonly lease: Lease;
  readonly parts: OpenParts;
}

/** Begins an empty file with its signed header. */
function beginLog(over: OverParts, header: LogHeader): LogWriter {
  const { epoch } = over.parts.writer;
  const fileHash = createHash('sha256');
  const writer = writerOver({
    ...over,
    position: emptyPosition(over.threadId, { epoch, fileHash }),
  });
  writer.begin(Buffer.from(encodeHeader(header), 'utf8'));
  return writer;
}

function writerOver({
  parts,
  position,
  threadId,
  ...open
}: OverParts & { readonly position: WriterPosition }): SignedLogWriter {
  const { writer: options, clock, ids } = parts;
  return new SignedLogWriter({
    threadId,
    sink: fileSink(threadId, open),
    position,
    options,
    clock,
    ids,
  });
}

/** Writes to an open file (O_APPEND) under a lease. */
function fileSink(
  threadId: string,
  { path, fd, lease }: Pick<OverParts, 'path' | 'fd' | 'lease'>,
): LogSink {
  return {
    location: path,
    isAsync: false,
    assertHeld: () => lease.assertHeld(),
    write: (bytes) => writeFully(fd, bytes),
    truncate: (length) => ftruncateSync(fd, length),
    sync: () => fdatasyncSync(fd),
    saveText: (text) => saveArtifact(path, threadId, text),
    close() {
      closeSync(fd);
      lease.release();
    },
  };
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
