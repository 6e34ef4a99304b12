import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  appendFileSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { encodeEvent, encodeHeader } from '../../src/kernel/log/codec.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { headerFor } from '../log/support.ts';
import { openTestStore } from './support.ts';

const { logs } = openTestStore();
const ENTRIES = 150;
const RECORD_BYTES = 24;
/** Maximum bytes read to find one entry: some blocks and the entry, for any size of log. */
const FEW_BYTES = 512 * 1024;

function entry(threadId: string, seq: number, more: Partial<LogEvent> = {}): LogEvent {
  const text = `${seq}`.padEnd(32 * 1024, ' and so on');
  const message = { role: 'user', content: [{ type: 'text', text }] } as const;
  return {
    seq,
    timestamp: '2026-02-17T10:00:56.123Z',
    thread_id: threadId,
    event_type: 'message',
    payload: { message },
    id: idOf(seq),
    parent_id: seq === 1 ? null : idOf(seq - 1),
    ...more,
  } as LogEvent;
}

/** Ids as random as rye's: neighbors have nothing in common. */
function idOf(seq: number): string {
  return (Math.imul(seq, 0x9e3779b1) >>> 0).toString(16).padStart(8, '0').repeat(2);
}

function range(from: number, to: number): readonly number[] {
  return Array.from({ length: to - from + 1 }, (_, at) => from + at);
}

let threads = 0;

interface Large {
  readonly entries?: number;
  /** Puts another event in the place of one. */
  readonly change?: (event: LogEvent) => LogEvent;
}

/** A log of some 5 MB. */
function largeLog({ entries = ENTRIES, change = (event) => event }: Large = {}): string {
  threads += 1;
  const threadId = `index/large-${threads}`;
  const lines = range(1, entries).map((seq) => encodeEvent(change(entry(threadId, seq))));
  mkdirSync(dirname(logs.location(threadId)), { recursive: true });
  writeFileSync(logs.location(threadId), [encodeHeader(headerFor(threadId)), ...lines].join(''));
  return threadId;
}

/** A log in which the entry at `seq` is another. */
function largeLogWith(seq: number, more: object): string {
  return largeLog({ change: (event) => (event.seq === seq ? { ...event, ...more } : event) });
}

const indexOf = (threadId: string): string =>
  join(dirname(logs.location(threadId)), 'transcript.index');

function append(threadId: string, seqs: readonly number[], more: Partial<LogEvent> = {}): void {
  const lines = seqs.map((seq) => encodeEvent(entry(threadId, seq, more)));
  appendFileSync(logs.location(threadId), lines.join(''));
}

/** Bytes that this process has read through system calls so far. */
function bytesRead(): number {
  return Number(/rchar: (\d+)/.exec(readFileSync('/proc/self/io', 'utf8'))?.[1]);
}

/** Checks how an entry is found: through the index with few bytes read, or in the whole log. */
async function lookUp(threadId: string, id: string) {
  const before = bytesRead();
  const found = await logs.lookUp(threadId, id);
  const bytes = bytesRead() - before;
  if ('entry' in found) return { by: 'index', entry: found.entry, few: bytes < FEW_BYTES };
  return { by: 'scan', entry: buildTree(found.opened.events).byId.get(id), few: bytes < FEW_BYTES };
}

const viaIndex = (threadId: string, seq: number) => ({
  by: 'index',
  entry: entry(threadId, seq),
  few: true,
});
const viaScan = (threadId: string, seq: number) => ({
  by: 'scan',
  entry: entry(threadId, seq),
  few: false,
});

