import {
  appendFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import { sha256Hex } from '../../src/kernel/log/checkpoint.ts';
import { MAX_LINE_BYTES } from '../../src/kernel/log/codec.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import type { OpenedLog } from '../../src/kernel/storage/store.ts';
import { delta, headerFor, userMessage } from '../log/support.ts';
import { key, openTestStore, temporaryFolder } from './support.ts';

const store = openTestStore();
const { logs } = store;
let threads = 0;

/** Returns a new thread id for each test. */
function newThread(): string {
  threads += 1;
  return `demo/count-${threads}`;
}

/** Every batch is followed by a checkpoint, which most tests don't look at. */
function withoutCheckpoints(events: OpenedLog['events']): OpenedLog['events'] {
  return events.filter(({ event_type: type }) => type !== 'checkpoint');
}

async function create(threadId = newThread()): Promise<ReturnType<typeof logs.create>> {
  return await logs.create(headerFor(threadId), store.writer());
}

describe('writing', () => {
  it('writes the header and each batch, and returns the events', async () => {
    const writer = await create();
    const events = writer.append([userMessage('a'), delta('x'), userMessage('b')]);
    expect(events.map(({ seq, id, parent_id }) => [seq, id, parent_id])).toEqual([
      [2, '0000000000000001', null],
      [3, undefined, undefined],
      [4, '0000000000000002', '0000000000000001'],
    ]);
    expect(writer.leafId).toBe('0000000000000002');
    const log = await logs.read(writer.threadId);
    expect(log).toMatchObject({ header: headerFor(writer.threadId), problems: [] });
    expect(withoutCheckpoints(log.events)).toEqual(events);
    expect(log.events.map(({ event_type: type }) => type)).toEqual([
      'checkpoint',
      'message',
      'token_delta',
      'message',
      'checkpoint',
    ]);
    const bytes = readFileSync(logs.location(writer.threadId));
    expect(log.offsets.map((offset) => bytes.subarray(offset, offset + 8).toString())).toEqual([
      '{"seq":1',
      '{"seq":2',
      '{"seq":3',
      '{"seq":4',
      '{"seq":5',
    ]);
    expect(writer.append([])).toEqual([]);
    await writer.close();
  });

  // Requirement: append-scans-all
  it('reads nothing back while it appends', async () => {
    const bytesRead = (): number =>
      Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
    const writer = await create();
    for (let at = 0; at < 200; at += 1) writer.append([userMessage('x'.repeat(1000))]);
    const before = bytesRead();
    for (let at = 0; at < 50; at += 1) writer.append([userMessage('y')]);
    // one look at the log so far would be four times that
    expect(bytesRead() - before).toBeLessThan(50_000);
    await writer.close();
  });

  it('names length, hash and count, and checkpoints verify against them', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    writer.checkpoint();
    writer.append([delta('b')]);
    await writer.sync();
    await writer.sync();
    const state = writer.state();
    await writer.close();
    const bytes = readFileSync(logs.location(writer.threadId));
    expect(state).toEqual({ bytes: bytes.length, sha256: sha256Hex(bytes), events: 5 });
    const verified = await logs.verify(writer.threadId, {
      verifier: key.verifier,
      expected: state,
    });
    expect(verified).toMatchObject({ ok: true, checkpoints: 3, unverified_bytes: 0, events: 5 });
  });

  it('keeps private what it creates', async () => {
    const writer = await create();
    await writer.close();
    expect(statSync(logs.location(writer.threadId)).mode & 0o077).toBe(0);
    expect(statSync(dirname(logs.location(writer.threadId))).mode & 0o077).toBe(0);
  });

  it('refuses to create a log twice, and takes over an empty file that a crash left', async () => {
    const writer = await create();
    await writer.close();
    await expect(create(writer.threadId)).rejects.toThrow(/already has a log/);
    expect(await logs.holder(writer.threadId)).toBeUndefined();
    truncateSync(logs.location(writer.threadId));
    const again = await create(writer.threadId);
    again.append([userMessage('a')]);
    await again.close();
  });

  it('moves the long texts of an event over 16 MiB to artifacts, each once, and names their paths', async () => {
    const writer = await create();
    const long = `begin ${'€'.repeat(MAX_LINE_BYTES / 3)} end`;
    const result = { role: 'tool_result', call_id: 'call_1', name: 'x', outcome: 'ok' } as const;
    const image = { type: 'image', data: 'A'.repeat(100_000), media_type: 'image/png' } as const;
    const content = [{ type: 'text', text: long }, { type: 'text', text: 'short' }, image] as const;
    const events = writer.append([
      userMessage('a'),
      userMessage(long),
      { event_type: 'message', payload: { message: { ...result, content } } },
    ]);
    writer.checkpoint();
    await writer.close();
    const folder = dirname(logs.location(writer.threadId));
    const names = readdirSync(join(folder, 'artifacts'));
    expect(names).toHaveLength(2);
    const texts = names.map((name) => readFileSync(join(folder, 'artifacts', name), 'utf8'));
    expect(new Set(texts)).toEqual(new Set([long, image.data]));
    const log = await logs.read(writer.threadId);
    expect(log.problems).toEqual([]);
    expect(withoutCheckpoints(log.events)).toEqual(events);
    const name = names[texts.indexOf(long)];
    const reference = `of ${Buffer.byteLength(long)} bytes; all of it is in .ai/state/threads/${writer.threadId}/artifacts/${name})`;
    const [shown] = events.slice(2);
    expect(shown).toMatchObject({
      payload: {
        message: {
          ...result,
          content: [
            { type: 'text', text: expect.stringMatching(/^begin €+\n… \(the first 2046 of /) },
            { type: 'text', text: 'short' },
            { type: 'text', text: expect.stringContaining('base64 in .ai/state/threads/') },
          ],
        },
      },
    });
    expect(JSON.stringify(events[1])).toContain(reference);
    expect(JSON.stringify(shown)).toContain(reference);
    expect(await logs.verify(writer.threadId, { verifier: key.verifier })).toMatchObject({
      ok: true,
    });
  });

  it('writes no artifact through a link in place of the folder', async () => {
    const writer = await create();
    const elsewhere = temporaryFolder();
    symlinkSync(elsewhere, join(dirname(logs.location(writer.threadId)), 'artifacts'));
    expect(() => writer.append([userMessage('x'.repeat(MAX_LINE_BYTES))])).toThrow(
      expect.objectContaining({ code: 'path_denied' }),
    );
    expect(readdirSync(elsewhere)).toEqual([]);
    await writer.close();
  });

  it('refuses an event over 16 MiB without long texts before writing, and stays usable', async () => {
    const writer = await create();
    const blocks = Array.from({ length: 300 }, () => ({
      type: 'text' as const,
      text: 'x'.repeat(60_000),
    }));
    const many: EventDraft = {
      event_type: 'message',
      payload: { message: { role: 'user', content: blocks } },
    };
    expect(() => writer.append([userMessage('a'), many])).toThrow(
      expect.objectContaining({
        code: 'log_write_failed',
        message: expect.stringContaining('16777216'),
      }),
    );
    writer.append([userMessage('b')]);
    await writer.close();
    const { events } = await logs.read(writer.threadId);
    expect(withoutCheckpoints(events).map(({ seq }) => seq)).toEqual([2]);
  });

  // Requirement: folders-share-sessions
  it('keeps apart what projects have whose paths differ by a stroke alone', async () => {
    const base = temporaryFolder();
    const projects = ['a/b-c', 'a-b/c', 'a/b/c', 'a-b-c'].map((name) => join(base, name));
    for (const project of projects) {
      const own = openTestStore(project);
      const writer = await own.logs.create(headerFor('same/thread'), own.writer());
      writer.append([userMessage(project)]);
      await writer.close();
    }
    for (const project of projects) {
      const { events } = await openTestStore(project).logs.read('same/thread');
      expect(withoutCheckpoints(events)).toMatchObject([
        { payload: { message: { content: [{ type: 'text', text: project }] } } },
      ]);
    }
  });

  it('refuses ids that leave the folder', () => {
    expect(() => logs.location('../x')).toThrow(
      expect.objectContaining({ code: 'invalid_thread_id' }),
    );
  });

  it('is over after close, and closing twice is nothing', async () => {
    const writer = await create();
    await writer.close();
    await writer.close();
    expect(() => writer.append([userMessage('a')])).toThrow(
      expect.objectContaining({ code: 'log_write_failed' }),
    );
  });
});

describe('signing', () => {
  const assistant: EventDraft = {
    event_type: 'message',
    payload: {
      message: {
        role: 'assistant',
        content: [],
        provider: 'p',
        model: 'm',
        stop_reason: 'end',
        usage: { input_tokens: 1, output_tokens: 1, cache_read_tokens: 0, cache_write_tokens: 0 },
      },
    },
  };
  const turn: EventDraft = { event_type: 'turn_started', payload: { turn: 1 } };
  const settled: EventDraft = {
    event_type: 'tool_settled',
    payload: { call_id: 'a', tool: 'rye/x', outcome: 'ok', duration_ms: 1, output_bytes: 1 },
  };
  const cost: EventDraft = {
    event_type: 'cost',
    payload: { turn: 1, usage: NO_USAGE, total: NO_COST },
  };

  it.each([
    ['a tool result or a person', userMessage('x'), true],
    ['a begun turn', turn, true],
    ['streamed text', delta('x'), false],
    ['the end of a call', settled, true],
    ['the end of a call that only reads', { ...settled, repeatable: true }, false],
    ['the result of a call that only reads', { ...userMessage('x'), repeatable: true }, false],
    ['the cost of a turn', cost, false],
    ['an answer', assistant, false],
    ['an answer that is durable', { ...assistant, durable: true }, true],
  ])('covers a batch in the same write, or waits: %s', async (_, draft, isSigned) => {
    const writer = await create();
    writer.append([draft]);
    expect(writer.isSigned).toBe(isSigned);
    // what a kill leaves
    const verified = await logs.verify(writer.threadId, { verifier: key.verifier });
    expect(verified).toMatchObject({ ok: true, events: isSigned ? 3 : 1 });
    expect(verified.head).toEqual(writer.head);
    await writer.sync();
    const synced = await logs.verify(writer.threadId, { verifier: key.verifier });
    expect(synced).toMatchObject({ ok: true, unverified_bytes: 0, head: writer.head });
    await writer.close();
  });

  it('never steps back to an earlier epoch', async () => {
    const writer = await logs.create(headerFor(newThread()), store.writer({ epoch: 5 }));
    await writer.close();
    // as in a rebuilt registry
    const again = await logs.reopen(writer.threadId, store.writer({ epoch: 1 }));
    again.append([userMessage('a')]);
    await again.close();
    expect(await logs.verify(writer.threadId, { verifier: key.verifier })).toMatchObject({
      ok: true,
      unverified_bytes: 0,
      head: { epoch: 5 },
    });
  });

  it('is noted for a tail that a recovery moved and had no time to note', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    const { bytes } = writer.state();
    await writer.close();
    const file = `transcript.unverified-${bytes}.jsonl`;
    writeFileSync(join(dirname(logs.location(writer.threadId)), file), '{"seq":4}\ntorn');
    await (await logs.reopen(writer.threadId, store.writer())).close();
    await (await logs.reopen(writer.threadId, store.writer())).close();
    const { events } = await logs.read(writer.threadId);
    expect(events.filter(({ event_type: type }) => type === 'log_quarantined')).toMatchObject([
      { payload: { offset: bytes, bytes: 14, lines: 2, file } },
    ]);
  });
});

