import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { Limits, PartialLimits } from '../../src/kernel/core/limits.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { limitsOfRun, type UsedLimits } from '../../src/kernel/policy/run-limits.ts';

const LIMITS: Limits = {
  turns: 10,
  tokens: 1000,
  spend: 1,
  duration_seconds: 60,
  spawns: 3,
  depth: 2,
};
const USED: UsedLimits = {
  cost: { ...NO_COST, turns: 4, input_tokens: 300, output_tokens: 100, elapsed_seconds: 20.3 },
  subtreeSpend: 0.3,
  spawns: 2,
};
const LEFT: Limits = {
  turns: 6,
  tokens: 600,
  spend: 0.7,
  duration_seconds: 39.7,
  spawns: 1,
  depth: 2,
};
const WIDE: Limits = {
  turns: 99,
  tokens: 9999,
  spend: 9,
  duration_seconds: 999,
  spawns: 99,
  depth: 9,
};

describe('limitsOfRun', () => {
  it.each<[string, PartialLimits, Limits | undefined, PartialLimits, PartialLimits]>([
    ['what is left of the totals', {}, undefined, LEFT, LIMITS],
    ['what is left under a wide parent', {}, WIDE, LEFT, LIMITS],
    ['a larger grant', { turns: 20 }, undefined, { ...LEFT, turns: 20 }, { ...LIMITS, turns: 24 }],
    ['a smaller grant', { turns: 2 }, undefined, { ...LEFT, turns: 2 }, { ...LIMITS, turns: 6 }],
    ['a grant of money', { spend: 5 }, undefined, { spend: 5 }, { spend: 5.3 }],
    ['a grant of tokens', { tokens: 50 }, undefined, { tokens: 50 }, { tokens: 450 }],
    [
      'a grant of time',
      { duration_seconds: 5 },
      undefined,
      { duration_seconds: 5 },
      { duration_seconds: 25.3 },
    ],
    ['a grant of children', { spawns: 4 }, undefined, { spawns: 4 }, { spawns: 6 }],
    ['another depth, which is not used up', { depth: 5 }, undefined, { depth: 5 }, { depth: 5 }],
    [
      'at most what the parent may give',
      { turns: 500, spend: 100, depth: 50 },
      WIDE,
      { turns: 99, spend: 9, depth: 8 },
      { turns: 103, spend: 9.3, depth: 8 },
    ],
    [
      'less than what is left if the parent may give less',
      {},
      { ...WIDE, turns: 1, depth: 1 },
      { turns: 1, depth: 0 },
      { turns: 5, depth: 0 },
    ],
  ])('gives a run %s', (_, grants, parent, run, total) => {
    const found = limitsOfRun(LIMITS, USED, grants, parent);
    expect(found.run).toMatchObject(run);
    expect(found.total).toMatchObject(total);
  });

  it('gives nothing when more was used than allowed', () => {
    const used = { cost: { ...NO_COST, turns: 11 }, subtreeSpend: 1.5, spawns: 4 };
    expect(limitsOfRun(LIMITS, used).run).toMatchObject({ turns: 0, spend: 0, spawns: 0 });
    expect(limitsOfRun(LIMITS, used, { turns: 3 }).total).toMatchObject({ turns: 14, spend: 1.5 });
  });

  it('keeps the totals of a thread that is resumed again and again without a grant', () => {
    const amount = fc.nat({ max: 1_000_000 });
    fc.assert(
      fc.property(fc.array(fc.tuple(amount, amount), { maxLength: 20 }), (runs) => {
        let limits = LIMITS;
        let used: UsedLimits = { cost: NO_COST, subtreeSpend: 0, spawns: 0 };
        for (const [micro, ms] of runs) {
          const { total, run } = limitsOfRun(limits, used);
          expect(total).toEqual(LIMITS);
          limits = total;
          const spent = Math.min(micro, Math.round(run.spend * 1e6));
          const taken = Math.min(ms, Math.round(run.duration_seconds * 1000));
          used = {
            ...used,
            subtreeSpend: (Math.round(used.subtreeSpend * 1e6) + spent) / 1e6,
            cost: {
              ...used.cost,
              elapsed_seconds: (Math.round(used.cost.elapsed_seconds * 1000) + taken) / 1000,
            },
          };
        }
      }),
      { seed: 3 },
    );
  });
});
