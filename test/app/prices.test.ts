import { readFileSync } from 'node:fs';
import { expect, test } from 'vitest';
import { modelPrices } from '../../scripts/model-prices.mjs';
import { ageDays, staleWarnings } from '../../src/kernel/providers/price-book.ts';

const TABLE = new URL('../../src/kernel/providers/prices.json', import.meta.url);

test('the table of prices matches what the installed package makes', () => {
  expect(readFileSync(TABLE, 'utf8')).toBe(modelPrices());
});

test('a price is old after 60 days, counted in whole days', () => {
  const at = Date.UTC(2026, 10, 23, 12);
  expect(ageDays('2026-09-24', at)).toBe(60);
  expect(ageDays('yesterday', at)).toBeNull();
  const warned = (asOf: string | null, pricing: { input: number; output: number }) =>
    staleWarnings([{ model: { provider: 'p', pricing }, asOf }], at);
  const price = { input: 1, output: 2 };
  expect(warned('2026-09-24', price)).toEqual([]);
  expect(warned('2026-09-23', price)).toEqual([
    expect.stringContaining('prices of p are 61 days old (2026-09-23)'),
  ]);
  expect(warned('2026-09-23', { input: 0, output: 0 })).toEqual([]);
  expect(warned(null, price)).toEqual([]);
});

test('a provider whose prices have one date is warned of once', () => {
  const model = { provider: 'p', pricing: { input: 1, output: 1 } };
  const old = { model, asOf: '2020-01-01' };
  expect(staleWarnings([old, old], Date.UTC(2026, 0, 1))).toHaveLength(1);
});