describe('reopening', () => {
  // Requirement: checkpoint-rereads-log
  it('continues seq, leaf, hash and chain', async () => {
    const writer = await create();
    const [first] = writer.append([userMessage('a'), userMessage('b')]);
    writer.append([{ event_type: 'leaf', payload: { target_id: first?.id ?? '' } }, delta('x')]);
    writer.checkpoint();
    writer.append([delta('late'), delta('later')]);
    await writer.close();
    const before = writer.state();
    const again = await logs.reopen(writer.threadId, store.writer({ epoch: 2 }));
    expect(again.state()).toEqual(before);
    expect(again.leafId).toBe(first?.id);
    const [next] = again.append([userMessage('c')]);
    expect(next).toMatchObject({ seq: before.events + 1, parent_id: first?.id });
    again.checkpoint();
    const state = again.state();
    await again.close();
    expect(
      await logs.verify(writer.threadId, { verifier: key.verifier, expected: state }),
    ).toMatchObject({ ok: true, checkpoints: 5 });
    expect(buildTree((await logs.read(writer.threadId)).events).leafId).toBe(next?.id);
  });

  // Requirement: torn-record-fused, torn-line-ends-reading
  it('cuts a torn record, keeps its bytes beside the log, and continues', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    const end = writer.state().bytes;
    writer.append([userMessage('bö')]);
    await writer.close();
    const path = logs.location(writer.threadId);
    const whole = readFileSync(path);
    const file = `transcript.unverified-${end}.jsonl`;
    for (let cut = end + 1; cut < whole.length; cut += 7) {
      writeFileSync(path, whole.subarray(0, cut));
      const torn = await logs.read(writer.threadId);
      const isTorn = whole[cut - 1] !== 10;
      expect(torn.problems.map(({ kind }) => kind)).toEqual(isTorn ? ['torn_tail'] : []);
      expect(statSync(path).size).toBe(cut); // reading never writes
      const again = await logs.reopen(writer.threadId, store.writer());
      const tail = whole.subarray(end, cut);
      expect(readFileSync(join(dirname(path), file))).toEqual(tail);
      const payload = { offset: end, bytes: tail.length, sha256: sha256Hex(tail), file };
      expect(await logs.quarantined(writer.threadId)).toMatchObject([payload]);
      expect(await logs.tail(writer.threadId, 2)).toMatchObject([
        { event_type: 'log_quarantined', payload },
        { event_type: 'checkpoint' },
      ]);
      again.append([userMessage('c')]);
      again.checkpoint();
      const expected = again.state();
      await again.close();
      const verified = await logs.verify(writer.threadId, { verifier: key.verifier, expected });
      expect(verified).toMatchObject({ ok: true, checkpoints: 4, events: 7 });
      rmSync(join(dirname(path), file));
    }
  });

  // Requirement: non-session-replaced
  it('refuses what is no log and leaves it alone', async () => {
    const threadId = newThread();
    const path = logs.location(threadId);
    mkdirSync(dirname(path), { recursive: true });
    for (const content of [
      '# my notes\n',
      'no line feed',
      '{"event_type":"thread","version":9}\n',
      '',
    ]) {
      writeFileSync(path, content);
      await expect(logs.reopen(threadId, store.writer())).rejects.toThrow(
        expect.objectContaining({ code: 'log_malformed' }),
      );
      await expect(logs.read(threadId)).rejects.toMatchObject({ code: 'log_malformed' });
      expect(readFileSync(path, 'utf8')).toBe(content);
      expect(await logs.holder(threadId)).toBeUndefined();
    }
  });

  it('refuses the log of another thread, and one that is not there', async () => {
    const writer = await create();
    await writer.close();
    const other = newThread();
    mkdirSync(dirname(logs.location(other)), { recursive: true });
    renameSync(logs.location(writer.threadId), logs.location(other));
    await expect(logs.read(other)).rejects.toThrow(`it belongs to thread ${writer.threadId}`);
    await expect(logs.reopen('demo/none-1', store.writer())).rejects.toThrow(
      expect.objectContaining({ code: 'thread_not_found' }),
    );
    await expect(logs.read('demo/none-1')).rejects.toMatchObject({ code: 'thread_not_found' });
    await expect(logs.tail('demo/none-1', 3)).rejects.toMatchObject({ code: 'thread_not_found' });
    await expect(logs.verify('demo/none-1', { verifier: key.verifier })).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    expect(existsSync(dirname(logs.location('demo/none-1')))).toBe(false);
  });
});

