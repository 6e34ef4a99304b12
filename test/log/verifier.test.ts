import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PayloadVerifier } from '../../src/kernel/core/signing.ts';
import { sha256Hex, signCheckpoint } from '../../src/kernel/log/checkpoint.ts';
import { encodeEvent } from '../../src/kernel/log/codec.ts';
import { LineScanner, scanNow } from '../../src/kernel/log/scanner.ts';
import {
  type LogExtent,
  type LogVerification,
  LogVerifier,
} from '../../src/kernel/log/verifier.ts';
import { depth } from '../helpers/sample-of.ts';
import { delta, firstFormLog, signedLog, THREAD, testKey, userMessage } from './support.ts';

const key = testKey();
const GROUPS = [
  [userMessage('hällo'), delta('a'), delta('b')],
  [userMessage('{"event_type":"checkpoint"}'), delta('c')],
  [delta('d')],
];
const LINES = signedLog(GROUPS, key.signer);
const LOG = Buffer.from(LINES.join(''));
const EXTENT: LogExtent = { bytes: LOG.length, sha256: sha256Hex(LOG), events: LINES.length - 1 };

function verify(
  bytes: Buffer,
  options: {
    expected?: LogExtent;
    threadId?: string;
    chunk?: number;
    verifier?: typeof key.verifier;
  } = {},
): LogVerification {
  const checker = new LogVerifier({
    threadId: options.threadId ?? THREAD,
    verifier: options.verifier ?? key.verifier,
    expected: options.expected,
  });
  const chunk = options.chunk ?? bytes.length;
  scanNow(chunksOf(bytes, chunk), checker);
  return checker.verdict();
}

function* chunksOf(bytes: Buffer, length: number): Generator<Buffer, void, undefined> {
  for (let at = 0; at < bytes.length; at += length) yield bytes.subarray(at, at + length);
}

const text = (lines: readonly string[]): Buffer => Buffer.from(lines.join(''));
const offsetOfLine = (index: number): number => Buffer.byteLength(LINES.slice(0, index).join(''));

describe('a whole log', () => {
  it('holds, and reports what it covers', () => {
    expect(verify(LOG, { expected: EXTENT })).toEqual({
      ok: true,
      ...EXTENT,
      checkpoints: 3,
      verified_bytes: LOG.length,
      unverified_bytes: 0,
      head: {
        bytes: LOG.length,
        seq: EXTENT.events,
        epoch: 1,
        sha256: sha256Hex(LINES.at(-1) ?? ''),
      },
    });
  });

  it('gives the same answer for any chunking', () => {
    const whole = verify(LOG);
    fc.assert(
      fc.property(fc.integer({ min: 1, max: LOG.length }), (chunk) => {
        expect(verify(LOG, { chunk })).toEqual(whole);
      }),
      { numRuns: 60, seed: 7 },
    );
  });

  it('reports what follows the last checkpoint of a crashed thread', () => {
    const lines = signedLog([...GROUPS, [delta('late')]], key.signer).slice(0, -1);
    const tail = Buffer.byteLength(lines.at(-1) ?? '');
    expect(verify(text(lines))).toMatchObject({
      ok: true,
      unverified_bytes: tail,
      events: 9,
    });
    expect(verify(Buffer.concat([LOG, Buffer.from('{"seq":10,"tim')]))).toMatchObject({
      ok: true,
      unverified_bytes: 14,
    });
  });
});

