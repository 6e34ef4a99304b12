import type { Clock } from '../core/clock.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import { compact, type JsonObject, toText } from '../core/json.ts';
import type { PlannedModel, ThreadPlan } from '../core/plan.ts';
import { appendWhole, assertWritable, writeOutput } from '../disk/whole-file.ts';
import type { Config } from '../items/config-fs.ts';
import type { ProviderFacts } from '../policy/provider-hint.ts';
import { ANTHROPIC } from '../providers/anthropic/provider.ts';
import {
  type Catalog,
  embeddedConfig,
  type LayeredConfig,
  OUTPUT_TOKENS_PER_SECOND,
  type ProviderConfig,
  parseCatalog,
  TIERS,
} from '../providers/catalog.ts';
import { missingVariables } from '../providers/endpoint.ts';
import { DeferredStream } from '../providers/event-batches.ts';
import { LITERAL } from '../providers/literal/provider.ts';
import { nothingToExecute } from '../providers/nothing-to-execute.ts';
import { OPENAI } from '../providers/openai/provider.ts';
import { PriceBook, priceRows, staleWarnings } from '../providers/price-book.ts';
import {
  kindNamed,
  type ModelProvider,
  type ProviderFailure,
  type ProviderKind,
  type ProviderKinds,
  type ProviderTraits,
  traitsOf,
} from '../providers/provider.ts';
import { recordingProvider, replayKind } from '../providers/replay/recording.ts';
import {
  assertReady,
  type ModelChoices,
  type ModelWish,
  resolveFallbacks,
  resolveModel,
  stepProviderOf,
  usableProviders,
} from '../providers/resolve-model.ts';
import type { ModelSource } from '../threads/ports.ts';
import type { PriceList } from './api/rye.ts';
import type { Credentials } from './credentials.ts';
import { readSettings } from './settings.ts';
import type { Workspace } from './workspace.ts';

export interface ModelsOptions {
  readonly readConfig: <T>(read: (config: Config) => Promise<T>) => Promise<T>;
  readonly env: Readonly<Record<string, string | undefined>>;
  readonly userSpacePath: string;
  readonly credentials: Credentials;
  readonly clock: Clock;
  readonly kinds: ProviderKinds;
  /** Keeps what was read; absent: it is read again. */
  readonly catalogs?: WeakMap<Config, Offer>;
}

/** The kinds of providers that rye ships; `replayFrom` is the recording that `replay` plays. */
export function shippedKinds(replayFrom?: string): ProviderKinds {
  return { anthropic: ANTHROPIC, openai: OPENAI, literal: LITERAL, replay: replayKind(replayFrom) };
}

/** Returns the models that a workspace configures; `replayFrom` is the recording that `replay` plays. */
export function modelsOf(workspace: Workspace, replayFrom?: string): Models {
  return new Models({
    readConfig: async (read) => await workspace.readConfig(read),
    env: workspace.options.env,
    userSpacePath: workspace.options.userSpacePath,
    credentials: workspace.credentials,
    clock: workspace.clock,
    kinds: { ...shippedKinds(replayFrom), ...workspace.providers },
    ...(replayFrom === undefined ? { catalogs } : {}),
  });
}

/** The models of each configuration, which is read once too. */
const catalogs = new WeakMap<Config, Offer>();

/** The catalog with its prices, and what of it can be used. */
interface Offer {
  readonly choices: ModelChoices;
  readonly book: PriceBook;
}

const PROVIDERS = 'agent/providers/';
const NO_FILE: LayeredConfig = { value: {}, origins: new Map() };

/** Models from the configured providers; clients are made per thread and read their keys from `env` only. */
export class Models implements ModelSource {
  readonly #options: ModelsOptions;
  #choices: Promise<ModelChoices> | undefined;
  #catalog: Catalog = {};
  #book: PriceBook | undefined;
  readonly #clients = new Map<string, ModelProvider>();

  constructor(options: ModelsOptions) {
    this.#options = options;
  }

