import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { LogWriter, Store } from '../../src/kernel/storage/store.ts';
import {
  delta,
  fulfilled,
  goneOwner,
  headerFor,
  type OpenStore,
  otherHost,
  T0,
  T1,
  threadParams,
  userMessage,
  writerOptions,
} from './fixtures.ts';

/** Appends and waits until that is durable, as a recorder does. */
async function durable(writer: LogWriter, drafts: readonly EventDraft[]): Promise<void> {
  writer.append(drafts);
  await writer.sync();
}

async function collected<T>(items: AsyncIterable<T>): Promise<T[]> {
  const all: T[] = [];
  for await (const item of items) all.push(item);
  return all;
}

const CALL = {
  event_type: 'tool_call_start',
  payload: { call_id: 'c', tool: 't', name: 't', input: {}, turn: 1 },
  durable: true,
} as const;

/** Logs: one writer, signed bytes, readers. */
export function logCases(open: OpenStore): void {
  it('go from create to verify', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners }, { durability: 'always' });
    const { verifier } = options;
    const writer = await logs.create(headerFor('a/b-1'), options);
    await durable(writer, [userMessage('one')]);
    await writer.close();
    const again = await logs.reopen('a/b-1', options);
    again.append([userMessage('two')]);
    again.checkpoint();
    const expected = again.state();
    await again.close();
    expect((await logs.read('a/b-1')).events.map(({ event_type }) => event_type)).toEqual([
      'checkpoint',
      'message',
      'checkpoint',
      'message',
      'checkpoint',
    ]);
    expect(await logs.verify('a/b-1', { verifier, expected })).toMatchObject({ ok: true });
    expect((await logs.tail('a/b-1', 1)).map(({ seq }) => seq)).toEqual([5]);
  });

  it('opens one writer at a time, and passes a log to a higher epoch', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { owner } = options;
    const writer = await logs.create(headerFor('t-1'), options);
    await expect(logs.create(headerFor('t-1'), options)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await expect(logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
    await expect(logs.hold('t-1', owner, 1)).rejects.toMatchObject({ code: 'thread_locked' });
    expect(await logs.holder('t-1')).toEqual(owner);
    expect(await logs.heldEpoch('t-1')).toBe(1);
    const taker = await logs.reopen('t-1', { ...options, epoch: 2 });
    await expect(durable(writer, [userMessage('late')])).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await durable(taker, [userMessage('mine')]);
    await taker.close();
    await taker.close();
    expect(await logs.holder('t-1')).toBeUndefined();
    expect(await logs.heldEpoch('t-1')).toBe(0);
    await expect(logs.create(headerFor('t-1'), options)).rejects.toMatchObject({
      code: 'already_exists',
    });
    await expect(logs.reopen('none', options)).rejects.toMatchObject({
      code: 'thread_not_found',
    });
  });

  it('keeps writers away while it is held, and opens under the hold', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { owner, verifier } = options;
    await (await logs.create(headerFor('t-1'), options)).close();
    const hold = await logs.hold('t-1', owner, 1);
    await expect(logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
    const writer = await hold.open(options);
    writer.append([userMessage('under the hold')]);
    await writer.close();
    await (await logs.hold('t-1', owner, 1)).release();
    expect(await logs.verify('t-1', { verifier })).toMatchObject({ ok: true });
  });

  it('reads parts, follows new events, and names no log that is missing', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { verifier } = options;
    expect(await logs.size('t-1')).toBeUndefined();
    await expect(logs.read('t-1')).rejects.toMatchObject({ code: 'thread_not_found' });
    await expect(logs.verify('t-1', { verifier })).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    const stop = new AbortController();
    const seen: number[] = [];
    const following = (async () => {
      for await (const { seq } of logs.follow('t-1', { since: 1, signal: stop.signal })) {
        seen.push(seq);
        if (seq === 5) stop.abort();
      }
    })();
    const writer = await logs.create(headerFor('t-1'), options);
    const [first] = writer.append([userMessage('one')]);
    writer.checkpoint();
    const end = writer.head.bytes;
    writer.append([userMessage('two')]);
    // only a durable draft must be synced before it is shown
    expect(writer.isSyncDue).toBe(false);
    await writer.close();
    await following;
    expect(seen).toEqual([2, 3, 4, 5]);
    const seqs: number[] = [];
    for await (const { seq } of logs.since('t-1', 3)) seqs.push(seq);
    expect(seqs).toEqual([4, 5]);
    expect((await logs.read('t-1', { end })).events).toHaveLength(3);
    expect((await logs.readEntries('t-1')).events.map(({ event_type }) => event_type)).toEqual([
      'message',
      'message',
    ]);
    const found = await logs.lookUp('t-1', first?.id ?? '');
    expect('entry' in found || found.opened.events.some(({ id }) => id === first?.id)).toBe(true);
    const bytes: Buffer[] = [];
    for await (const chunk of logs.bytes('t-1', { from: 1, end })) bytes.push(Buffer.from(chunk));
    expect(Buffer.concat(bytes)).toHaveLength(end - 1);
    expect(await logs.size('t-1')).toBeGreaterThan(end);
    expect(logs.location('t-1')).toContain('t-1');
  });

  it('reads what is signed in the pass that verifies it, and nothing of a log that is not what was signed', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { verifier } = options;
    await expect(logs.readVerified('t-1', { verifier })).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    const writer = await logs.create(headerFor('t-1'), options);
    const [first] = writer.append([userMessage('one')]);
    const { seq } = writer.head;
    writer.append([{ event_type: 'token_delta', payload: { text: 'a piece' } }]);
    expect(writer.isSigned).toBe(false);
    const whole = await logs.readVerified('t-1', { verifier });
    expect(whole.verdict).toMatchObject({ ok: true, events: seq });
    expect(whole.events.at(-1)?.seq).toBe(seq);
    expect(whole.events).toHaveLength(seq);
    const { events } = await logs.readVerified('t-1', { verifier, entriesOnly: true });
    expect(events).toEqual([first]);
    await writer.close();
    const expected = { bytes: 1, sha256: '', events: 1 };
    const changed = await logs.readVerified('t-1', { verifier, expected });
    expect(changed).toMatchObject({ verdict: { ok: false }, events: [] });
  });

  it('takes unsigned bytes off when it opens a log again, and records them', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners }, { owner: goneOwner({ owners }) });
    const { verifier } = options;
    const crashed = await logs.create(headerFor('t-1'), options);
    crashed.append([delta('a piece that no signature covers')]);
    expect(crashed.isSigned).toBe(false);
    const again = await logs.reopen('t-1', { ...options, owner: owners.self() });
    const parts = await logs.quarantined('t-1');
    expect(parts).toMatchObject([{ lines: 1 }]);
    const file = parts[0]?.file ?? '';
    let text = '';
    for await (const chunk of logs.bytes('t-1', { file })) text += chunk.toString('utf8');
    expect(text).toContain('no signature covers');
    await again.close();
    const { events } = await logs.read('t-1');
    expect(events.map(({ event_type }) => event_type)).toContain('log_quarantined');
    expect(await logs.verify('t-1', { verifier })).toMatchObject({
      ok: true,
      unverified_bytes: 0,
    });
  });

  it('shows a listener each line in the pass that verifies, also after a flaw', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { verifier } = options;
    const writer = await logs.create(headerFor('t-1'), options);
    for (const text of ['one', 'two', 'three']) await durable(writer, [userMessage(text)]);
    await writer.close();
    const whole: Buffer[] = [];
    for await (const chunk of logs.bytes('t-1')) whole.push(Buffer.from(chunk));
    const { verifier: stranger } = writerOptions({ owners });
    for (const keys of [verifier, stranger]) {
      let shown = '';
      const listener = {
        lines: (run: Buffer): boolean => {
          shown += run.toString();
          return true;
        },
        oversized: (): boolean => true,
      };
      const verdict = await logs.verify('t-1', { verifier: keys, listener });
      expect(verdict.ok).toBe(keys === verifier);
      expect(shown).toBe(Buffer.concat(whole).toString());
    }
  });

  it('archives a log that can still be read and verified', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { verifier } = options;
    const writer = await logs.create(headerFor('t-1'), options);
    writer.append([userMessage('one')]);
    await writer.close();
    expect(await logs.isArchived('t-1')).toBe(false);
    await logs.archive('t-1');
    expect(await logs.isArchived('t-1')).toBe(true);
    expect(await logs.size('t-1')).toBeUndefined();
    expect(await logs.verify('t-1', { verifier })).toMatchObject({ ok: true });
    expect((await logs.read('t-1')).events).toHaveLength(3);
  });

  it('asks for a sync after a durable event, unless it was synced in the append', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const writer = await logs.create(headerFor('t-1'), options);
    expect(writer).toMatchObject({ isSigned: true, leafId: null, threadId: 't-1' });
    const [message] = writer.append([userMessage('one')]);
    expect(writer.leafId).toBe(message?.id);
    writer.append([delta('a piece')]);
    expect(writer.isSigned).toBe(false);
    const [call] = writer.append([CALL]);
    expect(call).toMatchObject({ event_type: 'tool_call_start', thread_id: 't-1' });
    const pending = writer.sync();
    expect(writer).toMatchObject({ isSigned: true, isSyncDue: false });
    await pending;
    expect(writer.head).toMatchObject({ ...pick(writer.lastCheckpoint), epoch: 1 });
    expect(writer.state()).toMatchObject({ bytes: writer.head.bytes, events: writer.head.seq });
    await writer.close();
    expect(() => writer.append([userMessage('closed')])).toThrow(
      expect.objectContaining({ code: 'log_write_failed' }),
    );
    const { events, offsets, problems } = await logs.read('t-1');
    expect(events.map(({ seq }) => seq)).toEqual(events.map((_, index) => index + 1));
    expect(offsets).toHaveLength(events.length);
    expect(problems).toEqual([]);
  });

  it('opens a log for one of many that ask at once', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const created = await Promise.allSettled(
      [1, 2, 3].map(async () => await logs.create(headerFor('t-1'), options)),
    );
    expect(fulfilled(created, 'thread_locked')).toBe(1);
    const held = await Promise.allSettled(
      [2, 2].map(async (epoch) => await logs.reopen('t-1', { ...options, epoch })),
    );
    expect(fulfilled(held, 'thread_locked')).toBe(1);
    for (const outcome of [...held, ...created]) {
      if (outcome.status === 'fulfilled') await closeQuietly(outcome.value);
    }
    expect(await logs.holder('t-1')).toBeUndefined();
  });

  it('leaves the lease of an owner on another host to a higher epoch only', async () => {
    const { logs, owners } = await open();
    const elsewhere = otherHost({ owners });
    const options = writerOptions({ owners });
    await logs.create(headerFor('t-1'), { ...options, owner: elsewhere });
    expect(await logs.holder('t-1')).toEqual(elsewhere);
    await expect(logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
    await expect(logs.hold('t-1', owners.self(), 1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await (await logs.hold('t-1', owners.self(), 2)).release();
    expect(await logs.heldEpoch('t-1')).toBe(0);
  });

  it('remembers the epoch of an owner that is gone, and names no holder then', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    await logs.create(headerFor('t-1'), { ...options, owner: goneOwner({ owners }), epoch: 3 });
    expect(await logs.holder('t-1')).toBeUndefined();
    expect(await logs.heldEpoch('t-1')).toBe(3);
    await (await logs.reopen('t-1', { ...options, epoch: 3 })).close();
    expect(await logs.heldEpoch('t-1')).toBe(0);
    expect(await logs.heldEpoch('none')).toBe(0);
    expect(await logs.holder('none')).toBeUndefined();
  });

  it('finds a log that is shorter than its record, and one that another key signed', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    const { verifier } = options;
    const writer = await logs.create(headerFor('t-1'), options);
    await durable(writer, [userMessage('one')]);
    const { bytes, ...rest } = writer.state();
    await writer.close();
    const longer = { ...rest, bytes: bytes + 10 };
    expect(await logs.verify('t-1', { verifier, expected: longer })).toMatchObject({ ok: false });
    const { verifier: stranger } = writerOptions({ owners });
    expect(await logs.verify('t-1', { verifier: stranger })).toMatchObject({ ok: false });
    await expect(logs.reopen('t-1', { ...options, verifier: stranger })).rejects.toMatchObject({
      code: expect.stringMatching(/^(log|key)_/) as string,
    });
    expect(await logs.holder('t-1')).toBeUndefined();
  });

  it('keeps the logs of threads apart', async () => {
    const { logs, owners } = await open();
    const options = writerOptions({ owners });
    for (const id of ['a/b-1', 'a/b-2']) {
      const writer = await logs.create(headerFor(id), options);
      writer.append([userMessage(id)]);
      await writer.close();
    }
    for (const id of ['a/b-1', 'a/b-2']) {
      expect(JSON.stringify((await logs.read(id)).events)).toContain(id);
      expect((await logs.tail(id, 99)).every(({ thread_id }) => thread_id === id)).toBe(true);
    }
    expect(await collected(logs.bytes('none'))).toEqual([]);
    expect(await logs.quarantined('a/b-1')).toEqual([]);
  });
}