describe('tampering', () => {
  it('finds every edit of a single byte', () => {
    for (let at = 0; at < LOG.length; at += 1) {
      const edited = Buffer.from(LOG);
      edited[at] = (edited[at] ?? 0) ^ 1;
      expect(verify(edited, { expected: EXTENT }).ok).toBe(false);
      // without thread.json the last checkpoint may cease to be one: then its bytes count as unverified
      const alone = verify(edited);
      if (alone.ok && alone.verified_bytes > at) throw new Error(`the edit at ${at} was not found`);
    }
  });

  it('names the checkpoint over an edited event, and its key when that is not trusted', () => {
    const edited = LINES.with(2, (LINES[2] ?? '').replace('"a"', '"A"'));
    expect(verify(text(edited))).toMatchObject({
      ok: false,
      code: 'transcript_tampered',
      offset: offsetOfLine(4),
      reason: expect.stringContaining(`the bytes from 0 to ${offsetOfLine(4)}`),
    });
    expect(verify(LOG, { verifier: testKey().verifier })).toMatchObject({
      ok: false,
      code: 'key_untrusted',
      offset: offsetOfLine(4),
    });
  });

  it.each(LINES.map((_, index) => index))('finds that line %i was removed', (index) => {
    expect(verify(text(LINES.toSpliced(index, 1)), { expected: EXTENT }).ok).toBe(false);
    // after the last checkpoint nothing is covered: only thread.json shows that the end is missing
    expect(verify(text(LINES.toSpliced(index, 1))).ok).toBe(index === LINES.length - 1);
  });

  it.each(LINES.slice(1, -1).map((_, index) => index + 1))(
    'finds that line %i changed places',
    (at) => {
      const swapped = LINES.with(at, LINES[at + 1] ?? '').with(at + 1, LINES[at] ?? '');
      expect(verify(text(swapped)).ok).toBe(false);
    },
  );

  it('finds a cut or grown end against thread.json', () => {
    for (let end = 0; end < LOG.length; end += 7) {
      expect(verify(LOG.subarray(0, end), { expected: EXTENT }).ok).toBe(false);
    }
    expect(verify(LOG.subarray(0, offsetOfLine(8)), { expected: EXTENT })).toMatchObject({
      offset: offsetOfLine(8),
      reason: expect.stringContaining('the log ends at byte'),
    });
    expect(verify(Buffer.concat([LOG, LOG]), { expected: EXTENT }).ok).toBe(false);
  });

  it('finds that all checkpoints were taken out, renumbered or not', () => {
    const events = LINES.filter((line) => !line.includes('"signature"'));
    expect(verify(text(events))).toMatchObject({ ok: false, offset: offsetOfLine(4) });
    const renumbered = events.map((line, index) => line.replace(/^\{"seq":\d+/, `{"seq":${index}`));
    expect(verify(text(renumbered), { expected: EXTENT }).ok).toBe(false);
    expect(verify(text(renumbered))).toMatchObject({
      ok: false,
      unsigned: true,
      checkpoints: 0,
      verified_bytes: 0,
    });
  });

  it('finds a log of another thread, with and without a changed name', () => {
    expect(verify(LOG, { threadId: 'demo/other-1' })).toMatchObject({ ok: false, offset: 0 });
    // no crash of a thread leaves the unsigned beginning of another one
    const start = text(LINES.slice(0, 3));
    expect(verify(start)).toHaveProperty('unsigned', true);
    expect(verify(start, { threadId: 'demo/other-1' })).not.toHaveProperty('unsigned');
    const renamed = Buffer.from(LINES.join('').replaceAll(THREAD, 'demo/count-1771322457'));
    expect(verify(renamed, { threadId: 'demo/count-1771322457' }).ok).toBe(false);
  });

  it('finds a start that was taken from a twin log of the same length and key', () => {
    const twin = signedLog([[userMessage('hölla'), ...(GROUPS[0]?.slice(1) ?? [])]], key.signer);
    expect(text(twin)).toHaveLength(offsetOfLine(twin.length));
    expect(verify(text([...twin, ...LINES.slice(twin.length)]))).toMatchObject({
      ok: false,
      reason: 'the checkpoint does not follow the previous one',
    });
  });

  it('finds a whole log of the same key, length and number of events in place of the finished log', () => {
    const groups = [[userMessage('hölla'), ...(GROUPS[0]?.slice(1) ?? [])], ...GROUPS.slice(1)];
    const twin = text(signedLog(groups, key.signer));
    expect(twin).toHaveLength(LOG.length);
    expect(verify(twin)).toMatchObject({ ok: true });
    expect(verify(twin, { expected: EXTENT })).toMatchObject({
      ok: false,
      reason: expect.stringContaining('SHA-256'),
    });
  });

  it('keeps a line without end out of memory, and refuses it in a finished log', () => {
    const block = Buffer.alloc(1024 * 1024, 'x');
    const checker = new LogVerifier({ threadId: THREAD, verifier: key.verifier });
    const scanner = new LineScanner([checker]);
    scanner.push(LOG);
    for (let pushes = 0; pushes < 40; pushes += 1) expect(scanner.push(block)).toBe(true);
    expect(checker.verdict()).toMatchObject({
      ok: true,
      verified_bytes: LOG.length,
      unverified_bytes: 40 * block.length,
      flaw: { offset: LOG.length, reason: 'a line is over 16 MiB' },
    });
    const finished = new LogVerifier({
      threadId: THREAD,
      verifier: key.verifier,
      expected: EXTENT,
    });
    const finishing = new LineScanner([finished]);
    finishing.push(LOG);
    let pushes = 1;
    while (finishing.push(block)) pushes += 1;
    expect(pushes).toBe(17);
    expect(finished.verdict()).toMatchObject({ ok: false, offset: LOG.length });
  });

  it('is no log when it is empty or something else', () => {
    expect(verify(Buffer.alloc(0))).toMatchObject({ ok: false, offset: 0 });
    expect(verify(Buffer.from('# notes\n'))).toMatchObject({ ok: false, offset: 0 });
  });
});

/** A verifier that counts what it is asked, and refuses some signatures. */
function counting(isGood: (nth: number) => boolean = () => true) {
  const asked: unknown[] = [];
  const found: string[] = [];
  const verifier: PayloadVerifier = {
    find: (keyId) => {
      found.push(keyId);
      return {
        verify: (payload) => {
          asked.push(payload['seq']);
          return isGood(Number(payload['seq']));
        },
      };
    },
  };
  return { verifier, asked, found };
}

describe('signatures', () => {
  const lines = signedLog(
    Array.from({ length: 600 }, (_, at) => [delta(`${at}`)]),
    key.signer,
  );
  const log = text(lines);

  it('are checked where they prove all before them, and ask for a key once', () => {
    const { verifier, asked, found } = counting();
    expect(verify(log, { verifier })).toMatchObject({ ok: true, checkpoints: 600 });
    expect(asked).toEqual([512, 1024, 1200]);
    expect(found).toEqual([key.signer.keyId]);
  });

  it.each([0, 1, 255, 256, 257, 599])(
    'that do not hold after checkpoint %i leave what precedes them verified',
    (good) => {
      const { verifier } = counting((seq) => seq <= 2 * good);
      const end = Buffer.byteLength(lines.slice(0, 1 + 2 * good).join(''));
      const offset = Buffer.byteLength(lines.slice(0, 2 + 2 * good).join(''));
      const reason = "the checkpoint's signature is invalid";
      const expected = {
        checkpoints: good,
        verified_bytes: good === 0 ? 0 : end,
        ...(good === 0 ? { offset, reason } : { flaw: { offset, reason } }),
      };
      expect(verify(log, { verifier })).toMatchObject({ ok: good > 0, ...expected });
      const extent = { bytes: log.length, sha256: sha256Hex(log), events: 1200 };
      expect(verify(log, { verifier, expected: extent })).toMatchObject({
        ok: false,
        offset,
        reason,
      });
    },
  );
});

describe('the unsigned tail of a thread that was not finished', () => {
  const signed = offsetOfLine(8);
  const prefix = LOG.subarray(0, signed);
  const tail = (bytes: string | Buffer): Buffer => Buffer.concat([prefix, Buffer.from(bytes)]);
  const intact = { ok: true, verified_bytes: signed, events: 7, checkpoints: 2 };

  it('is unverified, with any content', () => {
    fc.assert(
      fc.property(fc.oneof(fc.string(), fc.base64String()), (junk) => {
        expect(verify(tail(junk))).toMatchObject({
          ...intact,
          unverified_bytes: Buffer.byteLength(junk),
        });
      }),
      { seed: 3, numRuns: depth(60, 300) },
    );
  });

  it('stays unverified with a checkpoint of a key that is not trusted', () => {
    const forger = testKey();
    const forged = signedLog([...GROUPS.slice(0, 2), [userMessage('forged')]], forger.signer);
    // chained to what was signed, as one can who reads the log
    const chained = rechained(forged.slice(8), forger.signer);
    expect(verify(tail(chained))).toMatchObject({
      ...intact,
      flaw: { code: 'key_untrusted' },
    });
  });

  it('stays unverified with a checkpoint that names the key and can not have its signature', () => {
    const forger = { ...testKey().signer, keyId: key.signer.keyId };
    const chained = rechained([LINES[8] ?? ''], forger);
    expect(verify(tail(chained + chained))).toMatchObject({
      ...intact,
      flaw: { reason: "the checkpoint's signature is invalid" },
    });
  });

  it.each([
    ['of this log again', () => LINES.slice(1, 8).join('')],
    ['of another thread', () => signedLog(GROUPS, key.signer, 'demo/other-1').slice(8).join('')],
    [
      'of another thread under this name',
      () =>
        signedLog(GROUPS, key.signer, 'demo/count-1771322457')
          .slice(8)
          .join('')
          .replaceAll('demo/count-1771322457', THREAD),
    ],
  ])('stays unverified with signed lines %s', (_, lines) => {
    expect(verify(tail(lines()))).toMatchObject(intact);
  });

  it('is none if signed lines of this thread follow: then some before them are gone', () => {
    const skipped = [...LINES.slice(0, 5), ...LINES.slice(8)].join('');
    expect(verify(Buffer.from(skipped))).toMatchObject({ ok: false, offset: offsetOfLine(5) });
    const late = Buffer.concat([prefix, Buffer.from('junk\n'), LOG.subarray(signed)]);
    expect(verify(late)).toMatchObject({ ok: false, offset: signed });
  });

  it('is found before a checkpoint of an earlier epoch', () => {
    const third = LINES[8] ?? '';
    const at = (epoch: number): Buffer => tail(rechained([third], key.signer, epoch));
    expect(verify(at(1))).toMatchObject({ ok: true, checkpoints: 3, unverified_bytes: 0 });
    expect(verify(at(0))).toMatchObject({ ok: false, reason: expect.stringContaining('epoch 0') });
  });

  /** The events among `lines` with a checkpoint that fits the log, after the second checkpoint of LINES. */
  function rechained(lines: readonly string[], signer: typeof key.signer, epoch = 1): string {
    const events = lines.filter((line) => !line.includes('"signature"')).join('');
    const [from, to] = [signed, signed + Buffer.byteLength(events)];
    const statement = {
      threadId: THREAD,
      seq: 9,
      timestamp: '2026-02-17T10:00:56.123Z',
      epoch,
      from,
      to,
      sha256: sha256Hex(events),
      prev: sha256Hex(LINES[7] ?? ''),
    };
    return events + encodeEvent(signCheckpoint(statement, signer));
  }
});

describe('checkpoints of the older form', () => {
  const old = (groups: typeof GROUPS): readonly string[] => firstFormLog(groups, key.signer);

  it('hold, and newer ones may follow them', () => {
    const lines = old(GROUPS);
    const log = text(lines);
    expect(verify(log)).toMatchObject({ ok: true, checkpoints: 3, unverified_bytes: 0 });
    const edited = text(lines.with(2, (lines[2] ?? '').replace('"a"', '"A"')));
    expect(verify(edited)).toMatchObject({ ok: false, verified_bytes: 0 });
  });
});
