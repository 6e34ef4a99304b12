import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import type { PlannedModel } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import type { Pricing } from '../core/usage.ts';
import type { Catalog, LayeredConfig, ProviderConfig } from './catalog.ts';
import { UNLISTED } from './resolve-model.ts';

/** Prices older than this many days cause a warning. */
const STALE_DAYS = 60;
const DAY_MS = 86_400_000;

/** The origin of a price: the `file:line` or the package that states it, and its `YYYY-MM-DD`. */
export interface PriceNote {
  readonly source: string;
  readonly asOf: string | null;
}

/** The prices that the user sets in `agent/prices`, and where each price of the provider files comes from. */
export class PriceBook {
  readonly #files: Readonly<Record<string, LayeredConfig>>;
  readonly #ignored: readonly string[];
  readonly #own: LayeredConfig;
  readonly #prices: JsonObject;
  readonly #asOf: string | null;

  /**
   * Throws `config_invalid` for a file that is no list of prices; `files` are the provider files by name. Prices of
   * providers in `ignored` have no effect.
   */
  constructor(
    files: Readonly<Record<string, LayeredConfig>>,
    own: LayeredConfig,
    ignored: readonly string[] = [],
  ) {
    const { as_of: asOf = null, prices = {}, ...unknown } = own.value;
    const [first] = Object.keys(unknown);
    if (first !== undefined) throw this.#invalid(own, first, 'is unknown');
    if (asOf !== null && typeof asOf !== 'string') throw this.#invalid(own, 'as_of', 'is no date');
    if (!isJsonObject(prices)) throw this.#invalid(own, 'prices', 'is not a mapping');
    this.#files = files;
    this.#ignored = ignored;
    this.#own = own;
    this.#prices = prices;
    this.#asOf = asOf;
  }

  /** Returns the provider files with the user's prices over theirs. The lines in errors refer to the user's file. */
  files(): Readonly<Record<string, LayeredConfig>> {
    const all = { ...this.#files };
    for (const [key, pricing] of Object.entries(this.#prices)) {
      const [name, id] = keyParts(key);
      const file = Object.hasOwn(all, name) ? all[name] : undefined;
      if (this.#ignored.includes(name)) continue;
      if (file === undefined || id === '') {
        const hint = `Write provider/model. Providers: ${Object.keys(all).join(', ')}.`;
        const near = didYouMean(name, Object.keys(all)) ?? hint;
        throw this.#invalid(this.#own, `prices.${key}`, 'names no provider', near);
      }
      all[name] = this.#laidOver(file, { key, id, pricing });
    }
    return all;
  }

  #laidOver(
    file: LayeredConfig,
    { key, id, pricing }: { key: string; id: string; pricing: JsonObject[string] | undefined },
  ): LayeredConfig {
    const models = isJsonObject(file.value['models']) ? file.value['models'] : {};
    const known = Object.hasOwn(models, id) ? models[id] : file.value['other_models'];
    const base = isJsonObject(known) ? known : UNLISTED_FILE;
    const origins = new Map(file.origins);
    for (const [path, origin] of this.#own.origins) {
      if (path.startsWith(`prices.${key}`)) {
        origins.set(`models.${id}.pricing${path.slice(`prices.${key}`.length)}`, origin);
      }
    }
    const priced = { ...models, [id]: { ...base, pricing: pricing ?? null } };
    return { value: { ...file.value, models: priced }, origins };
  }

  /** Returns where the price of a model of the files comes from. */
  noteOf({ name, pricesAsOf }: Pick<ProviderConfig, 'name' | 'pricesAsOf'>, id: string): PriceNote {
    const key = `${name}/${id}`;
    if (Object.hasOwn(this.#prices, key)) {
      return { source: originOf(this.#own, `prices.${key}`), asOf: this.#asOf };
    }
    const file = Object.hasOwn(this.#files, name) ? this.#files[name] : undefined;
    return { source: originOf(file, `models.${id}.pricing`), asOf: pricesAsOf };
  }

  #invalid(file: LayeredConfig, member: string, problem: string, hint?: string): RyeError {
    const more = { hint: hint ?? 'It has as_of, a date, and prices by provider/model.' };
    return new RyeError('config_invalid', `${originOf(file, member)}: ${member} ${problem}`, more);
  }
}

/** The members that a model needs besides its price. */
const UNLISTED_FILE = {
  context_window: UNLISTED.contextWindow,
  max_output_tokens: UNLISTED.maxOutputTokens,
  capabilities: [...UNLISTED.capabilities],
};

function keyParts(key: string): readonly [provider: string, id: string] {
  const slash = key.indexOf('/');
  return slash < 0 ? [key, ''] : [key.slice(0, slash), key.slice(slash + 1)];
}

/** Returns the file and line of a member or of the first one below it. */
function originOf(file: LayeredConfig | undefined, path: string): string {
  const paths = [...(file?.origins ?? [])];
  const found = paths.find(([one]) => one === path || one.startsWith(`${path}.`));
  return found?.[1] ?? 'agent/prices';
}

/** Returns the whole days since a `YYYY-MM-DD`; null if there is no such date. */
export function ageDays(asOf: string | null, nowMs: number): number | null {
  const time = asOf === null ? Number.NaN : Date.parse(`${asOf}T00:00:00Z`);
  return Number.isNaN(time) ? null : Math.max(0, Math.floor((nowMs - time) / DAY_MS));
}

/** A model of a plan with the date of its price. */
export interface PricedModel {
  readonly model: Pick<PlannedModel, 'provider' | 'pricing'>;
  readonly asOf: string | null;
}

/** Returns one warning for each provider and date of old prices. Models that cost nothing have none. */
export function staleWarnings(prices: readonly PricedModel[], nowMs: number): readonly string[] {
  const warnings = prices.flatMap(({ model: { provider, pricing }, asOf }) => {
    const days = ageDays(asOf, nowMs);
    if (pricing === null || isFree(pricing) || days === null || days <= STALE_DAYS) return [];
    return [
      `prices of ${provider} are ${days} days old (${asOf}): compare them with the vendor's, and set them in .ai/config/agent/prices.yaml`,
    ];
  });
  return [...new Set(warnings)];
}

function isFree({ input, output }: Pricing): boolean {
  return input === 0 && output === 0;
}

/** Returns the rows of `rye models prices`; `tableNote` is the origin of the prices that no file states. */
export function priceRows(catalog: Catalog, { book, files, tableNote, nowMs }: PriceSources) {
  return Object.values(catalog).flatMap((provider) =>
    Object.entries(provider.models).flatMap(([id, { pricing }]) => {
      if (pricing === null) return [];
      const inFile = (files[provider.name]?.models[id]?.pricing ?? null) !== null;
      const note = inFile ? book.noteOf(provider, id) : tableNote;
      const days = ageDays(note.asOf, nowMs);
      const { input, output, cache_read = null, cache_write = null } = pricing;
      return [
        {
          provider: provider.name,
          model: id,
          input,
          output,
          cache_read,
          cache_write,
          as_of: note.asOf,
          age_days: days,
          is_stale: !isFree(pricing) && days !== null && days > STALE_DAYS,
          source: note.source,
        },
      ];
    }),
  );
}

/** Everything that tells where a price comes from. */
interface PriceSources {
  readonly book: PriceBook;
  /** The catalog of the files alone. */
  readonly files: Catalog;
  readonly tableNote: PriceNote;
  readonly nowMs: number;
}