describe('reading a damaged log', () => {
  // Requirement: malformed-lines-silent
  it('splits fused records, skips malformed lines, reports gaps, with offsets', async () => {
    const writer = await create();
    writer.append([userMessage('a'), userMessage('b'), userMessage('c'), userMessage('d')]);
    await writer.close();
    const path = logs.location(writer.threadId);
    const [header, , a, b, c, d] = readFileSync(path, 'utf8').trimEnd().split('\n');
    writeFileSync(path, [header, `${a}${b}`, '{"seq":4,garbage', d, '', c, ''].join('\n'));
    const log = await logs.read(writer.threadId);
    expect(log.events.map(({ seq }) => seq)).toEqual([2, 3, 5, 4]);
    const first = Buffer.byteLength(`${header}\n`);
    const third = first + Buffer.byteLength(`${a}${b}\n`);
    expect(log.offsets.slice(0, 2)).toEqual([first, first + Buffer.byteLength(a ?? '')]);
    expect(log.problems.map(({ kind, offset }) => [kind, offset]).slice(0, 4)).toEqual([
      ['fused', first],
      ['gap', first],
      ['malformed', third],
      ['gap', third + 17],
    ]);
  });

  it('skips a line over 16 MiB without keeping it', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    await writer.close();
    const path = logs.location(writer.threadId);
    appendFileSync(path, Buffer.concat([Buffer.alloc(MAX_LINE_BYTES + 1, 'x'), Buffer.from('\n')]));
    const log = await logs.read(writer.threadId);
    expect(log.problems).toMatchObject([{ kind: 'too_long' }]);
    expect(log.events).toHaveLength(3);
    await (await logs.reopen(writer.threadId, store.writer())).close();
    expect(await logs.quarantined(writer.threadId)).toMatchObject([{ bytes: MAX_LINE_BYTES + 2 }]);
  });
});

