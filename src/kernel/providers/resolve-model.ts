import { RyeError } from '../core/errors.ts';
import type { PlannedModel } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import {
  type Catalog,
  embeddedConfig,
  isTierName,
  type ModelConfig,
  type ProviderConfig,
  TIERS,
} from './catalog.ts';
import { isSetUp } from './endpoint.ts';
import type { ProviderTraits } from './provider.ts';

export interface ModelWish {
  /** A tier, a model id or `provider/model`; undefined: the tier `general`. */
  readonly wanted?: string | undefined;
  readonly provider?: string | undefined;
  /** True: a model that no file lists is taken as {@link UNLISTED}, without a price, if it is clear whose it is. */
  readonly allowUnlisted?: boolean;
}

/** Assumed for a model that no file describes: bounds that every model of today keeps, and no price. */
export const UNLISTED: ModelConfig = {
  contextWindow: 128_000,
  maxOutputTokens: 4096,
  pricing: null,
  capabilities: ['tools'],
};

/** Ids that begin so belong to this kind of provider. */
const FAMILIES: readonly (readonly [prefix: RegExp, provider: string])[] = [
  [/^claude-/, 'anthropic'],
  [/^(?:gpt-|o\d|chatgpt-)/, 'openai'],
  [/^gemini-/, 'gemini'],
  [/^(?:mistral|magistral|ministral|codestral|devstral)-/, 'mistral'],
];

export interface ModelChoices {
  readonly catalog: Catalog;
  readonly kinds: Readonly<Record<string, { readonly traits: ProviderTraits }>>;
  /** Providers that could be called now, see {@link usableProviders}. */
  readonly usable: readonly string[];
  /** The variables that must be set before a provider can be called; default: that of its key if it is not usable. */
  readonly missing?: Readonly<Record<string, readonly string[]>>;
  /** `provider.default` of the configuration. */
  readonly defaultProvider?: string | undefined;
  /** `provider.model`: the model for directives that name none. */
  readonly defaultModel?: string | undefined;
  /** `provider.order`: decides between several usable providers. Providers that it does not name come last. */
  readonly order?: readonly string[] | undefined;
}

/**
 * Names of the providers that the user has set up in `env`: their key or token is set, and their address is complete. A
 * server that needs no key counts when the variable with its address is set: the shipped configuration always lists it,
 * but it may not be running.
 */
export function usableProviders(
  catalog: Catalog,
  env: Readonly<Record<string, string | undefined>>,
): readonly string[] {
  return Object.values(catalog)
    .filter((provider) => isSetUp(provider, env))
    .map(({ name }) => name);
}

/**
 * Picks the model of a thread. A named provider or an exact id decides; a tier goes to the configured default
 * provider, else to the first usable one in the preference order, else, when none is usable, to `literal`. Errors:
 * `model_not_found` with near names, `provider_key_missing` with the variables to set.
 */
export function resolveModel(wish: ModelWish, choices: ModelChoices): PlannedModel {
  const { provider: named, allowUnlisted = false } = wish;
  const wanted = wantedOf(wish, choices);
  const provider = named === undefined ? undefined : providerName(named, choices);
  const owner = provider ?? ownerOf(wanted, choices);
  if (allowUnlisted && owner !== undefined) {
    const unlisted = unlistedModel(wanted, owner, choices);
    if (unlisted !== undefined) return unlisted;
  }
  if (provider !== undefined) return fromNamedProvider(provider, wish.wanted, choices);
  const own = embeddedModel(wanted, choices);
  if (own !== undefined) return own;
  const sellers = Object.values(choices.catalog).filter((candidate) =>
    Object.hasOwn(candidate.models, wanted),
  );
  const qualified = qualifiedId(wanted, choices);
  // a reseller's id such as openai/x also names the maker's own x: the callable model wins
  const isSold = sellers.some(({ name }) => choices.usable.includes(name));
  const isDirect = qualified !== undefined && choices.usable.includes(qualified.provider);
  if (sellers.length > 0 && (isSold || !isDirect)) return fromListing(wanted, sellers, choices);
  if (qualified) return fromNamedProvider(qualified.provider, qualified.id, choices);
  return fromTier(wanted, choices);
}

