import { readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parse } from 'yaml';
import { LIMIT_NAMES, type LimitName, type Limits } from '../../src/kernel/core/limits.ts';
import { NO_COST, NO_USAGE, type Pricing, priceMicroUsd } from '../../src/kernel/core/usage.ts';
import {
  affordableMaxTokens,
  checkLimits,
  escalateLimit,
  type LimitSource,
  parseLimits,
  resolveLimits,
  SHIPPED_LIMITS,
} from '../../src/kernel/policy/limits.ts';

const NOTHING: LimitSource = { limits: {}, origins: {} };
const from = (limits: LimitSource['limits'], origin = 'here'): LimitSource => ({
  limits,
  origins: Object.fromEntries(Object.keys(limits).map((name) => [name, origin])),
});

describe('parseLimits', () => {
  it('accepts both spellings and numerals in text', () => {
    const parsed = parseLimits(
      [
        { name: 'turns', value: 6, location: { path: 'd.md', line: 4 } },
        { name: 'max_tokens', value: '4096' },
        { name: 'spend', value: '0.5' },
        { name: 'max_duration_seconds', value: 1.5 },
        { name: 'spawns', value: 0 },
      ],
      '--limit',
    );
    expect(parsed).toEqual({
      limits: { turns: 6, tokens: 4096, spend: 0.5, duration_seconds: 1.5, spawns: 0 },
      origins: {
        turns: 'd.md:4',
        tokens: '--limit',
        spend: '--limit',
        duration_seconds: '--limit',
        spawns: '--limit',
      },
    });
  });

  it.each<[string, unknown]>([
    ['turns', Number.NaN],
    ['turns', Number.POSITIVE_INFINITY],
    ['turns', -1],
    ['turns', 1.5],
    ['turns', '1.5'],
    ['turns', 'ten'],
    ['turns', ''],
    ['turns', '-1'],
    ['turns', '0x10'],
    ['turns', '1e9'],
    ['turns', true],
    ['turns', null],
    ['turns', undefined],
    ['turns', [1]],
    ['turns', 2 ** 60],
    ['spend', -0.01],
    ['spend', 1e12],
    ['duration_seconds', Number.NaN],
    ['depth', -1],
  ])('refuses %s = %j', (name, value) => {
    expect(() => parseLimits([{ name, value, location: { path: 'd.md', line: 2 } }])).toThrow(
      expect.objectContaining({
        code: 'invalid_limit',
        message: expect.stringMatching(/^d\.md:2: /),
      }),
    );
  });

  it('names the valid limits and the nearest', () => {
    expect(() =>
      parseLimits([{ name: 'max_turn', value: 1, location: { path: 'd.md', line: 2 } }]),
    ).toThrow(
      expect.objectContaining({
        code: 'unknown_limit',
        message: 'd.md:2: unknown limit "max_turn"',
        hint: 'Did you mean turns? Valid limits: turns, tokens, spend, duration_seconds, spawns, depth.',
      }),
    );
  });

  it('refuses a limit that is given twice', () => {
    const twice = [
      { name: 'turns', value: 1 },
      { name: 'max_turns', value: 2 },
    ];
    expect(() => parseLimits(twice)).toThrow(expect.objectContaining({ code: 'invalid_limit' }));
  });
});

const amount = fc.integer({ min: 0, max: 100 });
const anyLimits = fc.record(
  Object.fromEntries(LIMIT_NAMES.map((name) => [name, amount])) as Record<LimitName, typeof amount>,
);
const someLimits = fc
  .record(
    Object.fromEntries(LIMIT_NAMES.map((name) => [name, amount])) as Record<
      LimitName,
      typeof amount
    >,
    { requiredKeys: [] },
  )
  .map((limits) => from(limits));

const childDepthBelow = (depth: number) =>
  resolveLimits({
    defaults: NOTHING,
    directive: NOTHING,
    overrides: NOTHING,
    parent: { thread_id: 'p-1', limits: { ...SHIPPED_LIMITS, depth } },
  }).limits.depth;