describe('the lease', () => {
  // Requirement: two-writers
  it('keeps a second writer out until the first one closes', async () => {
    const writer = await create();
    expect(await logs.holder(writer.threadId)).toEqual(store.owners.self());
    await expect(logs.reopen(writer.threadId, store.writer())).rejects.toThrow(
      expect.objectContaining({
        code: 'thread_locked',
        message: expect.stringContaining(`${process.pid}`),
      }),
    );
    await writer.close();
    await (await logs.reopen(writer.threadId, store.writer())).close();
  });

  it('passes from a living process to a higher epoch, which alone reaches the log then', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    const taker = await logs.reopen(writer.threadId, store.writer({ epoch: 2 }));
    const inode = statSync(logs.location(writer.threadId)).ino;
    expect(() => writer.append([userMessage('late')])).toThrow(
      expect.objectContaining({ code: 'thread_locked' }),
    );
    taker.append([userMessage('b')]);
    await taker.close();
    await writer.close();
    expect(statSync(logs.location(writer.threadId)).ino).toBe(inode);
    expect(readFileSync(logs.location(writer.threadId), 'utf8')).not.toContain('late');
    await (await logs.reopen(writer.threadId, store.writer({ epoch: 3 }))).close();
    expect(readdirSync(dirname(logs.location(writer.threadId)))).toEqual(['transcript.jsonl']);
  });

  it('passes from a dead process, a reused pid, and a torn file', async () => {
    const { host, pid } = store.owners.columns(store.owners.self());
    const stale = [
      { pid: 2 ** 22 + 1, process_start: 'x', host, epoch: 1 },
      { pid, process_start: 'another start', host, epoch: 1 },
      { pid, process_start: 'x', host: 'elsewhere', epoch: 0 },
      'torn',
    ];
    const writer = await create();
    await writer.close();
    const lease = join(dirname(logs.location(writer.threadId)), 'lease.json');
    for (const record of stale) {
      writeFileSync(lease, JSON.stringify(record));
      await (await logs.reopen(writer.threadId, store.writer())).close();
      expect(existsSync(lease)).toBe(false);
    }
  });

  it('is refused to an older epoch and while another host may be alive', async () => {
    const writer = await create();
    await writer.close();
    const lease = join(dirname(logs.location(writer.threadId)), 'lease.json');
    const { host } = store.owners.columns(store.owners.self());
    for (const record of [
      { pid: 2 ** 22 + 1, process_start: 'x', host, epoch: 2 },
      { pid: 1, process_start: 'x', host: 'elsewhere', epoch: 1 },
    ]) {
      writeFileSync(lease, JSON.stringify(record));
      await expect(logs.reopen(writer.threadId, store.writer())).rejects.toThrow(
        expect.objectContaining({ code: 'thread_locked' }),
      );
    }
  });

  it('fences a writer that was taken over: nothing more of it reaches the log', async () => {
    const writer = await create();
    writer.append([userMessage('a')]);
    const { host } = store.owners.columns(store.owners.self());
    const folder = dirname(logs.location(writer.threadId));
    // what a taker on another host does
    writeFileSync(
      join(folder, 'other'),
      JSON.stringify({ pid: 9, process_start: 'x', host: `${host}2`, epoch: 2 }),
    );
    renameSync(join(folder, 'other'), join(folder, 'lease.json'));
    const size = statSync(logs.location(writer.threadId)).size;
    for (const attempt of [
      async () => writer.append([userMessage('b')]),
      async () => writer.checkpoint(),
      async () => await writer.sync(),
    ]) {
      await expect(attempt).rejects.toThrow(expect.objectContaining({ code: 'thread_locked' }));
    }
    await writer.close();
    expect(statSync(logs.location(writer.threadId)).size).toBe(size);
    expect(readdirSync(folder).toSorted()).toEqual(['lease.json', 'transcript.jsonl']);
  });
});
