import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import {
  type CutCall,
  cutPrice,
  type HeardPiece,
  mostTokensOf,
  outputBound,
} from '../../src/kernel/policy/cut-call.ts';
import { worstMicroUsd } from '../../src/kernel/policy/limits.ts';

const REQUEST = { provider: 'p', model: 'm', input_tokens: 1000, max_tokens: 16_384 };
const call = (heard: readonly HeardPiece[] = [], max = REQUEST.max_tokens): CutCall => ({
  request: { ...REQUEST, max_tokens: max },
  startedMs: 10_000,
  heard,
});
const text = (ms: number, tokens: number): HeardPiece => ({ ms, tokens, isThinking: false });
const thought = (ms: number, tokens: number): HeardPiece => ({ ms, tokens, isThinking: true });
const bound = (one: CutCall, endMs: number, tokensPerSecond = 500): number =>
  outputBound(one, { endMs, tokensPerSecond });

describe('the output of a cut call', () => {
  it('is what the provider writes until the end of the connection, before the first byte', () => {
    // 2 s, and the 0.05 s in which the provider does not know of the end
    expect(bound(call(), 12_000)).toBe(1025);
  });

  it('is the text that arrived, and the time before, between and after it', () => {
    const flowing = [text(10_100, 40), text(10_600, 40), text(11_200, 40)];
    // 0.6 s passed between two pieces: as late may the process have read its provider
    expect(bound(call(flowing), 11_250)).toBe(120 + Math.ceil((100 + 50 + 600 + 50) * 0.5));
    expect(bound(call([...flowing, text(14_200, 1)]), 14_250)).toBe(
      121 + Math.ceil((100 + 3000 + 50 + 1000 + 50) * 0.5),
    );
  });

  it('is counted from the first count of the provider, which has all before it', () => {
    const usage = { ...NO_USAGE, output_tokens: 3 };
    const pieces = [text(13_200, 40), text(13_250, 1), text(13_300, 1)];
    const counted = { ...call(pieces), counted: { usage, ms: 13_000 } };
    expect(bound(counted, 13_350)).toBe(45 + Math.ceil((200 + 50 + 50 + 50) * 0.5));
    expect(bound({ ...counted, counted: { usage, ms: Number.NaN } }, 13_350)).toBe(16_384);
    // too little text to show that the process kept up with its provider
    const early = { ...call([text(13_200, 40)]), counted: { usage, ms: 13_000 } };
    expect(bound(early, 13_250)).toBe(43 + Math.ceil((3200 + 50 + 50) * 0.5));
  });

  it('is the time of its thinking, which providers may hide in part, or more if more was shown', () => {
    expect(bound(call([thought(10_500, 5), thought(11_000, 5)]), 12_000)).toBe(1025);
    expect(bound(call([thought(10_500, 3000), text(11_000, 10)]), 11_000)).toBe(3010);
  });

  it('is max_tokens if nothing tells when the connection ended, or how fast the provider is', () => {
    expect(bound(call(), Number.POSITIVE_INFINITY)).toBe(16_384);
    expect(bound(call(), 10_001, Number.POSITIVE_INFINITY)).toBe(16_384);
    expect(bound({ ...call(), startedMs: Number.NaN }, 10_001)).toBe(16_384);
    expect(bound(call([text(Number.NaN, 1)]), 10_001)).toBe(16_384);
  });

  it('is max_tokens if the clock was set back meanwhile, and nothing less than the text if the end was noted early', () => {
    expect(bound(call(), 8000)).toBe(16_384);
    expect(bound(call([text(5000, 1)]), 20_000)).toBe(16_384);
    expect(bound(call([text(10_010, 70)]), 10_006)).toBe(70 + Math.ceil((10 + 50) * 0.5));
  });

  const pieces = fc.array(
    fc.record({
      gapMs: fc.integer({ min: 0, max: 5000 }),
      tokens: fc.integer({ min: 0, max: 500 }),
      isThinking: fc.boolean(),
    }),
    { maxLength: 40 },
  );
  const timed = pieces.map((list) => {
    let ms = 10_000;
    return list.map(({ gapMs, ...piece }) => {
      ms += gapMs;
      return { ms, ...piece };
    });
  });

  it('covers every provider that is no faster than its rate, and never exceeds max_tokens', () => {
    fc.assert(
      fc.property(
        timed,
        fc.integer({ min: 0, max: 20_000 }),
        fc.integer({ min: 1, max: 3000 }),
        fc.integer({ min: 1, max: 50_000 }),
        (heard, tailMs, rate, max) => {
          const endMs = (heard.at(-1)?.ms ?? 10_000) + tailMs;
          const found = bound(call(heard, max), endMs, rate);
          expect(found).toBeLessThanOrEqual(max);
          const shown = heard.reduce((sum, { tokens }) => sum + tokens, 0);
          const first = heard.find(({ isThinking }) => !isThinking)?.ms ?? endMs;
          const last = heard.findLast(({ isThinking }) => !isThinking)?.ms ?? first;
          const isShownText = heard.filter(({ isThinking }) => !isThinking);
          const textTokens = isShownText.reduce((sum, { tokens }) => sum + tokens, 0);
          const unseen = ((first - 10_000 + endMs - last) / 1000) * rate;
          expect(found).toBeGreaterThanOrEqual(Math.min(max, textTokens + unseen));
          expect(found).toBeGreaterThanOrEqual(Math.min(max, shown - 1));
        },
      ),
    );
  });

  it('grows with the time and the rate', () => {
    fc.assert(
      fc.property(timed, fc.integer({ min: 0, max: 9000 }), fc.nat(2000), (heard, tailMs, more) => {
        const endMs = (heard.at(-1)?.ms ?? 10_000) + tailMs;
        const one = bound(call(heard), endMs);
        expect(bound(call(heard), endMs + more)).toBeGreaterThanOrEqual(one);
        expect(bound(call(heard), endMs, 500 + more)).toBeGreaterThanOrEqual(one);
      }),
    );
  });
});