describe('the index of a large log', () => {
  it('is made by the first look-up, and leads the next ones to any entry without reading the log', async () => {
    const threadId = largeLog();
    expect(await lookUp(threadId, idOf(7))).toEqual(viaScan(threadId, 7));
    for (const seq of [1, 2, 70, ENTRIES - 1, ENTRIES]) {
      expect(await lookUp(threadId, idOf(seq))).toEqual(viaIndex(threadId, seq));
    }
    expect(statSync(indexOf(threadId)).mode & 0o777).toBe(0o600);
    expect(statSync(indexOf(threadId)).size).toBeLessThan(ENTRIES * RECORD_BYTES + 500);
  });

  it('serves entries appended since, and is rebuilt once they are many', async () => {
    const threadId = largeLog();
    await lookUp(threadId, idOf(1));
    const made = readFileSync(indexOf(threadId));
    append(threadId, [ENTRIES + 1, ENTRIES + 2]);
    expect(await lookUp(threadId, idOf(ENTRIES + 2))).toEqual(viaIndex(threadId, ENTRIES + 2));
    expect(readFileSync(indexOf(threadId))).toEqual(made);
    append(threadId, range(ENTRIES + 3, ENTRIES + 60));
    expect(await lookUp(threadId, idOf(5))).toEqual(viaScan(threadId, 5));
    expect(readFileSync(indexOf(threadId))).not.toEqual(made);
    expect(await lookUp(threadId, idOf(ENTRIES + 60))).toEqual(viaIndex(threadId, ENTRIES + 60));
  });

  it('knows whole ids alone: the start of one and an unknown one are looked for in the log', async () => {
    const threadId = largeLog();
    await lookUp(threadId, idOf(1));
    const made = statSync(indexOf(threadId)).ino;
    for (const id of [idOf(9).slice(0, 10), 'nothing', '', `${idOf(9)}0`]) {
      expect(await lookUp(threadId, id)).toEqual({ by: 'scan', entry: undefined, few: false });
    }
    expect(statSync(indexOf(threadId)).ino).toBe(made);
  });

  it('tells ids apart that begin alike for longer than it keeps of them', async () => {
    const long = (seq: number): string => `imported-from-elsewhere-${seq}`;
    const threadId = largeLog({
      change: (event) => ({ ...event, id: long(event.seq), parent_id: null }),
    });
    await lookUp(threadId, long(3));
    for (const seq of [3, 10, 12]) {
      expect(await lookUp(threadId, long(seq))).toMatchObject({ by: 'index', entry: { seq } });
    }
    expect(await lookUp(threadId, long(ENTRIES + 1))).toMatchObject({
      by: 'scan',
      entry: undefined,
    });
  });

  it('is not made for a small log, nor for one with a defect', async () => {
    const small = largeLog({ entries: 100 });
    const orphaned = largeLogWith(10, { parent_id: 'none' });
    for (const threadId of [small, orphaned]) {
      await lookUp(threadId, idOf(3));
      expect(await lookUp(threadId, idOf(3))).toEqual(viaScan(threadId, 3));
      expect(existsSync(indexOf(threadId))).toBe(false);
    }
  });

  it('goes when the log is archived, which is then read as before', async () => {
    const threadId = largeLog();
    await lookUp(threadId, idOf(1));
    await logs.archive(threadId);
    expect(existsSync(indexOf(threadId))).toBe(false);
    expect(await lookUp(threadId, idOf(8))).toMatchObject({ by: 'scan', entry: { seq: 8 } });
    expect(existsSync(indexOf(threadId))).toBe(false);
  });
});

