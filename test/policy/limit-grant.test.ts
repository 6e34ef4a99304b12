import { describe, expect, it } from 'vitest';
import type { PartialLimits } from '../../src/kernel/core/limits.ts';
import { checkRaises } from '../../src/kernel/policy/limit-grant.ts';
import { SHIPPED_LIMITS } from '../../src/kernel/policy/limits.ts';

const GRANTED = { ...SHIPPED_LIMITS, spend: 0.5, turns: 8 };
const NONE: PartialLimits = {};

describe('limits from outside', () => {
  it.each<[string, PartialLimits, PartialLimits, boolean, PartialLimits | string]>([
    ['nothing wanted', NONE, NONE, false, {}],
    ['lower', { spend: 0.1, turns: 0 }, NONE, false, {}],
    ['equal', { spend: 0.5 }, NONE, false, {}],
    ['lower than a grant above the ceiling', { spend: 0.4 }, { spend: 0.2 }, false, {}],
    ['higher', { spend: 0.51 }, NONE, false, 'raise_limits_required'],
    ['higher with the flag', { spend: 5, turns: 2 }, NONE, true, { spend: 0.5 }],
    ['two higher with the flag', { spend: 5, turns: 9 }, NONE, true, { spend: 0.5, turns: 8 }],
    ['up to the ceiling', { spend: 2 }, { spend: 2 }, false, {}],
    ['up to the ceiling with the flag', { spend: 2 }, { spend: 2 }, true, {}],
    ['above the ceiling', { spend: 2.01 }, { spend: 2 }, false, 'ceiling_exceeded'],
    ['above the ceiling with the flag', { spend: 2.01 }, { spend: 2 }, true, 'ceiling_exceeded'],
    ['a ceiling of another limit', { turns: 9 }, { spend: 2 }, false, 'raise_limits_required'],
    ['a ceiling first', { turns: 9, spend: 3 }, { spend: 2 }, false, 'ceiling_exceeded'],
  ])('%s', (_title, wanted, ceiling, mayRaise, expected) => {
    const check = () =>
      checkRaises({
        directiveId: 'review',
        granted: GRANTED,
        origins: { spend: 'review.md:9' },
        wanted,
        ceiling: { limits: ceiling, origins: { spend: 'resilience.yaml:3' } },
        mayRaise,
      });
    if (typeof expected === 'string')
      expect(check).toThrow(expect.objectContaining({ code: expected }));
    else expect(check()).toEqual(expected);
  });
});
