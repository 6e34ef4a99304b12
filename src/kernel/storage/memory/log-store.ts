import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../core/clock.ts';
import { RyeError } from '../../core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../../core/events.ts';
import { assertThreadId, type IdSource } from '../../core/ids.ts';
import { writesLog } from '../../core/thread-errors.ts';
import { sha256Hex } from '../../log/checkpoint.ts';
import { startPosition, type WriterPosition } from '../../log/position.ts';
import {
  eventsOf,
  type LogSource,
  lastOf,
  measure,
  noLog,
  readLog,
  readVerified,
  verifyLog,
} from '../../log/reader.ts';
import { type LogSink, openSigned, SignedLogWriter } from '../signed-writer.ts';
import type {
  FollowOptions,
  LogHold,
  LogRange,
  LogReopenOptions,
  LogStore,
  LogWriter,
  LogWriterOptions,
  Owner,
  Owners,
  QuarantinedPart,
} from '../store.ts';

export interface MemoryLogStoreOptions {
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly owners: Owners;
  /** Called by `sync`; its promise delays durability. Default: memory is durable at once. */
  readonly onSync?: (() => Promise<void>) | undefined;
}

interface Lease {
  readonly owner: Owner;
  readonly epoch: number;
}

/** One thread's log. */
interface MemoryLog {
  bytes: Buffer;
  lease: Lease | undefined;
  archived: boolean;
  readonly quarantined: { readonly part: QuarantinedPart; readonly bytes: Buffer }[];
  readonly texts: Map<string, string>;
}

/** Interval at which a follower looks for new events, in milliseconds. */
const POLL_MS = 20;

/** Logs that live as long as the store: nothing is written to the disk. For tests and for short-lived programs. */
export class MemoryLogStore implements LogStore {
  readonly #options: MemoryLogStoreOptions;
  readonly #logs = new Map<string, MemoryLog>();

  constructor(options: MemoryLogStoreOptions) {
    this.#options = options;
  }

  async create(header: LogHeader, options: LogWriterOptions): Promise<LogWriter> {
    const threadId = header.thread_id;
    const log = this.#logOrNew(threadId);
    const lease = this.#take(threadId, options);
    if (log.bytes.length > 0) {
      this.#release(log, lease);
      throw new RyeError('already_exists', `thread ${threadId} already has a log`, {
        hint: 'Open it again to resume it, or start a new thread.',
        details: { thread_id: threadId },
      });
    }
    const position = startPosition(threadId, options.epoch);
    const writer = this.#writer(threadId, { log, lease, options, position });
    writer.begin(header);
    return writer;
  }

  async reopen(threadId: string, options: LogReopenOptions): Promise<LogWriter> {
    this.#require(threadId);
    return this.#open(threadId, this.#take(threadId, options), options);
  }