/** Returns the model or tier to look for: the configured default counts if the wish names neither model nor provider. */
function wantedOf({ wanted, provider }: ModelWish, { defaultModel }: ModelChoices): string {
  return wanted ?? (provider === undefined ? defaultModel : undefined) ?? 'general';
}

/** Rye OS names a provider by the id of its manifest, such as rye/agent/providers/anthropic/anthropic. */
function providerName(name: string, { catalog }: ModelChoices): string {
  const last = name.split('/').at(-1) ?? name;
  return !Object.hasOwn(catalog, name) && Object.hasOwn(catalog, last) ? last : name;
}

/** The configured provider that an id names by `provider/` or by its family; undefined if that is not clear. */
function ownerOf(wanted: string, choices: ModelChoices): string | undefined {
  const family = FAMILIES.find(([prefix]) => prefix.test(wanted))?.[1];
  const owner = qualifiedId(wanted, choices)?.provider ?? family;
  return owner !== undefined && Object.hasOwn(choices.catalog, owner) ? owner : undefined;
}

/** A model of `owner` that nothing lists; undefined for one that something lists, a tier, or a provider that takes any id. */
function unlistedModel(
  wanted: string,
  owner: string,
  choices: ModelChoices,
): PlannedModel | undefined {
  const provider = providerOf(choices.catalog, owner);
  if (provider === undefined || provider.otherModels !== null || isTierName(wanted))
    return undefined;
  const id = qualifiedId(wanted, choices)?.id ?? wanted;
  if (isTier(provider, wanted) || Object.hasOwn(provider.models, id)) return undefined;
  assertReady(provider, choices);
  return planned(provider, id, null, UNLISTED);
}

/** `provider/model` of a configured provider, taken apart. */
function qualifiedId(wanted: string, { catalog }: ModelChoices) {
  const slash = wanted.indexOf('/');
  const provider = wanted.slice(0, Math.max(0, slash));
  return slash > 0 && Object.hasOwn(catalog, provider)
    ? { provider, id: wanted.slice(slash + 1) }
    : undefined;
}

/**
 * The models to try after `first` failed for good: the models that the directive names, else the provider's
 * `fallback`. A name that cannot be resolved is an error, so that a plan never promises what is not there.
 */
export function resolveFallbacks(
  first: PlannedModel,
  names: readonly string[] | undefined,
  choices: ModelChoices,
): readonly PlannedModel[] {
  const provider = providerOf(choices.catalog, first.provider);
  const models =
    names === undefined || names.length === 0
      ? (provider?.fallback ?? []).map((id) => resolveModel(fallbackWish(id, provider), choices))
      : names.map((wanted) => resolveModel({ wanted }, choices));
  const seen = new Set([keyOf(first)]);
  return models.filter((model) => !seen.has(keyOf(model)) && seen.add(keyOf(model)));
}

/** A model that the provider lists belongs to it, even if its id contains a slash; `other/model` belongs to the other provider. */
function fallbackWish(id: string, provider: ProviderConfig | undefined): ModelWish {
  const isOwn = provider === undefined || Object.hasOwn(provider.models, id);
  const slash = id.indexOf('/');
  if (isOwn || slash <= 0) return { wanted: id, provider: provider?.name };
  const prefix = id.slice(0, slash);
  return { wanted: id.slice(slash + 1), provider: prefix };
}

function keyOf({ provider, id }: PlannedModel): string {
  return `${provider}/${id}`;
}

function fromNamedProvider(
  name: string,
  wanted: string | undefined,
  choices: ModelChoices,
): PlannedModel {
  const own = embeddedModel(name, choices);
  if (own !== undefined) return own;
  const provider = providerOf(choices.catalog, name);
  if (provider === undefined) {
    const names = [...Object.keys(choices.catalog), ...embeddedNames(choices)];
    const file = name.replaceAll(/[^A-Za-z0-9_-]/g, '-');
    throw new RyeError('model_not_found', `unknown provider ${JSON.stringify(name)}`, {
      hint:
        didYouMean(name, names) ??
        `Configured: ${names.join(', ')}. To add it, write .ai/config/agent/providers/${file}.yaml (see docs/providers.md) and run: rye sign config agent/providers/${file}`,
      details: { provider: name },
    });
  }
  const model = pick(provider, wanted ?? 'general');
  if (model === undefined) throw notOfProvider(wanted ?? 'general', provider, choices);
  // a local server without a key is usable once it is named
  assertReady(provider, choices);
  return model;
}