/** Logs after a crash in the middle of a write. */
export function tornLogCases(
  open: OpenStore,
  tear: (store: Store, threadId: string, text: string) => void | Promise<void>,
): void {
  it('reads a log with half a line at its end, and takes it off when the log is opened', async () => {
    const store = await open();
    const { logs } = store;
    const options = writerOptions(store);
    const { verifier } = options;
    const writer = await logs.create(headerFor('t-1'), options);
    await durable(writer, [userMessage('one')]);
    const { bytes } = writer.head;
    await writer.close();
    await tear(store, 't-1', '{"seq":4,"timest');
    const { events, problems } = await logs.read('t-1');
    expect(events).toHaveLength(3);
    expect(problems).toHaveLength(1);
    expect((await logs.tail('t-1', 1)).map(({ seq }) => seq)).toEqual([3]);
    expect(await logs.verify('t-1', { verifier })).toMatchObject({ unverified_bytes: 16 });
    const again = await logs.reopen('t-1', options);
    expect(await logs.quarantined('t-1')).toMatchObject([{ offset: bytes, bytes: 16, lines: 1 }]);
    await durable(again, [userMessage('two')]);
    await again.close();
    expect(await logs.verify('t-1', { verifier })).toMatchObject({
      ok: true,
      unverified_bytes: 0,
    });
  });
}

