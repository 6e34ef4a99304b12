import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { PayloadVerifier } from '../../src/core/signing.ts';
import { sha256Hex } from '../../src/log/checkpoint.ts';
import { createLogVerifier, type LogExtent, type LogVerification } from '../../src/log/verifier.ts';
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

async function verify(
  bytes: Buffer,
  options: {
    expected?: LogExtent;
    threadId?: string;
    chunk?: number;
    verifier?: typeof key.verifier;
  } = {},
): Promise<LogVerification> {
  const checker = createLogVerifier({
    threadId: options.threadId ?? THREAD,
    verifier: options.verifier ?? key.verifier,
    expected: options.expected,
  });
  const chunk = options.chunk ?? bytes.length;
  for (let at = 0; at < bytes.length; at += chunk) {
    await checker.push(bytes.subarray(at, at + chunk));
  }
  return await checker.end();
}

const text = (lines: readonly string[]): Buffer => Buffer.from(lines.join(''));
const offsetOfLine = (index: number): number => Buffer.byteLength(LINES.slice(0, index).join(''));

describe('a whole log', () => {
  it('holds, and says what it covers', async () => {
    expect(await verify(LOG, { expected: EXTENT })).toEqual({
      ok: true,
      ...EXTENT,
      checkpoints: 3,
      verified_bytes: LOG.length,
      unverified_bytes: 0,
    });
  });

  it('gives the same answer for any chunking', async () => {
    const whole = await verify(LOG);
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: LOG.length }), async (chunk) => {
        expect(await verify(LOG, { chunk })).toEqual(whole);
      }),
      { numRuns: 60, seed: 7 },
    );
  });

  it('reports what follows the last checkpoint of a crashed thread', async () => {
    const lines = signedLog([...GROUPS, [delta('late')]], key.signer).slice(0, -1);
    const tail = Buffer.byteLength(lines.at(-1) ?? '');
    expect(await verify(text(lines))).toMatchObject({
      ok: true,
      unverified_bytes: tail,
      events: 10,
    });
    expect(await verify(Buffer.concat([LOG, Buffer.from('{"seq":10,"tim')]))).toMatchObject({
      ok: true,
      unverified_bytes: 14,
    });
  });
});