/** Returns the providers in the configured order of preference. */
export function byPreference<P extends Pick<ProviderConfig, 'name'>>(
  providers: readonly P[],
  { order = [] }: Pick<ModelChoices, 'order'>,
): readonly P[] {
  const rank = ({ name }: P): number => (order.includes(name) ? order.indexOf(name) : order.length);
  return providers.toSorted((a, b) => rank(a) - rank(b));
}

/** Several providers may sell one id: the default one, else the first usable one in the preference order. */
function fromListing(
  id: string,
  sellers: readonly ProviderConfig[],
  choices: ModelChoices,
): PlannedModel {
  const preferred = sellers.find(({ name }) => name === choices.defaultProvider);
  const usable = sellers.filter(({ name }) => choices.usable.includes(name));
  const [first] = byPreference(usable.length > 0 ? usable : sellers, choices);
  const seller = preferred ?? first;
  if (seller === undefined) throw unknownModel(id, Object.values(choices.catalog));
  return fromNamedProvider(seller.name, id, choices);
}

function fromTier(wanted: string, choices: ModelChoices): PlannedModel {
  const { catalog, usable, defaultProvider } = choices;
  const providers = Object.values(catalog);
  if (defaultProvider !== undefined) return fromNamedProvider(defaultProvider, wanted, choices);
  const withTier = providers.filter(
    (provider) => pick(provider, wanted) !== undefined && isTier(provider, wanted),
  );
  const isUsable = ({ name }: ProviderConfig): boolean => usable.includes(name);
  const [first] = byPreference(withTier.filter(isUsable), choices);
  if (first !== undefined) return fromNamedProvider(first.name, wanted, choices);
  // an id that no file lists, for a server that takes any
  const open = providers.filter((one) => one.otherModels !== null && isUsable(one));
  const [server] = byPreference(open, choices);
  if (withTier.length === 0 && server !== undefined) {
    return fromNamedProvider(server.name, wanted, choices);
  }
  if (withTier.length === 0 && wanted !== 'general') throw unknownModel(wanted, providers);
  if (usable.length > 0)
    throw unknownModel(
      wanted,
      providers.filter(({ name }) => usable.includes(name)),
    );
  return withoutModel(wanted, choices);
}

/** Returns the name of the embedded provider that executes explicit steps without a model. */
export function stepProviderOf(choices: Pick<ModelChoices, 'kinds'>): string | undefined {
  return embeddedNames(choices).find((name) => choices.kinds[name]?.traits.replayable);
}

function withoutModel(wanted: string, choices: ModelChoices): PlannedModel {
  const name = stepProviderOf(choices);
  const model = name === undefined ? undefined : embeddedModel(name, choices);
  if (model) return model;
  throw unknownModel(wanted, Object.values(choices.catalog));
}

function isTier(provider: ProviderConfig, name: string): boolean {
  return Object.hasOwn(provider.tiers, name);
}

function pick(provider: ProviderConfig, wanted: string): PlannedModel | undefined {
  const tier = isTier(provider, wanted) ? wanted : null;
  const id = tier === null ? wanted : (provider.tiers[tier] ?? wanted);
  // a server that takes any id must not be asked for a model named "general"
  const others = isTierName(id) ? null : provider.otherModels;
  const model = Object.hasOwn(provider.models, id) ? provider.models[id] : others;
  return model ? planned(provider, id, tier, model) : undefined;
}

function planned(
  provider: ProviderConfig,
  id: string,
  tier: string | null,
  { contextWindow, maxOutputTokens, pricing }: ModelConfig,
): PlannedModel {
  return {
    provider: provider.name,
    kind: provider.kind,
    id,
    tier,
    context_window: contextWindow,
    max_output_tokens: maxOutputTokens,
    pricing,
  };
}

