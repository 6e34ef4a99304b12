import { expect, it } from 'vitest';
import type { ModelConfig, ProviderConfig } from '../../src/kernel/providers/catalog.ts';
import { withTable } from '../../src/kernel/providers/price-table.ts';
import table from '../../src/kernel/providers/prices.json' with { type: 'json' };
import { UNLISTED } from '../../src/kernel/providers/resolve-model.ts';
import { providerConfig } from './fixtures.ts';

const ROWS = table.lists.openai as unknown as Record<string, readonly (number | null)[]>;
const [ID = '', [input, output, , , longest] = []] =
  Object.entries(ROWS).find(([, row]) => (row[4] ?? 0) > 200_000) ?? [];
const LISTED = expect.objectContaining({ input, output }) as unknown;

const model = (changes: Partial<ModelConfig>): ModelConfig => ({ ...UNLISTED, ...changes });

function modelsOf(changes: Partial<ProviderConfig>): ProviderConfig['models'] {
  return withTable({ p: providerConfig({ priceList: 'openai', ...changes }) })['p']?.models ?? {};
}

it('a provider without a list, or with an unknown one, has its own models alone', () => {
  const models = { own: model({}) };
  for (const priceList of [null, 'none', 'constructor'])
    expect(modelsOf({ priceList, models })).toEqual(models);
});

it('a listed model is what the file has of it, else what it has of other models, else unlisted', () => {
  const own = model({ maxOutputTokens: 77 });
  const others = model({ maxOutputTokens: 99 });
  expect(modelsOf({})[ID]).toEqual({ ...UNLISTED, pricing: LISTED });
  expect(modelsOf({ otherModels: others })[ID]).toEqual({ ...others, pricing: LISTED });
  expect(modelsOf({ models: { [ID]: own }, otherModels: others })[ID]).toEqual({
    ...own,
    pricing: LISTED,
  });
});

it('a price of a file wins, and a model that no list has stays as it is', () => {
  const priced = model({ pricing: { input: 7, output: 8 } });
  const models = { [ID]: priced, own: model({}) };
  const found = modelsOf({ models });
  expect([found[ID], found['own']]).toEqual([priced, models.own]);
});

it('the window of a listed model ends with its price, and its answer takes at most half of it', () => {
  const large = model({ contextWindow: 9_000_000, maxOutputTokens: 8_000_000 });
  const found = modelsOf({ models: { [ID]: large } })[ID];
  expect(found).toMatchObject({
    contextWindow: longest,
    maxOutputTokens: Math.floor((longest ?? 0) / 2),
  });
});
