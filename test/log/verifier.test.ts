import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { sha256Hex } from '../../src/log/checkpoint.ts';
import { createLogVerifier, type LogExtent } from '../../src/log/verifier.ts';
import { delta, said, signedLog, THREAD, testKey } from './support.ts';

const key = testKey();
const GROUPS = [
  [said('hällo'), delta('a'), delta('b')],
  [said('{"event_type":"checkpoint"}'), delta('c')],
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
): ReturnType<ReturnType<typeof createLogVerifier>['end']> {
  const checker = createLogVerifier({
    threadId: options.threadId ?? THREAD,
    verifier: options.verifier ?? key.verifier,
    expected: options.expected,
  });
  const chunk = options.chunk ?? bytes.length;
  for (let at = 0; at < bytes.length; at += chunk) checker.push(bytes.subarray(at, at + chunk));
  return checker.end();
}

const text = (lines: readonly string[]): Buffer => Buffer.from(lines.join(''));
const offsetOfLine = (index: number): number => Buffer.byteLength(LINES.slice(0, index).join(''));

describe('a whole log', () => {
  it('holds, and says what it covers', () => {
    expect(verify(LOG, { expected: EXTENT })).toEqual({
      ok: true,
      ...EXTENT,
      checkpoints: 3,
      verified_bytes: LOG.length,
      unverified_bytes: 0,
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
    expect(verify(text(lines))).toMatchObject({ ok: true, unverified_bytes: tail, events: 10 });
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
    // behind the last checkpoint nothing is covered: only thread.json shows that the end is missing
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
    expect(verify(text(renumbered))).toMatchObject({ ok: true, checkpoints: 0, verified_bytes: 0 });
  });

  it('finds a log of another thread, with and without a changed name', () => {
    expect(verify(LOG, { threadId: 'demo/other-1' })).toMatchObject({ ok: false, offset: 0 });
    const renamed = Buffer.from(LINES.join('').replaceAll(THREAD, 'demo/count-1771322457'));
    expect(verify(renamed, { threadId: 'demo/count-1771322457' }).ok).toBe(false);
  });

  it('finds a start that was taken from a twin log of the same length and key', () => {
    const twin = signedLog([[said('hölla'), ...(GROUPS[0]?.slice(1) ?? [])]], key.signer);
    expect(text(twin)).toHaveLength(offsetOfLine(twin.length));
    expect(verify(text([...twin, ...LINES.slice(twin.length)]))).toMatchObject({
      ok: false,
      reason: 'the checkpoint does not follow the previous one',
    });
  });

  it('refuses a line without end instead of keeping it in memory', () => {
    const checker = createLogVerifier({ threadId: THREAD, verifier: key.verifier });
    checker.push(LOG);
    const block = Buffer.alloc(1024 * 1024, 'x');
    let pushes = 1;
    while (checker.push(block)) pushes += 1;
    expect(pushes).toBe(17);
    expect(checker.end()).toMatchObject({ ok: false, offset: LOG.length });
  });

  it('is no log when it is empty or something else', () => {
    expect(verify(Buffer.alloc(0))).toMatchObject({ ok: false, offset: 0 });
    expect(verify(Buffer.from('# notes\n'))).toMatchObject({ ok: false, offset: 0 });
  });
});