describe('tampering', () => {
  it('finds every edit of a single byte', async () => {
    for (let at = 0; at < LOG.length; at += 1) {
      const edited = Buffer.from(LOG);
      edited[at] = (edited[at] ?? 0) ^ 1;
      expect((await verify(edited, { expected: EXTENT })).ok).toBe(false);
      // without thread.json the last checkpoint may cease to be one: then its bytes count as unverified
      const alone = await verify(edited);
      if (alone.ok && alone.verified_bytes > at) throw new Error(`the edit at ${at} was not found`);
    }
  });

  it('names the checkpoint over an edited event, and its key when that is not trusted', async () => {
    const edited = LINES.with(2, (LINES[2] ?? '').replace('"a"', '"A"'));
    expect(await verify(text(edited))).toMatchObject({
      ok: false,
      code: 'transcript_tampered',
      offset: offsetOfLine(4),
      reason: expect.stringContaining(`the bytes from 0 to ${offsetOfLine(4)}`),
    });
    expect(await verify(LOG, { verifier: testKey().verifier })).toMatchObject({
      ok: false,
      code: 'key_untrusted',
      offset: offsetOfLine(4),
    });
  });

  it.each(LINES.map((_, index) => index))('finds that line %i was removed', async (index) => {
    expect((await verify(text(LINES.toSpliced(index, 1)), { expected: EXTENT })).ok).toBe(false);
    // behind the last checkpoint nothing is covered: only thread.json shows that the end is missing
    expect((await verify(text(LINES.toSpliced(index, 1)))).ok).toBe(index === LINES.length - 1);
  });

  it.each(LINES.slice(1, -1).map((_, index) => index + 1))(
    'finds that line %i changed places',
    async (at) => {
      const swapped = LINES.with(at, LINES[at + 1] ?? '').with(at + 1, LINES[at] ?? '');
      expect((await verify(text(swapped))).ok).toBe(false);
    },
  );

  it('finds a cut or grown end against thread.json', async () => {
    for (let end = 0; end < LOG.length; end += 7) {
      expect((await verify(LOG.subarray(0, end), { expected: EXTENT })).ok).toBe(false);
    }
    expect(await verify(LOG.subarray(0, offsetOfLine(8)), { expected: EXTENT })).toMatchObject({
      offset: offsetOfLine(8),
      reason: expect.stringContaining('the log ends at byte'),
    });
    expect((await verify(Buffer.concat([LOG, LOG]), { expected: EXTENT })).ok).toBe(false);
  });

  it('finds that all checkpoints were taken out, renumbered or not', async () => {
    const events = LINES.filter((line) => !line.includes('"signature"'));
    expect(await verify(text(events))).toMatchObject({ ok: false, offset: offsetOfLine(4) });
    const renumbered = events.map((line, index) => line.replace(/^\{"seq":\d+/, `{"seq":${index}`));
    expect((await verify(text(renumbered), { expected: EXTENT })).ok).toBe(false);
    expect(await verify(text(renumbered))).toMatchObject({
      ok: true,
      checkpoints: 0,
      verified_bytes: 0,
    });
  });

  it('finds a log of another thread, with and without a changed name', async () => {
    expect(await verify(LOG, { threadId: 'demo/other-1' })).toMatchObject({ ok: false, offset: 0 });
    const renamed = Buffer.from(LINES.join('').replaceAll(THREAD, 'demo/count-1771322457'));
    expect((await verify(renamed, { threadId: 'demo/count-1771322457' })).ok).toBe(false);
  });

  it('finds a start that was taken from a twin log of the same length and key', async () => {
    const twin = signedLog([[said('hölla'), ...(GROUPS[0]?.slice(1) ?? [])]], key.signer);
    expect(text(twin)).toHaveLength(offsetOfLine(twin.length));
    expect(await verify(text([...twin, ...LINES.slice(twin.length)]))).toMatchObject({
      ok: false,
      reason: 'the checkpoint does not follow the previous one',
    });
  });

  it('refuses a line without end instead of keeping it in memory', async () => {
    const checker = createLogVerifier({ threadId: THREAD, verifier: key.verifier });
    await checker.push(LOG);
    const block = Buffer.alloc(1024 * 1024, 'x');
    let pushes = 1;
    while (await checker.push(block)) pushes += 1;
    expect(pushes).toBe(17);
    expect(await checker.end()).toMatchObject({ ok: false, offset: LOG.length });
  });

  it('is no log when it is empty or something else', async () => {
    expect(await verify(Buffer.alloc(0))).toMatchObject({ ok: false, offset: 0 });
    expect(await verify(Buffer.from('# notes\n'))).toMatchObject({ ok: false, offset: 0 });
  });
});

describe('signatures that are checked beside the hashing', () => {
  /** A log of many checkpoints, and what it takes to settle their checks by hand. */
  function manyChecks(count: number) {
    const lines = signedLog(
      Array.from({ length: count }, (_, at) => [delta(`${at}`)]),
      key.signer,
    );
    const settle: ((good: boolean) => void)[] = [];
    const asked: string[] = [];
    const verifier: PayloadVerifier = {
      find: (keyId) => {
        asked.push(keyId);
        return { verify: async () => await new Promise((resolve) => settle.push(resolve)) };
      },
    };
    const checkpointAt = (at: number): number =>
      Buffer.byteLength(lines.slice(0, 2 + 2 * at).join(''));
    return { log: text(lines), verifier, settle, asked, checkpointAt };
  }

  it('fail at the first place in the log, whichever is known first', async () => {
    const { log, verifier, settle, checkpointAt } = manyChecks(5);
    const verdict = verify(log, { verifier });
    for (const at of [4, 3, 1, 0, 2]) settle[at]?.(at !== 3 && at !== 1);
    expect(await verdict).toEqual({
      ok: false,
      code: 'transcript_tampered',
      offset: checkpointAt(1),
      reason: "the checkpoint's signature is invalid",
    });
  });

  it('count before a defect behind them, and after one before them', async () => {
    const broken = (at: number): Buffer =>
      text(LINES.map((line, index) => (index === at ? line.replace('"seq"', '"sea"') : line)));
    const badSignature: PayloadVerifier = { find: () => ({ verify: async () => false }) };
    expect(await verify(broken(6), { verifier: badSignature })).toMatchObject({
      offset: offsetOfLine(4),
      reason: "the checkpoint's signature is invalid",
    });
    expect(await verify(broken(2), { verifier: badSignature })).toMatchObject({
      offset: offsetOfLine(2),
      reason: 'the line does not have the form of an event',
    });
  });

  it('count before what thread.json says about the end', async () => {
    const badSignature: PayloadVerifier = { find: () => ({ verify: async () => false }) };
    expect(
      await verify(LOG.subarray(0, -1), { expected: EXTENT, verifier: badSignature }),
    ).toMatchObject({
      offset: offsetOfLine(4),
    });
  });

  it('are a bounded number at a time, and ask for a key once', async () => {
    const { log, verifier, settle, asked } = manyChecks(300);
    const checker = createLogVerifier({ threadId: THREAD, verifier });
    let taken = 0;
    let settled = 0;
    let most = 0;
    const feed = async (): Promise<LogVerification> => {
      for (; taken < log.length; taken += 1024)
        await checker.push(log.subarray(taken, taken + 1024));
      return await checker.end();
    };
    const verdict = feed();
    while (settled < 300) {
      await new Promise((resolve) => setImmediate(resolve));
      most = Math.max(most, settle.length - settled);
      settle[settled]?.(true);
      if (settled < settle.length) settled += 1;
    }
    expect(await verdict).toMatchObject({ ok: true, checkpoints: 300 });
    // 128, and those of one more chunk
    expect(most).toBeGreaterThan(100);
    expect(most).toBeLessThan(140);
    expect(asked).toEqual([key.signer.keyId]);
  });

  it('stop the reading when one has failed', async () => {
    const { log, verifier, settle } = manyChecks(300);
    const checker = createLogVerifier({ threadId: THREAD, verifier });
    const pushed = checker.push(log);
    settle[0]?.(false);
    expect(await pushed).toBe(false);
    expect(await checker.push(log)).toBe(false);
  });
});