  read: LogStore['read'] = async (threadId, part) =>
    await readLog(this.#source(threadId), { ...part, entriesOnly: false });

  readEntries: LogStore['readEntries'] = async (threadId, part) =>
    await readLog(this.#source(threadId), { ...part, entriesOnly: true });

  readVerified: LogStore['readVerified'] = async (threadId, { entriesOnly = false, ...options }) =>
    await readVerified(this.#source(threadId), { entriesOnly, ...options });

  lookUp: LogStore['lookUp'] = async (threadId) => ({ opened: await this.readEntries(threadId) });

  verify: LogStore['verify'] = async (threadId, options) =>
    await verifyLog(this.#source(threadId), options);

  tail: LogStore['tail'] = async (threadId, count) =>
    await lastOf(eventsOf(this.#source(threadId).chunks(), 0), count);

  since: LogStore['since'] = (threadId, seq) => eventsOf(this.#source(threadId).chunks(), seq);

  async *follow(
    threadId: string,
    { since = 0, signal }: FollowOptions,
  ): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
    let last = since;
    while (!signal.aborted) {
      if (this.#written(threadId)) {
        for await (const event of eventsOf(this.#source(threadId).chunks(), last)) {
          if (signal.aborted) return;
          last = event.seq;
          yield event;
        }
      }
      await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  archive: LogStore['archive'] = async (threadId) => {
    const log = this.#require(threadId);
    log.archived = true;
    return { before: log.bytes.length, after: log.bytes.length };
  };

  isArchived: LogStore['isArchived'] = async (threadId) =>
    this.#written(threadId)?.archived ?? false;

  quarantined: LogStore['quarantined'] = async (threadId) =>
    (this.#logs.get(threadId)?.quarantined ?? []).map(({ part }) => part);

  size: LogStore['size'] = async (threadId) => {
    const log = this.#written(threadId);
    return log && !log.archived ? log.bytes.length : undefined;
  };

  async *bytes(
    threadId: string,
    { file, from = 0, end }: LogRange = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    const log = this.#logs.get(threadId);
    const part = log?.quarantined.find(({ part: { file: name } }) => name === file);
    const range = (file === undefined ? log : part)?.bytes.subarray(from, end);
    if (range && range.length > 0) yield range;
  }

  async hold(threadId: string, owner: Owner, epoch: number): Promise<LogHold> {
    const log = this.#require(threadId);
    const lease = this.#take(threadId, { owner, epoch });
    return {
      open: async (options) => this.#open(threadId, lease, options),
      release: () => this.#release(log, lease),
    };
  }

  location(threadId: string): string {
    return `memory:${threadId}`;
  }

  async holder(threadId: string): Promise<Owner | undefined> {
    const owner = this.#logs.get(threadId)?.lease?.owner;
    return owner && this.#options.owners.state(owner) !== 'gone' ? owner : undefined;
  }

  async heldEpoch(threadId: string): Promise<number> {
    return this.#logs.get(threadId)?.lease?.epoch ?? 0;
  }

  #logOrNew(threadId: string): MemoryLog {
    assertThreadId(threadId);
    const known = this.#logs.get(threadId);
    if (known) return known;
    const empty = { bytes: Buffer.alloc(0), lease: undefined, archived: false };
    const log = { ...empty, quarantined: [], texts: new Map<string, string>() };
    this.#logs.set(threadId, log);
    return log;
  }

  #written(threadId: string): MemoryLog | undefined {
    const log = this.#logs.get(threadId);
    return log && log.bytes.length > 0 ? log : undefined;
  }

  #require(threadId: string): MemoryLog {
    const log = this.#written(threadId);
    if (!log) throw noLog(threadId);
    return log;
  }

  #source(threadId: string): LogSource {
    const require = (): MemoryLog => this.#require(threadId);
    return {
      threadId,
      location: this.location(threadId),
      async *chunks(end) {
        yield require().bytes.subarray(0, end);
      },
    };
  }

  /** Takes the lease as the file store does: from an owner that is gone, or from one of a lower epoch. */
  #take(threadId: string, { owner, epoch }: Pick<LogWriterOptions, 'owner' | 'epoch'>): Lease {
    const log = this.#logOrNew(threadId);
    const { lease: held } = log;
    const isGone = held !== undefined && this.#options.owners.state(held.owner) === 'gone';
    if (held && !(held.epoch < epoch || (held.epoch === epoch && isGone))) {
      throw this.#locked(threadId, held);
    }
    log.lease = { owner, epoch };
    return log.lease;
  }

  #release(log: MemoryLog, lease: Lease): void {
    if (log.lease === lease) log.lease = undefined;
  }

  #locked(threadId: string, lease: Lease | undefined): RyeError {
    const who = lease
      ? `${this.#options.owners.describe(lease.owner)}, epoch ${lease.epoch},`
      : 'another process';
    return writesLog(threadId, who);
  }

  #open(threadId: string, lease: Lease, options: LogReopenOptions): LogWriter {
    const log = this.#require(threadId);
    try {
      return openSigned(
        {
          location: this.location(threadId),
          threadId,
          chunks: () => [log.bytes],
          quarantine: (end) => quarantine(log, end),
          quarantined: () => log.quarantined.map(({ part }) => part),
          writerAt: (position) => this.#writer(threadId, { log, lease, options, position }),
        },
        options,
      );
    } catch (error) {
      this.#release(log, lease);
      throw error;
    }
  }

  #writer(
    threadId: string,
    open: {
      readonly log: MemoryLog;
      readonly position: WriterPosition;
      readonly lease: Lease;
      readonly options: LogWriterOptions;
    },
  ): SignedLogWriter {
    const { clock, ids, onSync } = this.#options;
    const { log, position, lease, options } = open;
    const sink: LogSink = {
      location: this.location(threadId),
      isAsync: onSync !== undefined,
      assertHeld: () => {
        if (log.lease !== lease) throw this.#locked(threadId, log.lease);
      },
      write: (bytes) => {
        log.bytes = Buffer.concat([log.bytes, bytes]);
      },
      truncate: (length) => {
        log.bytes = log.bytes.subarray(0, length);
      },
      sync: () => onSync?.(),
      saveText: (text) => {
        const name = `${this.location(threadId)}/text-${sha256Hex(text).slice(0, 32)}`;
        log.texts.set(name, text);
        return name;
      },
      close: () => this.#release(log, lease),
    };
    return new SignedLogWriter({ threadId, sink, position, options, clock, ids });
  }
}

/** Moves what follows the first `end` bytes of a log out of it. */
function quarantine(log: MemoryLog, end: number): void {
  const bytes = log.bytes.subarray(end);
  log.bytes = log.bytes.subarray(0, end);
  const count = log.quarantined.filter(({ part }) => part.offset === end).length + 1;
  const suffix = count === 1 ? '' : `-${count}`;
  const file = `transcript.unverified-${end}${suffix}.jsonl`;
  const part = { offset: end, ...measure([bytes]), file };
  log.quarantined.push({ part, bytes });
}
