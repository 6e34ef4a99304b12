import { describe, expect, it } from 'vitest';
import type { PartialLimits } from '../../src/kernel/core/limits.ts';
import { checkRaises } from '../../src/kernel/policy/limit-grant.ts';
import { SHIPPED_LIMITS } from '../../src/kernel/policy/limits.ts';
import { checkedGrant } from '../../src/kernel/threads/recovery/resume.ts';

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

describe('limits for the next run', () => {
  const planned = { limits: GRANTED, directive: { id: 'review' }, origins: {} };
  const check = (more: object, wanted: PartialLimits, mayRaise = false) =>
    checkedGrant(
      { config: { limitCeiling: { limits: NONE, origins: {} } } } as unknown as Configured,
      { planned: { ...planned, ...more }, parent: undefined } as unknown as Resumed,
      wanted,
      mayRaise,
    );
  type Configured = Parameters<typeof checkedGrant>[0];
  type Resumed = Parameters<typeof checkedGrant>[1];

  it('of a child come from its parent: a person grants it none', () => {
    const child = { planned, parent: { limits: GRANTED } } as unknown as Resumed;
    const config = { limitCeiling: { limits: NONE, origins: {} } };
    const granted = checkedGrant({ config } as unknown as Configured, child, { turns: 99 });
    expect(granted).toEqual({ kept: {}, raised: {} });
  });

  it('are bounded by what the first run was granted, also if a later one was granted less', () => {
    expect(check({}, NONE)).toEqual({ kept: {}, raised: {} });
    expect(check({}, { turns: 8 })).toEqual({ kept: { granted_limits: GRANTED }, raised: {} });
    const more = { limits: { ...GRANTED, turns: 2 }, granted_limits: GRANTED };
    expect(check(more, { turns: 8 })).toEqual({ kept: { granted_limits: GRANTED }, raised: {} });
    expect(() => check(more, { turns: 9 })).toThrow(
      expect.objectContaining({ code: 'raise_limits_required' }),
    );
  });

  it('keep what earlier runs raised beside what this one raises', () => {
    const more = { raised_limits: { spend: 0.5 } };
    expect(check(more, { turns: 9 }, true)).toEqual({
      kept: { granted_limits: GRANTED, raised_limits: { spend: 0.5, turns: 8 } },
      raised: { raised_limits: { turns: 8 } },
    });
  });
});