describe('the price of a cut call', () => {
  const pricing = { input: 2, output: 10, cache_read: 0.2, cache_write: 2.5 };
  const reserved = worstMicroUsd({ inputTokens: 1000, pricing }, 16_384) / 1e6;
  const request = { ...REQUEST, reserved_usd: reserved };
  const priceOf = (output: number) => cutPrice({ request }, output, pricing).price;

  it('is the input at its highest price and the output, at most what was reserved', () => {
    expect(priceOf(0)).toBeCloseTo(2500, -1);
    expect(priceOf(100)).toBeCloseTo(3500, -1);
    expect(priceOf(16_384)).toBe(2500 + 163_840);
    expect(priceOf(99_999)).toBe(2500 + 163_840);
    expect(cutPrice({ request }, 100, pricing)).toMatchObject({ estimated: priceOf(100) });
  });

  it('is the input as the provider counted it, which is no estimate', () => {
    const usage = { ...NO_USAGE, input_tokens: 10, cache_read_tokens: 900, output_tokens: 1 };
    const counted = { usage, ms: 0 };
    expect(cutPrice({ request, counted }, 100, pricing)).toEqual({
      price: 20 + 180 + 1000,
      estimated: 1000,
    });
    expect(cutPrice({ request, counted }, 99_999, pricing).price).toBe(2500 + 163_840);
    // an input that is larger than it could be is still what was counted
    const large = { usage: { ...NO_USAGE, input_tokens: 1e6 }, ms: 0 };
    expect(cutPrice({ request, counted: large }, 1, pricing)).toEqual({ price: 2e6, estimated: 0 });
  });

  it('is the reservation, or nothing, for a model without a price', () => {
    expect(cutPrice({ request }, 1, null).price).toBe(2500 + 163_840);
    expect(cutPrice({ request: REQUEST }, 1, null).price).toBe(0);
  });

  it('keeps an input that was reserved at a higher price than the plan knows', () => {
    const dear = { ...request, reserved_usd: reserved + 0.01 };
    expect(cutPrice({ request: dear }, 0, pricing).price).toBeCloseTo(12_500, -1);
  });

  it('is never below the exact price of its tokens', () => {
    const price = fc.double({ min: 0, max: 100, noNaN: true });
    const prices = fc.record({ input: price, output: price });
    fc.assert(
      fc.property(prices, fc.nat(200_000), fc.nat(50_000), (rates, input, output) => {
        const one = { ...REQUEST, input_tokens: input, max_tokens: 50_000 };
        const exact = input * rates.input + output * rates.output;
        const found = cutPrice({ request: one }, output, rates).price;
        expect(found).toBeGreaterThanOrEqual(Math.floor(exact));
      }),
    );
  });
});

describe('the most tokens of a text', () => {
  // bytes a token as tokenizers count: prose, base64, hex, numbers, CJK, emoji
  it.each<[string, number]>([
    ['The quick brown fox jumps over the lazy dog near the old stone bridge. ', 4.4],
    ['QmFzZTY0IGlzIGRlbnNlLCBhbmQgbm90IGEgd29yZCBvZiBFbmdsaXNo', 1.46],
    ['9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08', 1.75],
    ['3.14159,2.71828,1.41421,1.73205,0.57721,1.61803', 1.8],
    ['川は長年静かで、橋が二種類の石で造られた理由を覚えている者はいなかった。', 2.7],
    ['🎉🚀🔥🌍🎯', 2.71],
  ])('is no less than a tokenizer finds in %s', (one, bytes) => {
    const size = Buffer.byteLength(one);
    expect(mostTokensOf(one)).toBeGreaterThanOrEqual((size / bytes) * 0.95);
    expect(mostTokensOf(one)).toBeLessThanOrEqual(size);
  });

  it('is at most twice what a tokenizer finds in prose', () => {
    const prose =
      'The river had been quiet for years, and nobody remembered why its bridge was built so. ';
    expect(mostTokensOf(prose)).toBeLessThanOrEqual((2 * prose.length) / 4.4);
  });

  it('is between that of words and that of the densest text', () => {
    fc.assert(
      fc.property(fc.string({ unit: 'grapheme' }), (one) => {
        const bytes = Buffer.byteLength(one);
        expect(mostTokensOf(one)).toBeGreaterThanOrEqual(bytes / 3 - 1e-9);
        expect(mostTokensOf(one)).toBeLessThanOrEqual(bytes / 1.4 + 1e-9);
      }),
    );
  });
});