describe('resolveLimits', () => {
  it('merges defaults, directive and overrides, then caps by the parent', () => {
    const parent: Limits = { ...SHIPPED_LIMITS, turns: 30, spend: 1, depth: 4 };
    const { limits, origins } = resolveLimits({
      defaults: from({ turns: 15, spend: 0.5, depth: 5 }, 'resilience.yaml'),
      directive: from({ turns: 30, tokens: 9 }, 'd.md:3'),
      overrides: from({ turns: 10, spend: 0.1 }, '--limit'),
      parent: { thread_id: 'p-1', limits: parent },
    });
    expect(limits).toEqual({ ...SHIPPED_LIMITS, turns: 10, tokens: 9, spend: 0.1, depth: 3 });
    expect(origins).toEqual({
      turns: '--limit',
      tokens: 'd.md:3',
      spend: '--limit',
      duration_seconds: 'shipped',
      spawns: 'shipped',
      depth: 'parent p-1',
    });
  });

  // Requirement: turns-bounded
  it('returns the shipped limits when no source sets any', () => {
    const { limits } = resolveLimits({ defaults: NOTHING, directive: NOTHING, overrides: NOTHING });
    expect(limits).toEqual({
      turns: 25,
      tokens: 1_000_000,
      spend: 5,
      duration_seconds: 1800,
      spawns: 50,
      depth: 10,
    });
  });

  it('refuses a child of a thread at depth 0', () => {
    expect(childDepthBelow(1)).toBe(0);
    expect(() => childDepthBelow(0)).toThrow(expect.objectContaining({ code: 'limit_depth' }));
  });

  it('never exceeds the parent, however often it is applied', () => {
    fc.assert(
      fc.property(
        someLimits,
        someLimits,
        someLimits,
        anyLimits,
        (defaults, directive, overrides, limits) => {
          fc.pre(limits.depth >= 2);
          const child = resolveLimits({
            defaults,
            directive,
            overrides,
            parent: { thread_id: 'p', limits },
          }).limits;
          for (const name of LIMIT_NAMES) {
            const cap = name === 'depth' ? limits.depth - 1 : limits[name];
            const own =
              overrides.limits[name] ??
              directive.limits[name] ??
              defaults.limits[name] ??
              SHIPPED_LIMITS[name];
            expect(child[name]).toBe(Math.min(cap, own));
          }
        },
      ),
      { numRuns: 200, seed: 5 },
    );
  });
});

const used = (cost: object, elapsedSeconds = 0) => ({
  cost: { ...NO_COST, ...cost },
  elapsedSeconds,
});

describe('checkLimits', () => {
  const limits: Limits = {
    turns: 3,
    tokens: 100,
    spend: 1,
    duration_seconds: 60,
    spawns: 2,
    depth: 1,
  };

  it.each([
    ['nothing used', used({}), undefined],
    ['one below each', used({ turns: 2, input_tokens: 99, spend: 0.999999 }, 59.9), undefined],
    ['turns', used({ turns: 3 }), { name: 'turns', current: 3, max: 3 }],
    [
      'tokens of all kinds',
      used({ input_tokens: 25, output_tokens: 25, cache_read_tokens: 25, cache_write_tokens: 25 }),
      { name: 'tokens', current: 100, max: 100 },
    ],
    ['spend', used({ spend: 1 }), { name: 'spend', current: 1, max: 1 }],
    ['duration', used({}, 60), { name: 'duration_seconds', current: 60, max: 60 }],
    [
      'the first of several',
      used({ turns: 4, spend: 9 }, 99),
      { name: 'turns', current: 4, max: 3 },
    ],
  ])('%s', (_case, usage, expected) => {
    expect(checkLimits(limits, usage)).toEqual(expected);
  });

  it('counts a limit of 0 as reached before the first turn', () => {
    expect(checkLimits({ ...limits, turns: 0 }, used({}))).toEqual({
      name: 'turns',
      current: 0,
      max: 0,
    });
  });
});

