import { randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { Clock } from '../../../kernel/core/clock.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../../../kernel/core/events.ts';
import { assertThreadId, type IdSource } from '../../../kernel/core/ids.ts';
import { writesLog } from '../../../kernel/core/thread-errors.ts';
import { sha256Hex } from '../../../kernel/log/checkpoint.ts';
import { startPosition, type WriterPosition } from '../../../kernel/log/position.ts';
import {
  eventsOf,
  type LogSource,
  lastOf,
  measure,
  noLog,
  readLog,
  readVerified,
  verifyLog,
} from '../../../kernel/log/reader.ts';
import { openSigned, SignedLogWriter } from '../../../kernel/storage/signed-writer.ts';
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
} from '../../../kernel/storage/store.ts';
import { LogCourier } from './log-courier.ts';
import type { Cut, HeadRow, LogRows, Opening } from './log-rows.ts';

export interface PostgresLogStoreOptions {
  readonly rows: LogRows;
  readonly clock: Clock;
  readonly ids: IdSource;
  readonly owners: Owners;
}

/** Interval at which a follower looks for new pieces, in milliseconds. */
const POLL_MS = 50;

/**
 * Logs as rows of PostgreSQL: pieces whose bytes together are `transcript.jsonl`. What a writer appends is sent at once, in
 * order, one piece at a time; `sync` waits until it is committed. The server only carries the bytes: readers and verifiers
 * check them as they check a file.
 */
export class PostgresLogStore implements LogStore {
  readonly #options: PostgresLogStoreOptions;
  readonly #rows: LogRows;
  readonly #couriers = new Map<string, LogCourier>();

  constructor(options: PostgresLogStoreOptions) {
    this.#options = options;
    this.#rows = options.rows;
  }

  async create(header: LogHeader, options: LogWriterOptions): Promise<LogWriter> {
    const threadId = header.thread_id;
    assertThreadId(threadId);
    const opening = await this.#take(threadId, options);
    const head = await this.#head(threadId);
    if (head && head.bytes > 0) {
      await this.#rows.release(opening);
      throw new RyeError('already_exists', `thread ${threadId} already has a log`, {
        hint: 'Open it again to resume it, or start a new thread.',
        details: { thread_id: threadId },
      });
    }
    const position = startPosition(threadId, options.epoch);
    const writer = this.#writer({ opening, options, position });
    writer.begin(header);
    return writer;
  }

  async reopen(threadId: string, options: LogReopenOptions): Promise<LogWriter> {
    await this.#require(threadId);
    return await this.#open(await this.#take(threadId, options), options);
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

  tail: LogStore['tail'] = async (threadId, count) => {
    await this.#require(threadId);
    // one more, because half a line at the end counts as none
    const from = await this.#rows.startOfLast(threadId, count + 1);
    return await lastOf(eventsOf(this.#pieces(threadId, { from }), 0, from), count);
  };

  async *since(threadId: string, seq: number): AsyncGenerator<LogEvent | UnknownEvent, void> {
    await this.#require(threadId);
    // the header is the line before the first event
    const from = await this.#rows.startOfLine(threadId, seq);
    yield* eventsOf(this.#pieces(threadId, { from }), seq, from);
  }

  async *follow(
    threadId: string,
    { since = 0, signal }: FollowOptions,
  ): AsyncGenerator<LogEvent | UnknownEvent, void, undefined> {
    let last = since;
    let from = 0;
    while (!signal.aborted) {
      const page = await this.#rows.page(threadId, from);
      for (const { start, data } of page) {
        for await (const event of eventsOf(once(data), last, start)) {
          if (signal.aborted) return;
          last = event.seq;
          yield event;
        }
        from = start + data.length;
      }
      if (page.length === 0) await sleep(POLL_MS, undefined, { signal }).catch(() => undefined);
    }
  }

  archive: LogStore['archive'] = async (threadId) => {
    const { bytes } = await this.#require(threadId);
    await this.#rows.archive(threadId);
    return { before: bytes, after: bytes };
  };

  isArchived: LogStore['isArchived'] = async (threadId) =>
    (await this.#head(threadId))?.archived ?? false;

  quarantined: LogStore['quarantined'] = async (threadId) => {
    await this.#sent(threadId);
    return await this.#rows.quarantined(threadId);
  };

  size: LogStore['size'] = async (threadId) => {
    const head = await this.#head(threadId);
    return head && !head.archived && head.bytes > 0 ? head.bytes : undefined;
  };

  async *bytes(
    threadId: string,
    { file, from = 0, end }: LogRange = {},
  ): AsyncGenerator<Buffer, void, undefined> {
    if (file === undefined) {
      yield* this.#pieces(threadId, { from, end });
      return;
    }
    const bytes = await this.#rows.quarantinedBytes(threadId, file);
    const range = bytes?.subarray(from, end);
    if (range && range.length > 0) yield range;
  }

  async hold(threadId: string, owner: Owner, epoch: number): Promise<LogHold> {
    await this.#require(threadId);
    const opening = await this.#take(threadId, { owner, epoch });
    return {
      open: async (options) => await this.#open(opening, options),
      release: async () => await this.#rows.release(opening),
    };
  }

  location(threadId: string): string {
    return `postgres:${threadId}`;
  }

  async holder(threadId: string): Promise<Owner | undefined> {
    const id = (await this.#head(threadId))?.holder;
    if (typeof id !== 'string') return undefined;
    return this.#options.owners.state({ id }) === 'gone' ? undefined : { id };
  }

  async heldEpoch(threadId: string): Promise<number> {
    const head = await this.#head(threadId);
    return typeof head?.lease === 'string' ? head.epoch : 0;
  }

  /** Resolves once what writers of this process have appended is committed, or lost. */
  async #sent(threadId: string): Promise<void> {
    await this.#couriers.get(threadId)?.settled();
  }

  async #head(threadId: string): Promise<HeadRow | undefined> {
    await this.#sent(threadId);
    return await this.#rows.head(threadId);
  }

  async #require(threadId: string): Promise<HeadRow> {
    const head = await this.#head(threadId);
    if (!head || head.bytes === 0) throw noLog(threadId);
    return head;
  }

  #source(threadId: string): LogSource {
    const require = async (): Promise<HeadRow> => await this.#require(threadId);
    const pieces = (end: number | undefined): AsyncGenerator<Buffer, void> =>
      this.#pieces(threadId, { end });
    return {
      threadId,
      location: this.location(threadId),
      async *chunks(end) {
        await require();
        yield* pieces(end);
      },
    };
  }

  async *#pieces(
    threadId: string,
    { from = 0, end = Number.POSITIVE_INFINITY }: { from?: number; end?: number | undefined },
  ): AsyncGenerator<Buffer, void> {
    await this.#sent(threadId);
    let at = from;
    while (at < end) {
      const page = await this.#rows.page(threadId, at);
      if (page.length === 0) return;
      for (const { start, data } of page) {
        const piece = data.subarray(Math.max(0, at - start), Math.max(0, end - start));
        if (piece.length > 0) yield piece;
        at = start + data.length;
        if (at >= end) return;
      }
    }
  }

  /** Takes the lease as the file store does: from an owner or a worker that is gone, or from one of a lower epoch. */
  async #take(
    threadId: string,
    { owner, epoch }: Pick<LogWriterOptions, 'owner' | 'epoch'>,
  ): Promise<Opening> {
    const opening = { threadId, lease: randomUUID() };
    for (;;) {
      const held = await this.#head(threadId);
      const before = held?.lease ?? null;
      const holder = held?.holder ?? null;
      if (held && before !== null && holder !== null) {
        const isGone = held.is_removed || this.#options.owners.state({ id: holder }) === 'gone';
        if (!(held.epoch < epoch || (held.epoch === epoch && isGone))) {
          throw this.#locked(threadId, { id: holder }, held.epoch);
        }
      }
      if (await this.#rows.take(opening, { epoch, holder: owner.id, before })) return opening;
    }
  }

  #locked(threadId: string, holder: Owner, epoch: number): RyeError {
    const who = `${this.#options.owners.describe(holder)}, epoch ${epoch},`;
    return writesLog(threadId, who);
  }