function pick(checkpoint: LogWriter['lastCheckpoint']): { readonly seq: number | undefined } {
  return { seq: checkpoint?.seq };
}

async function closeQuietly(writer: LogWriter): Promise<void> {
  try {
    await writer.close();
  } catch {
    // another owner has taken the log
  }
}

/** Heads: the end of the signed log, as its owner last reported it. */
export function headCases(open: OpenStore): void {
  const head = {
    thread_id: 'a-1',
    status: 'completed',
    epoch: 1,
    updated_at: T0,
    bytes: 10,
    sha256: 'x',
    events: 2,
    knowledge_sha256: null,
  } as const;

  it('keeps the newest head of a thread', async () => {
    const { heads } = await open();
    expect(await heads.find('a-1')).toBeUndefined();
    await heads.note(head);
    await heads.note({ ...head, bytes: 20, knowledge_sha256: 'k' });
    expect(await heads.find('a-1')).toEqual({ ...head, bytes: 20, knowledge_sha256: 'k' });
    expect(await heads.find('a-2')).toBeUndefined();
  });

  it('keeps the head that a heartbeat reported until another one is accepted', async () => {
    const { heads, registry, owners } = await open();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', owners.self(), T0);
    expect(await registry.signedHead('a-1')).toBeUndefined();
    expect(await registry.signedHead('none')).toBeUndefined();
    const reported = { bytes: 20, seq: 3, epoch: 1, sha256: 'y' };
    await registry.heartbeat('a-1', 1, T1, { head: reported });
    await registry.heartbeat('a-1', 1, T1);
    expect(await registry.signedHead('a-1')).toEqual(reported);
    await heads.accept({ ...head, bytes: 5 });
    expect(await heads.find('a-1')).toEqual({ ...head, bytes: 5 });
    expect(await registry.signedHead('a-1')).toBeUndefined();
  });
}