describe('escalateLimit', () => {
  const limits: Limits = { ...SHIPPED_LIMITS, turns: 10, depth: 2 };
  const parent: Limits = { ...SHIPPED_LIMITS, turns: 20, depth: 3 };

  it.each<[LimitName, number, Limits | undefined, number | undefined]>([
    ['turns', 15, undefined, 15],
    ['turns', 15, parent, 15],
    ['turns', 50, parent, 20],
    ['turns', 50, undefined, 50],
    ['turns', 10, undefined, undefined],
    ['turns', 5, parent, undefined],
    ['turns', Number.NaN, undefined, undefined],
    ['turns', Number.POSITIVE_INFINITY, undefined, undefined],
    ['turns', 10.5, undefined, undefined],
    ['depth', 9, parent, undefined],
  ])('%s to %s is granted as %s', (name, to, bound, expected) => {
    const raised = escalateLimit(limits, { name, to }, bound);
    expect(raised).toEqual(expected === undefined ? undefined : { ...limits, [name]: expected });
  });
});

describe('affordableMaxTokens', () => {
  const pricing: Pricing = { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 };
  const ask = (request: Partial<Parameters<typeof affordableMaxTokens>[0]>) =>
    affordableMaxTokens({
      remainingMicroUsd: 1_000_000,
      inputTokens: 1000,
      pricing,
      wanted: 8000,
      ...request,
    });

  it.each([
    ['plenty', {}, 8000],
    ['input at the dearest price', { remainingMicroUsd: 3750 + 15 * 300 }, 300],
    [
      'one micro-dollar short of the minimum',
      { remainingMicroUsd: 3750 + 15 * 256 - 1 },
      undefined,
    ],
    ['exactly the minimum', { remainingMicroUsd: 3750 + 15 * 256 }, 256],
    ['nothing left', { remainingMicroUsd: 0 }, undefined],
    ['overspent', { remainingMicroUsd: -5 }, undefined],
    ['a free model', { remainingMicroUsd: 0, pricing: { input: 0, output: 0 } }, 8000],
    [
      'free output, input too dear',
      { remainingMicroUsd: 10, pricing: { input: 1, output: 0 } },
      undefined,
    ],
    ['less wanted than the minimum', { remainingMicroUsd: 3750 + 15 * 100, wanted: 100 }, 100],
  ])('%s', (_case, request, expected) => {
    expect(ask(request)).toBe(expected);
  });

  it('never exceeds the remaining money, with any usage of the call', () => {
    const price = fc.double({ min: 0, max: 80, noNaN: true });
    fc.assert(
      fc.property(
        fc.record({ input: price, output: price, cache_read: price, cache_write: price }),
        fc.integer({ min: 0, max: 2_000_000 }),
        fc.integer({ min: 0, max: 200_000 }),
        fc.integer({ min: 1, max: 64_000 }),
        (prices, remainingMicroUsd, inputTokens, wanted) => {
          const allowed = affordableMaxTokens({
            remainingMicroUsd,
            inputTokens,
            pricing: prices,
            wanted,
          });
          if (allowed === undefined) return;
          expect(allowed).toBeGreaterThanOrEqual(Math.min(256, wanted));
          expect(allowed).toBeLessThanOrEqual(wanted);
          for (const kind of ['input_tokens', 'cache_read_tokens', 'cache_write_tokens']) {
            const usage = { ...NO_USAGE, output_tokens: allowed, [kind]: inputTokens };
            expect(priceMicroUsd(usage, prices)).toBeLessThanOrEqual(remainingMicroUsd);
          }
        },
      ),
      { numRuns: 500, seed: 6 },
    );
  });
});

describe('each limit', () => {
  it.each(LIMIT_NAMES)(
    '%s is in the documentation, the shipped configuration and the schema',
    (name) => {
      const page = readFileSync('docs/directives.md', 'utf8');
      const elements = page.split('\n').find((line) => line.startsWith('| `metadata/limits`'));
      expect(elements?.match(/[a-z_]+/g)).toContain(name);
      expect(page.split('\n## Limits\n')[1]).toContain(`| \`${name}\` |`);
      const shipped = parse(readFileSync('.ai/config/agent/resilience.yaml', 'utf8')) as {
        readonly limits: Readonly<Record<string, unknown>>;
      };
      expect(shipped.limits[name]).toBe(SHIPPED_LIMITS[name]);
      const schema = readFileSync('docs/schemas/plan.json', 'utf8');
      expect(schema).toContain(`"${name}": {`);
    },
  );
});