  async #open(opening: Opening, options: LogReopenOptions): Promise<LogWriter> {
    const { threadId } = opening;
    try {
      let chunks: readonly Buffer[] = await collect(this.#pieces(threadId, {}));
      let parts = await this.quarantined(threadId);
      const cuts: Cut[] = [];
      const before = async (): Promise<void> => {
        for (const cut of cuts) await this.#rows.cut(opening, cut);
      };
      const writer = openSigned(
        {
          location: this.location(threadId),
          threadId,
          chunks: () => chunks,
          quarantine: (end) => {
            const cut = cutAt(chunks, end, parts);
            cuts.push(cut);
            chunks = cut.kept;
            parts = [...parts, cut.part];
          },
          quarantined: () => parts,
          writerAt: (position) => this.#writer({ opening, options, position, before }),
        },
        options,
      );
      await this.#sent(threadId);
      return writer;
    } catch (error) {
      await this.#rows.release(opening);
      throw error;
    }
  }

  #writer({ opening, options, position, before }: OpenWriter): SignedLogWriter {
    const { clock, ids } = this.#options;
    const { threadId } = opening;
    const courier = new LogCourier({
      before,
      start: position.head.bytes,
      send: async (start, bytes) => await this.#rows.append(opening, start, bytes),
      committed: async () => await this.#rows.committed(opening),
    });
    this.#couriers.set(threadId, courier);
    const sink = {
      location: this.location(threadId),
      isAsync: true,
      assertHeld: () => courier.assertUsable(),
      write: (bytes: Buffer) => courier.add(bytes),
      // nothing is half written: a piece is committed or not
      truncate: () => undefined,
      sync: async () => await courier.flush(),
      saveText: (text: string) => {
        const name = `text-${sha256Hex(text).slice(0, 32)}.txt`;
        courier.first(async () => await this.#rows.saveText(threadId, name, text));
        return `${this.location(threadId)}/${name}`;
      },
      close: async () => {
        await courier.settled();
        if (this.#couriers.get(threadId) === courier) this.#couriers.delete(threadId);
        await this.#rows.release(opening);
      },
    };
    return new SignedLogWriter({ threadId, sink, position, options, clock, ids });
  }
}

interface OpenWriter {
  readonly opening: Opening;
  readonly options: LogWriterOptions;
  readonly position: WriterPosition;
  /** Done before the first piece is sent. */
  readonly before?: () => Promise<void>;
}

function cutAt(chunks: readonly Buffer[], end: number, parts: readonly QuarantinedPart[]): Cut {
  const all = Buffer.concat(chunks);
  const bytes = all.subarray(end);
  const count = parts.filter(({ offset }) => offset === end).length + 1;
  const file = `transcript.unverified-${end}${count === 1 ? '' : `-${count}`}.jsonl`;
  return { kept: [all.subarray(0, end)], bytes, part: { offset: end, ...measure([bytes]), file } };
}

async function* once(chunk: Buffer): AsyncGenerator<Buffer, void> {
  yield chunk;
}

async function collect(chunks: AsyncIterable<Buffer>): Promise<Buffer[]> {
  const all: Buffer[] = [];
  for await (const chunk of chunks) all.push(chunk);
  return all;
}