function providerOf(catalog: Catalog, name: string): ProviderConfig | undefined {
  return Object.hasOwn(catalog, name) ? catalog[name] : undefined;
}

function embeddedNames({ kinds }: Pick<ModelChoices, 'kinds'>): readonly string[] {
  return Object.keys(kinds).filter((name) => kinds[name]?.traits.embedded);
}

function embeddedModel(name: string, choices: ModelChoices): PlannedModel | undefined {
  return embeddedNames(choices).includes(name) ? pick(embeddedConfig(name), name) : undefined;
}

/** True if it is never called without a key. */
export function needsKey({ apiKeyEnv, authTokenEnv, keyOptional }: ProviderConfig): boolean {
  return !keyOptional && (apiKeyEnv !== null || authTokenEnv !== null);
}

/** A provider may miss its key, the variables of its address, or both. */
export function assertReady(
  provider: ProviderConfig,
  { usable, missing }: Pick<ModelChoices, 'usable' | 'missing'>,
): void {
  const { name } = provider;
  if (usable.includes(name)) return;
  const unknown = needsKey(provider) ? [variableOf(provider)] : [];
  const variables = missing === undefined ? unknown : (missing[name] ?? []);
  const [variable = ''] = variables;
  if (variables.length === 0) return;
  const what = variable === variableOf(provider) ? 'key' : 'address';
  throw new RyeError('provider_key_missing', `the provider ${name} has no ${what}`, {
    hint: `Set ${variables.join(' and ')} in the environment or in ~/.ai/.env, or choose another provider: rye models list`,
    details: { provider: name, variable, variables },
  });
}

/** The variable of its key, else of its token or address; empty if it has none. */
export function variableOf({ apiKeyEnv, authTokenEnv, baseUrlEnv }: ProviderConfig): string {
  return apiKeyEnv ?? authTokenEnv ?? baseUrlEnv ?? '';
}

/** Joins names for a sentence. */
function listed(names: readonly string[]): string {
  return names.length < 2
    ? names.join('')
    : `${names.slice(0, -1).join(', ')} or ${names.at(-1) ?? ''}`;
}

/** Returns the error for a model that the named provider lacks; the hint names the providers that have it. */
function notOfProvider(
  wanted: string,
  provider: ProviderConfig,
  { catalog }: ModelChoices,
): RyeError {
  const others = Object.values(catalog).filter((other) => Object.hasOwn(other.models, wanted));
  const names = [...Object.keys(provider.models), ...Object.keys(provider.tiers)];
  const elsewhere = others.map(({ name }) => `--provider ${name}`);
  return new RyeError(
    'model_not_found',
    `the provider ${provider.name} offers no model or tier ${JSON.stringify(wanted)}`,
    {
      hint:
        elsewhere.length > 0
          ? `Pass ${listed(elsewhere)}, which has it.`
          : [
              didYouMean(wanted, names) ?? `It has ${Object.keys(provider.models).join(', ')}.`,
              'List them: rye models list.',
              howToAdd(provider.name),
            ].join(' '),
      details: { wanted, providers: [provider.name] },
    },
  );
}

function unknownModel(wanted: string, providers: readonly ProviderConfig[]): RyeError {
  const names = providers.flatMap(({ models, tiers }) => [
    ...Object.keys(models),
    ...Object.keys(tiers),
  ]);
  return new RyeError(
    'model_not_found',
    `no provider offers the model or tier ${JSON.stringify(wanted)}`,
    {
      hint: [
        didYouMean(wanted, names) ?? `Use a tier (${TIERS.join(', ')}) or a listed model.`,
        'List them: rye models list.',
        howToAdd(FAMILIES.find(([prefix]) => prefix.test(wanted))?.[1]),
      ].join(' '),
      details: { wanted, providers: providers.map(({ name }) => name) },
    },
  );
}

/** Names the two ways to a model that no file lists. */
function howToAdd(provider = 'NAME'): string {
  return `To add a model with its price, edit .ai/config/agent/providers/${provider}.yaml (see docs/providers.md); to run it without a price, pass --provider ${provider} --allow-unpriced.`;
}
