import { describe, expect, it } from 'vitest';
import {
  addCost,
  addFamilyCost,
  type Cost,
  costSince,
  type FamilyCost,
  familyCostOf,
  formatCost,
  formatSpend,
  NO_COST,
  NO_USAGE,
  priceMicroUsd,
} from '../../src/kernel/core/usage.ts';

const measured: Cost = { ...NO_COST, turns: 1, output_tokens: 100, spend: 0.004 };
const cut: Cost = { ...measured, spend: 0.024, estimated_spend_usd: 0.02 };
const family = (cost: Cost): FamilyCost => familyCostOf(cost, []);

it.each([
  [{ input_tokens: 1000 }, 3000],
  [{ output_tokens: 1000 }, 15_000],
  [{ cache_read_tokens: 1000 }, 300],
  [{ cache_write_tokens: 1000 }, 3750],
  [{ input_tokens: 1, cache_read_tokens: 1 }, 4],
])('%o has the price of its kind', (usage, expected) => {
  const pricing = { input: 3, output: 15, cache_read: 0.3, cache_write: 3.75 };
  expect(priceMicroUsd({ ...NO_USAGE, ...usage }, pricing)).toBe(expected);
});

describe('an estimate of a cost', () => {
  it('adds up apart from the spend that holds it, exactly', () => {
    expect(addCost(cut, cut)).toMatchObject({ spend: 0.048, estimated_spend_usd: 0.04 });
    expect(familyCostOf(cut, [family(measured).own]).total).toEqual({
      spend: 0.028,
      estimated_spend_usd: 0.02,
      tokens: 200,
      turns: 2,
    });
    const both = addFamilyCost(family(measured), family(cut));
    expect(both.total).toMatchObject({ spend: 0.028, estimated_spend_usd: 0.02 });
    expect(both.estimated_spend_usd).toBe(0.02);
  });

  it('is of the run that it belongs to', () => {
    expect(costSince(measured, cut)).toMatchObject({ spend: 0.02, estimated_spend_usd: 0.02 });
    const later = addCost(cut, measured);
    expect(costSince(cut, later)).not.toHaveProperty('estimated_spend_usd');
  });

  it('is absent where all was measured', () => {
    expect(addCost(measured, measured)).not.toHaveProperty('estimated_spend_usd');
    expect(family(measured).own).toEqual({ spend: 0.004, tokens: 100, turns: 1 });
  });

  it('makes the spend an upper bound for people', () => {
    expect(formatSpend(cut)).toBe('≤ $0.0240');
    expect(formatSpend(measured)).toBe('$0.0040');
    expect(formatCost(cut)).toBe('1 turn, 100 tokens, ≤ $0.0240, 0ms');
    const parent = { ...measured, own: family(measured).own, total: family(cut).own };
    expect(formatCost(parent)).toContain('$0.0040, ≤ $0.0240 with children');
  });
});