  async resolve(facts: Parameters<ModelSource['resolve']>[0]) {
    const { fallback, hasSteps } = facts;
    const choices = await this.choices();
    const { model, wanted, provider, warnings: notes } = await resolveOrTier(facts, choices);
    const { embedded, replayable } = this.traits(model);
    const named = fallback === undefined ? undefined : [fallback];
    const fallbacks = embedded ? [] : resolveFallbacks(model, named, choices);
    const warnings = [...notes, ...(await this.#stale([model, ...fallbacks], choices))];
    const isIdle = replayable && !hasSteps;
    return {
      model,
      fallbacks,
      origin: this.#originOf(model, { wanted, provider }),
      ...(warnings.length === 0 ? {} : { warnings }),
      ...(isIdle ? { unfit: nothingToExecute({ wanted, provider }, choices) } : {}),
    };
  }

  /** Warns of old prices of the models of a plan. */
  async #stale(
    models: readonly PlannedModel[],
    { catalog }: ModelChoices,
  ): Promise<readonly string[]> {
    const prices = await Promise.all(
      models.map(async (model) => ({ model, asOf: await this.#dateOf(model, catalog) })),
    );
    return staleWarnings(prices, this.#options.clock.now());
  }

  async #dateOf({ provider: name, id, pricing }: PlannedModel, catalog: Catalog) {
    const provider = Object.hasOwn(catalog, name) ? catalog[name] : undefined;
    if (provider === undefined || pricing === null) return null;
    const inFile = provider.models[id]?.pricing ?? null;
    if (inFile !== null) return this.#book?.noteOf(provider, id).asOf ?? null;
    if (pricing === provider.otherModels?.pricing) return provider.pricesAsOf;
    return (await import('../providers/price-table.ts')).PRICE_TABLE.asOf;
  }

  /** Returns the prices of the models in the files, with `all` the prices in the table too, and a warning for old ones. */
  async prices({ all = false }: { readonly all?: boolean } = {}): Promise<PriceList> {
    const { catalog } = await this.choices();
    const { PRICE_TABLE, withTable } = await import('../providers/price-table.ts');
    const book = this.#book ?? new PriceBook({}, NO_FILE);
    const nowMs = this.#options.clock.now();
    const sources = { book, files: catalog, tableNote: PRICE_TABLE, nowMs };
    const isShown = ({ provider, model }: JsonObject): boolean =>
      all || Object.hasOwn(catalog[toText(provider ?? '')]?.models ?? {}, toText(model ?? ''));
    const prices = priceRows(withTable(catalog), sources).filter(isShown);
    const priced = Object.values(catalog).flatMap((provider) =>
      Object.entries(provider.models).map(([id, { pricing }]) => ({
        model: { provider: provider.name, pricing },
        asOf: book.noteOf(provider, id).asOf,
      })),
    );
    return { prices, warnings: staleWarnings(priced, nowMs) };
  }

  stepProvider(): string {
    const name = stepProviderOf(this.#options);
    if (name !== undefined) return name;
    throw new RyeError('model_not_found', 'no provider executes steps without a model');
  }

  traits({ kind }: PlannedModel): ProviderTraits {
    return traitsOf(this.#options.kinds, kind);
  }

  /** Throws `provider_key_missing` if the model's provider lacks its key or address. */
  readonly assertReady = async ({ provider }: Pick<PlannedModel, 'provider'>): Promise<void> => {
    const choices = await this.choices();
    const config = Object.hasOwn(choices.catalog, provider) ? choices.catalog[provider] : undefined;
    if (config !== undefined) assertReady(config, choices);
  };

  readonly renewKey: NonNullable<ModelSource['renewKey']> = async ({ provider: name }, key) => {
    const { catalog } = await this.choices();
    const config = Object.hasOwn(catalog, name) ? catalog[name] : undefined;
    if (config === undefined || !(await this.#options.credentials.renew(config, key))) return false;
    this.#clients.delete(name);
    return true;
  };

  readonly about = async (model: PlannedModel): Promise<ProviderFacts> => {
    const { factsOf } = await import('./provider-facts.ts');
    const { catalog } = await this.choices().catch(() => ({ catalog: {} }));
    return factsOf(model, catalog, this.#options);
  };

  async outputRate({ provider: name }: Pick<PlannedModel, 'provider'>): Promise<number> {
    const { catalog } = await this.choices();
    const provider = Object.hasOwn(catalog, name) ? catalog[name] : undefined;
    return provider?.outputTokensPerSecond ?? OUTPUT_TOKENS_PER_SECOND;
  }

  open(model: PlannedModel, plan: ThreadPlan): ModelProvider {
    const kind = kindNamed(this.#options.kinds, model.kind);
    if (kind.traits.embedded) return this.#open(kind, embeddedConfig(model.provider), plan);
    return {
      name: model.provider,
      stream: (request, signal) =>
        new DeferredStream(async () => {
          const client = await this.#client(model.provider, plan);
          return client.stream(request, signal);
        }),
      settle: async (answerId, signal) => {
        const client = await this.#client(model.provider, plan);
        return await client.settle?.(answerId, signal);
      },
    };
  }

  /** A thread that was planned elsewhere has not read the catalog yet. One client serves all calls of a thread. */
  async #client(name: string, plan: ThreadPlan): Promise<ModelProvider> {
    try {
      await this.choices();
      const known = this.#clients.get(name);
      if (known) return known;
      const config = Object.hasOwn(this.#catalog, name) ? this.#catalog[name] : undefined;
      if (config) await this.#options.credentials.ensure(config);
      return this.#connect(name, plan);
    } catch (error) {
      const type = error instanceof RyeError ? error.code : 'internal';
      return failing(name, { phase: 'connect', type, message: messageOf(error) });
    }
  }

  #connect(name: string, plan: ThreadPlan): ModelProvider {
    const config = Object.hasOwn(this.#catalog, name) ? this.#catalog[name] : undefined;
    if (config === undefined) {
      throw new RyeError('model_not_found', `the provider ${name} is not configured any more`);
    }
    const client = this.#open(kindNamed(this.#options.kinds, config.kind), config, plan);
    this.#clients.set(name, client);
    return client;
  }

  #open(kind: ProviderKind, config: ProviderConfig, plan: ThreadPlan): ModelProvider {
    const { credentials, clock } = this.#options;
    const { env } = credentials;
    const {
      stall_seconds: stallSeconds,
      first_byte_seconds: firstByteSeconds,
      connect_seconds: connectSeconds,
    } = plan.settings;
    const times = compact({ stallSeconds, firstByteSeconds, connectSeconds });
    return kind.open({ config, catalog: this.#catalog, plan, env, clock, ...times });
  }

  #originOf(
    model: PlannedModel,
    { wanted, provider }: { wanted?: string | undefined; provider?: string | undefined },
  ): string {
    const isAsked = provider !== undefined || wanted === model.id;
    if (!isAsked && this.traits(model).replayable) return 'default: no provider has a key';
    if (wanted !== undefined) return `asked for: ${wanted}`;
    return provider === undefined
      ? `default of ${model.provider}`
      : `asked for: provider ${provider}`;
  }

  /** The catalog, and its providers with a key. */
  async choices(): Promise<ModelChoices> {
    this.#choices ??= this.#readChoices();
    return await this.#choices;
  }

  async #readChoices(): Promise<ModelChoices> {
    const { catalogs: kept, readConfig } = this.#options;
    const offer = await readConfig(async (config) => {
      const found = kept?.get(config) ?? (await this.#readOffer(config));
      kept?.set(config, found);
      return found;
    });
    this.#book = offer.book;
    this.#catalog = offer.choices.catalog;
    return offer.choices;
  }

  async #readOffer(config: Config): Promise<Offer> {
    const { env, kinds } = this.#options;
    const names = config.names(PROVIDERS);
    const files = await Promise.all(
      names.map(
        async (name): Promise<[string, LayeredConfig]> => [
          name.slice(PROVIDERS.length),
          await config.load(name),
        ],
      ),
    );
    // a file that is ignored or empty configures no provider
    const isEmpty = ([, file]: (typeof files)[number]): boolean =>
      !file.isShipped && file.origins.size === 0;
    const ignored = files.filter(isEmpty).map(([name]) => name);
    const counted = Object.fromEntries(files.filter((file) => !isEmpty(file)));
    const book = new PriceBook(counted, await config.load('agent/prices'), ignored);
    const catalog = parseCatalog(book.files(), kinds, ignored);
    const { provider } = await readSettings(config, 'agent/agent');
    const choices: ModelChoices = {
      catalog,
      kinds,
      usable: usableProviders(catalog, env),
      missing: Object.fromEntries(
        Object.values(catalog).map((one) => [one.name, missingVariables(one, env)]),
      ),
      defaultProvider: provider?.default ?? undefined,
      defaultModel: provider?.model ?? undefined,
      order: provider?.order ?? [],
    };
    return { choices, book };
  }
}

/** The model asked for; a directive that also names a tier gets that if nothing offers the model. */
async function resolveOrTier(
  { wanted, provider, tier, allowUnpriced = false }: Parameters<ModelSource['resolve']>[0],
  choices: ModelChoices,
) {
  const wish = { wanted, provider, allowUnlisted: allowUnpriced };
  try {
    return { model: await resolvePriced(wish, choices), wanted, provider, warnings: [] };
  } catch (error) {
    if (!isUnknownModel(error) || tier === undefined) throw error;
    const model = resolveModel({ wanted: tier }, choices);
    const warning = `${error.message}; the directive's tier "${tier}" is used instead: ${model.provider}/${model.id}`;
    return { model, wanted: tier, provider: undefined, warnings: [warning] };
  }
}

/** Looks in the table of prices only for what the files lack: a model, or its price. */
async function resolvePriced(wish: ModelWish, choices: ModelChoices): Promise<PlannedModel> {
  let model: PlannedModel | undefined;
  let unknown: RyeError | undefined;
  try {
    model = resolveModel(wish, choices);
  } catch (error) {
    if (!isUnknownModel(error)) throw error;
    unknown = error;
  }
  if (model !== undefined && model.pricing !== null) return model;
  const { withTable } = await import('../providers/price-table.ts');
  try {
    return resolveModel(wish, { ...choices, catalog: withTable(choices.catalog) });
  } catch (error) {
    // the hints of the first error name the models of the files
    throw isUnknownModel(error) ? (unknown ?? error) : error;
  }
}

function isUnknownModel(error: unknown): error is RyeError {
  return error instanceof RyeError && error.code === 'model_not_found';
}

/** One row for each model of each provider, as `rye models list` shows it. */
export function modelRows({ catalog, usable, missing, defaultProvider }: ModelChoices) {
  // what can be called now comes first
  const providers = Object.values(catalog).toSorted(
    (left, right) => Number(usable.includes(right.name)) - Number(usable.includes(left.name)),
  );
  return providers.flatMap((provider) =>
    Object.entries(provider.models).map(([id, model]) => ({
      provider: provider.name,
      model: id,
      usable: usable.includes(provider.name),
      tiers: tiersOf(provider, id),
      context_window: model.contextWindow,
      max_output_tokens: model.maxOutputTokens,
      pricing: model.pricing === null ? null : { ...model.pricing },
      prices_as_of: provider.pricesAsOf,
      capabilities: [...model.capabilities],
      fallback: [...provider.fallback],
      needs: [...(missing?.[provider.name] ?? [])],
      key_variable: provider.apiKeyEnv ?? provider.authTokenEnv,
      default_provider: provider.name === defaultProvider,
    })),
  );
}

/** The tiers that a model answers to: the four first, then their aliases. */
function tiersOf({ tiers }: ProviderConfig, id: string): readonly string[] {
  const names = Object.keys(tiers).filter((tier) => tiers[tier] === id);
  const main = TIERS.filter((tier) => names.includes(tier));
  return [...main, ...names.filter((name) => !main.includes(name)).toSorted()];
}

/**
 * Wraps providers so that everything that they send is written to `path`, one JSON object a line. The first line replaces
 * what the file held, so that a run that never gets to a model leaves an older recording alone.
 */
export function openRecording(path: string): (provider: ModelProvider) => ModelProvider {
  assertWritable(path);
  let isBegun = false;
  const record = (line: string): void => {
    if (isBegun) appendWhole(path, `${line}\n`);
    else writeOutput(path, `${line}\n`, { mode: 0o600 });
    isBegun = true;
  };
  return (provider) => recordingProvider(provider, record);
}

function failing(name: string, failure: ProviderFailure): ModelProvider {
  return {
    name,
    async *stream() {
      yield { type: 'error', failure };
    },
  };
}
