import type { Pricing } from '../core/usage.ts';
import type { Catalog, ModelConfig, ProviderConfig } from './catalog.ts';
import table from './prices.json' with { type: 'json' };
import { UNLISTED } from './resolve-model.ts';

/** USD per million tokens: input, output, cache reads and writes; then the tokens of the longest prompt at this price. */
type Row = readonly (number | null)[];

const LISTS = table.lists as unknown as Readonly<Record<string, Readonly<Record<string, Row>>>>;

/** The package that the table was made from, and the `YYYY-MM-DD` of its data. */
export const PRICE_TABLE = { source: table.source, asOf: table.as_of };

/** Returns the catalog with the models of the table, for providers that name a list of it. Prices of files win. */
export function withTable(catalog: Catalog): Catalog {
  const providers = Object.entries(catalog).map(
    ([name, provider]) => [name, { ...provider, models: modelsOf(provider) }] as const,
  );
  return Object.fromEntries(providers);
}

function modelsOf({ priceList, models, otherModels }: ProviderConfig): ProviderConfig['models'] {
  const list = priceList !== null && Object.hasOwn(LISTS, priceList) ? LISTS[priceList] : undefined;
  if (list === undefined) return models;
  const listed = Object.entries(list).map(
    ([id, row]) => [id, modelOf(row, models[id] ?? otherModels ?? UNLISTED)] as const,
  );
  return { ...Object.fromEntries(listed), ...withoutPriced(models, list) };
}

/** Drops models without a price that the list has. */
function withoutPriced(
  models: ProviderConfig['models'],
  list: Readonly<Record<string, Row>>,
): ProviderConfig['models'] {
  const own = Object.entries(models).filter(
    ([id, { pricing }]) => pricing !== null || !Object.hasOwn(list, id),
  );
  return Object.fromEntries(own);
}

/** A prompt above the longest at this price costs more, so the window ends there. */
function modelOf([input, output, read, write, longest]: Row, base: ModelConfig): ModelConfig {
  const pricing: Pricing = {
    input: input ?? 0,
    output: output ?? 0,
    ...(typeof read === 'number' ? { cache_read: read } : {}),
    ...(typeof write === 'number' ? { cache_write: write } : {}),
  };
  const contextWindow = Math.min(base.contextWindow, longest ?? base.contextWindow);
  const maxOutputTokens = Math.min(base.maxOutputTokens, Math.floor(contextWindow / 2));
  return { ...base, contextWindow, maxOutputTokens, pricing };
}
