import { closeSync, ftruncateSync, lstatSync, openSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import type { Clock } from '../../core/clock.ts';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import type { LogHeader } from '../../core/events.ts';
import { assertThreadId, type IdSource } from '../../core/ids.ts';
import { makeFolders } from '../../disk/folders.ts';
import { type FileSyncer, measuredSync } from '../../disk/measured-sync.ts';
import { syncFolderBy } from '../../disk/sync-folder.ts';
import { stageFile, writeFully } from '../../disk/whole-file.ts';
import { startPosition, type WriterPosition } from '../../log/position.ts';
import {
  eventsOf,
  type LogSource,
  lastOf,
  missingLog,
  readLog,
  readVerified,
  verifyLog,
} from '../../log/reader.ts';
import { type LogSink, openSigned, SignedLogWriter } from '../signed-writer.ts';
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
export function createFileLogStore(given: FileLogStoreOptions): LogStore {
  const options = {
    ...given,
    syncData: measuredSync(given.clock),
    syncAll: measuredSync(given.clock, 'all'),
  };
  const folderOf = (threadId: string): string => {
    assertThreadId(threadId);
    return join(options.threadsPath, threadId);
  };
  const pathOf = (threadId: string): string => join(folderOf(threadId), 'transcript.jsonl');
  const sourceOf = (threadId: string): LogSource => fileSource(pathOf(threadId), threadId);
  return {
    create: async (header, writer) => createLog(pathOf(header.thread_id), header, writer, options),
    reopen: async (threadId, writer) => reopenLog(pathOf(threadId), threadId, writer, options),
    read: async (threadId, part) =>
      await readLog(sourceOf(threadId), { ...part, entriesOnly: false }),
    readEntries: async (threadId, part) =>
      await readLog(sourceOf(threadId), { ...part, entriesOnly: true }),
    readVerified: async (threadId, { entriesOnly = false, ...verify }) =>
      await readVerified(sourceOf(threadId), { entriesOnly, ...verify }),
    lookUp: async (threadId, id) => await lookUp(sourceOf(threadId), id),
    verify: async (threadId, verify) => await verifyLog(sourceOf(threadId), verify),
    tail: async (threadId, count) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? await lastOf(eventsOf(sourceOf(threadId).chunks(), 0), count)
        : await tailLog(path, threadId, count);
    },
    since: (threadId, seq) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? eventsOf(sourceOf(threadId).chunks(), seq)
        : eventsSince(path, threadId, seq);
    },
    follow: (threadId, follow) => {
      const path = pathOf(threadId);
      return isArchived(path)
        ? eventsOf(sourceOf(threadId).chunks(), follow.since ?? 0)
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
    hold: async (threadId, owner, epoch, { staleMs } = {}) => {
      const { owners } = options;
      const folder = folderOf(threadId);
      const request = { folder, threadId, owner, epoch, owners, staleMs };
      const lease = onDisk(folder, () => takeLease(request));
      return {
        release: () => lease.release(),
        open: async (writer) => {
          const path = pathOf(threadId);
          assertThere(path, threadId);
          return openUnder({ path, threadId, lease, options: writer, store: options }, writer);
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

interface FileLogs extends FileLogStoreOptions {
  readonly syncData: FileSyncer;
  readonly syncAll: FileSyncer;
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

/** A log that is opened for writing, under its lease. */
interface Opening {
  readonly path: string;
  readonly threadId: string;
  readonly lease: Lease;
  readonly options: LogWriterOptions;
  readonly store: FileLogs;
}

function createLog(
  path: string,
  header: LogHeader,
  options: LogWriterOptions,
  store: FileLogs,
): LogWriter {
  const threadId = header.thread_id;
  const { owner, epoch } = options;
  const folder = dirname(path);
  const lease = onDisk(path, () => {
    makeFolders(folder, 0o700);
    return takeLease({ folder, threadId, owner, epoch, owners: store.owners });
  });
  return openHeld(
    lease,
    path,
    () => openNew(path, threadId),
    (fd) => {
      const position = startPosition(threadId, epoch);
      const writer = writerOver(fd, position, { path, threadId, lease, options, store }, true);
      writer.begin(header);
      return writer;
    },
  );
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

function reopenLog(
  path: string,
  threadId: string,
  options: LogReopenOptions,
  store: FileLogs,
): LogWriter {
  assertThere(path, threadId);
  const { owner, epoch } = options;
  const folder = dirname(path);
  const lease = onDisk(path, () =>
    takeLease({ folder, threadId, owner, epoch, owners: store.owners }),
  );
  return openUnder({ path, threadId, lease, options, store }, options);
}

function openUnder(opening: Opening, options: LogReopenOptions): LogWriter {
  const { path, threadId, lease } = opening;
  const open = (): number => {
    if (lease.isFromLiving) moveToNewFile(path);
    return openSync(path, 'a');
  };
  return openHeld(lease, path, open, (fd) =>
    openSigned(
      {
        location: path,
        threadId,
        chunks: () => readChunksSync(path),
        quarantine: (end) => quarantineTail(path, end),
        quarantined: () => quarantinedIn(dirname(path)),
        writerAt: (position) => writerOver(fd, position, opening),
      },
      options,
    ),
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

/** Writes to an open file (O_APPEND) under a lease. */
function writerOver(
  fd: number,
  position: WriterPosition,
  { path, threadId, lease, options, store: { clock, ids, syncData, syncAll } }: Opening,
  isNew = false,
): SignedLogWriter {
  // a new file survives a power failure only once its name is on the disk too
  let isNamed = !isNew;
  const sink: LogSink = {
    location: path,
    isAsync: true,
    assertHeld: () => lease.assertHeld(),
    write: (bytes) => writeFully(fd, bytes),
    truncate: (length) => ftruncateSync(fd, length),
    sync: () => {
      const synced = syncData(fd);
      if (isNamed) return synced;
      isNamed = true;
      if (synced === undefined) return syncFolderBy(dirname(path), syncAll);
      return synced.then(() => syncFolderBy(dirname(path), syncAll));
    },
    saveText: (text) => saveArtifact(path, threadId, text),
    close() {
      closeSync(fd);
      lease.release();
    },
  };
  return new SignedLogWriter({ threadId, sink, position, options, clock, ids });
}

/** Opens a file and makes its writer. Closes the file and gives the lease back if that fails. */
function openHeld<T>(lease: Lease, path: string, open: () => number, use: (fd: number) => T): T {
  let fd: number | undefined;
  try {
    return onDisk(path, () => {
      fd = open();
      return use(fd);
    });
  } catch (error) {
    if (fd !== undefined) closeSync(fd);
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