describe('an index that does not fit', () => {
  let threadId = '';
  let made = Buffer.alloc(0);
  beforeEach(async () => {
    threadId = largeLog();
    await lookUp(threadId, idOf(1));
    made = readFileSync(indexOf(threadId));
  });

  /** Another thread with its own index. */
  async function other(): Promise<string> {
    const id = largeLog();
    await lookUp(id, idOf(1));
    return id;
  }

  it.each<[string, (id: string) => unknown]>([
    ['was removed', (id) => rmSync(indexOf(id))],
    ['is empty', (id) => writeFileSync(indexOf(id), '')],
    ['is torn', (id) => truncateSync(indexOf(id), 1000)],
    ['is too long', (id) => appendFileSync(indexOf(id), 'x')],
    ['is something else', (id) => writeFileSync(indexOf(id), 'x'.repeat(9000))],
    [
      'is of another version',
      (id) => edit(id, (text) => text.replace('"version":1', '"version":2')),
    ],
    ['is of another thread', async (id) => copyFileSync(indexOf(await other()), indexOf(id))],
    ['is of another log', (id) => edit(id, (text) => text.replace(/"sha256":"./, '"sha256":"x'))],
    ['covers more than the log', (id) => edit(id, (text) => text.replace(/"bytes":/, '"bytes":9'))],
    ['ends within a line', (id) => edit(id, (text) => text.replace(/"bytes":\d+/, '"bytes":5000'))],
    ['has a wrong size in it', (id) => edit(id, (text) => text.replace(/"bytes":\d/, '"bytes":-'))],
    ['leads elsewhere', (id) => lead(id, () => 99)],
  ])('that %s is not used, and is rebuilt', async (_, damage) => {
    await damage(threadId);
    expect(await lookUp(threadId, idOf(4))).toEqual(viaScan(threadId, 4));
    expect(readFileSync(indexOf(threadId))).toEqual(made);
    expect(await lookUp(threadId, idOf(4))).toEqual(viaIndex(threadId, 4));
  });

  function edit(id: string, change: (text: string) => string): void {
    const bytes = readFileSync(indexOf(id));
    writeFileSync(indexOf(id), Buffer.from(change(bytes.toString('latin1')), 'latin1'));
  }

  it('as the log was exchanged is not used', async () => {
    const lines = readFileSync(logs.location(threadId), 'utf8').replaceAll(idOf(4), idOf(999));
    writeFileSync(
      logs.location(threadId),
      lines.replaceAll(idOf(6), idOf(4)).replaceAll(' and so on', ' or not'),
    );
    expect(await lookUp(threadId, idOf(4))).toMatchObject({ by: 'scan', entry: { seq: 6 } });
  });
});

/** Points each record of an index to the place that `lie` gives for it. */
function lead(threadId: string, lie: (offset: number) => number): void {
  const bytes = readFileSync(indexOf(threadId));
  const start = bytes.indexOf('\n') + 1;
  for (let at = start + 16; at < bytes.length; at += RECORD_BYTES) {
    bytes.writeBigUInt64BE(BigInt(lie(Number(bytes.readBigUInt64BE(at)))), at);
  }
  writeFileSync(indexOf(threadId), bytes);
}

/** Returns the offset of an entry's line. */
function offsetOf(threadId: string, seq: number): number {
  return readFileSync(logs.location(threadId)).indexOf(`{"seq":${seq},`);
}

describe('a hostile index', () => {
  it.each<[string, (offset: number, another: number) => number]>([
    ['to another entry', (_, another) => another],
    ['into the middle of lines', (offset) => offset + 10],
    ['to the header', () => 0],
    ['after the end', (offset) => offset + 1e12],
    ['to the last place there is', () => 2 ** 52],
  ])('that leads %s gives no entry but the one asked for', async (_, lie) => {
    const threadId = largeLog();
    await lookUp(threadId, idOf(1));
    const another = offsetOf(threadId, 70);
    lead(threadId, (offset) => lie(offset, another));
    for (const seq of [1, 40, ENTRIES]) {
      const { entry: found } = await lookUp(threadId, idOf(seq));
      expect(found).toEqual(entry(threadId, seq));
    }
  });

  // an id that has its place in the order where the index keeps that of entry 2
  const FORGED = `${idOf(2).slice(0, 15)}~`;

  it('can not give a text for an entry that quotes one', async () => {
    const quoted = `\n${encodeEvent(entry('index/x', 9, { id: FORGED, parent_id: null }))}`;
    const message = { role: 'user', content: [{ type: 'text', text: quoted }] };
    const threadId = largeLogWith(2, { payload: { message } });
    await lookUp(threadId, idOf(2));
    const quote = readFileSync(logs.location(threadId)).indexOf('{\\"seq');
    const lies = readFileSync(indexOf(threadId), 'latin1').replace(
      keyText(idOf(2)),
      keyText(FORGED),
    );
    for (const at of [quote - 2, quote - 1, quote, quote + 1]) {
      writeFileSync(indexOf(threadId), Buffer.from(lies, 'latin1'));
      lead(threadId, () => at);
      expect(await lookUp(threadId, FORGED)).toMatchObject({ by: 'scan', entry: undefined });
    }
  });

  const keyText = (id: string): string => id.padEnd(16, '\0');

  it('can not hide that the parent of an entry is not there', async () => {
    const threadId = largeLogWith(10, { parent_id: 'none' });
    const twin = largeLog();
    await lookUp(twin, idOf(1));
    const lies = readFileSync(indexOf(twin), 'latin1')
      .replace(twin, threadId)
      .replace(/"bytes":\d+/, `"bytes":${statSync(logs.location(threadId)).size}`)
      .replace(/"sha256":"\w+/, `"sha256":"${fingerprintOf(threadId)}`);
    writeFileSync(indexOf(threadId), Buffer.from(lies, 'latin1'));
    // the lies are good ones: they lead to the entries that have not moved
    expect(await lookUp(threadId, idOf(9))).toEqual(viaIndex(threadId, 9));
    expect(await lookUp(threadId, idOf(10))).toMatchObject({
      by: 'scan',
      entry: { parent_id: idOf(9) },
    });
  });

  /** Returns the header that makes an index fit a log. */
  function fingerprintOf(threadId: string): string {
    const log = readFileSync(logs.location(threadId));
    return createHash('sha256')
      .update(log.subarray(0, 4096))
      .update(log.subarray(-4096))
      .digest('hex');
  }

  it.each<[string, (path: string) => unknown]>([
    ['a folder', (path) => mkdirSync(join(path, 'x'), { recursive: true })],
    ['a named pipe', (path) => execFileSync('mkfifo', [path])],
    ['a link to a file', (path) => symlinkSync('/etc/hostname', path)],
    ['a link to itself', (path) => symlinkSync(path, path)],
  ])('that is %s stops nothing and leaves no file', async (_, place) => {
    const threadId = largeLog();
    place(indexOf(threadId));
    expect(await lookUp(threadId, idOf(3))).toEqual(viaScan(threadId, 3));
    expect(await lookUp(threadId, idOf(3))).toMatchObject({ entry: { seq: 3 } });
    expect(readdirSync(dirname(indexOf(threadId))).toSorted()).toEqual([
      'transcript.index',
      'transcript.jsonl',
    ]);
  });
});

it('an index is made by many at once', async () => {
  const threadId = largeLog();
  const found = await Promise.all(
    range(1, 4).map(async (seq) => await lookUp(threadId, idOf(seq))),
  );
  expect(found.map((one) => one.entry?.seq)).toEqual(range(1, 4));
  expect(readdirSync(dirname(indexOf(threadId)))).toHaveLength(2);
  expect(await lookUp(threadId, idOf(4))).toEqual(viaIndex(threadId, 4));
});
