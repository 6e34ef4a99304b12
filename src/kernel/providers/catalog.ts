import { findProblem, type Problem } from '../core/check.ts';
import { RyeError } from '../core/errors.ts';
import { compact, type JsonObject } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import type { Pricing } from '../core/usage.ts';
import schema from '../schemas/provider.json' with { type: 'json' };
import type { ModelFile, ProviderFile, WireFile } from '../schemas/provider.ts';
import { withRules } from './wire-rules.ts';

/**
 * Ways to switch a model's thinking on and off. `always`: adaptive, cannot be turned off. `adaptive`: on or disabled.
 * `between_tools`: adaptive, and off means thinking between tools only. `budget`: a token budget. `none`: no such thing.
 */
export type ThinkingStyle = NonNullable<ModelFile['thinking']>;

/** A feature that a model may support besides text. Without `tools`, calls are read from its text. */
export type ModelCapability = NonNullable<ModelFile['capabilities']>[number];

/** The capabilities of a model whose configuration names none. */
export const CAPABILITIES: readonly ModelCapability[] = [
  'tools',
  'images',
  'forced_tools',
  'structured_output',
];

/** Servers that speak chat completions, each with its own accent; `compatible` keeps to what all of them know. */
export type Dialect = NonNullable<ProviderFile['dialect']>;

/** One model of a provider: tokens, and USD per million tokens (null: no price is known). */
export interface ModelConfig {
  readonly contextWindow: number;
  readonly maxOutputTokens: number;
  readonly pricing: Pricing | null;
  /** Absent: the adapter decides by the model's id. */
  readonly thinking?: ThinkingStyle;
  readonly capabilities: readonly ModelCapability[];
}

/** One provider as its layered file defines it. It names environment variables and never holds a secret. */
export interface ProviderConfig {
  readonly name: string;
  readonly kind: string;
  /** Used by the kind `openai` only. */
  readonly dialect: Dialect;
  /** May hold `{VARIABLE}` and `{VARIABLE:default}`, see {@link addressOf}. */
  readonly baseUrl: string | null;
  /** Variable that overrides `baseUrl`. */
  readonly baseUrlEnv: string | null;
  /** Variable with the key; null for servers that need none. */
  readonly apiKeyEnv: string | null;
  /** Variable with a bearer token, used where there is no key. */
  readonly authTokenEnv: string | null;
  /** Program and arguments that print the key if its variable is not set, and another one if it was refused. */
  readonly credentialCommand?: readonly string[];
  /** True for a server that is also called without a key. */
  readonly keyOptional: boolean;
  /** Header that carries the key instead of the usual one of the API. */
  readonly keyHeader: string | null;
  /** Path of chat completions below the address; `{model}` is replaced. Used by the kind `openai` only. */
  readonly chatPath: string | null;
  /** Signing name of an AWS service: without a token, requests are signed with AWS access keys. */
  readonly awsService: string | null;
  /** Name of the provider in the price table; null: only prices of files count. */
  readonly priceList: string | null;
  /** The most output tokens that one call gets in a second, generously: bounds what a call cost that a crash cut. */
  readonly outputTokensPerSecond: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Beta features that each request asks for. Used by the kind `anthropic` only, as is `contextManagement`. */
  readonly betas?: readonly string[];
  /** Has the server edit the context: the member of the API with that name. */
  readonly contextManagement?: JsonObject;
  readonly models: Readonly<Record<string, ModelConfig>>;
  /** Applies to ids that `models` does not list; null: such ids are refused. */
  readonly otherModels: ModelConfig | null;
  /** Tier to model id, aliases included. */
  readonly tiers: Readonly<Record<string, string>>;
  /** Models to try, in this order, when the first one fails for good; `provider/model` where it is another's. */
  readonly fallback: readonly string[];
  /** `YYYY-MM-DD` of the prices. */
  readonly pricesAsOf: string | null;
  /** Members that only this kind of provider has. */
  readonly options: JsonObject;
  /** The API's rules for requests where they differ from the rules of its kind. */
  readonly wire?: WireFile;
}

/** A member of a provider file that its kind refuses. */
export interface OptionProblem {
  readonly member: string;
  /** Follows the name of the member, such as `must be a text`. */
  readonly problem: string;
}

/** The part of a kind of provider that the catalog checks. */
interface KnownKind {
  readonly traits: { readonly embedded: boolean };
  readonly checkOptions?: (options: JsonObject) => OptionProblem | undefined;
}

/** Output tokens a second of a provider whose file names no rate: several times what large models write. */
export const OUTPUT_TOKENS_PER_SECOND = 500;

/** All configured providers by name. */
export type Catalog = Readonly<Record<string, ProviderConfig>>;

/** A merged configuration file, and for each dotted path the `file:line` that set it. */
export interface LayeredConfig {
  readonly value: JsonObject;
  readonly origins: ReadonlyMap<string, string>;
  /** True for a file that rye ships and that nothing changes here: the build has checked it. */
  readonly isShipped?: boolean;
}

/** Every provider may have a model for each of these. */
export const TIERS: readonly string[] = ['fast', 'general', 'high', 'max'];

/** Names that directives use for the four tiers; a provider's own `tiers` win. */
const TIER_ALIASES: Readonly<Record<string, string>> = {
  low: 'fast',
  small: 'fast',
  mini: 'fast',
  haiku: 'fast',
  medium: 'general',
  default: 'general',
  sonnet: 'general',
  large: 'high',
  opus: 'high',
  orchestrator: 'high',
};

/** True for the names that always mean a tier, whether or not a provider has it. */
export function isTierName(name: string): boolean {
  return TIERS.includes(name) || Object.hasOwn(TIER_ALIASES, name);
}

/** Returns the file and line of a dotted path, or of the nearest parent that has one. */
type Locate = (path: string) => string;

/**
 * Parses the layered files of `.ai/config/agent/providers/`, keyed by provider name. Throws `config_invalid` with file
 * and line for anything unknown (a kind that is not among `kinds` too), negative or dangling (a tier without a model).
 * Providers in `ignored` have a file that does not count: no fallback leads to them.
 */
export function parseCatalog(
  files: Readonly<Record<string, LayeredConfig>>,
  kinds: Readonly<Record<string, KnownKind>>,
  ignored: readonly string[] = [],
): Catalog {
  const known = { providers: Object.keys(files), ignored, kinds };
  const providers = Object.entries(files).map(
    ([name, file]) => [name, parseProvider(name, file, known)] as const,
  );
  return Object.fromEntries(
    providers.map(([name, one]) => {
      // another server of a vendor's dialect has the vendor's rules
      const vendor = providers.find(([other]) => other === one.dialect)?.[1];
      const wire =
        one.kind === vendor?.kind ? withRules(vendor.wire ?? {}, one.wire ?? {}) : one.wire;
      return [name, { ...one, ...compact({ wire }) }];
    }),
  );
}

/** The configuration of a provider that is part of rye: one model with the same name, which costs nothing. */
export function embeddedConfig(name: string): ProviderConfig {
  const model: ModelConfig = {
    contextWindow: 10_000_000,
    maxOutputTokens: 1_000_000,
    pricing: { input: 0, output: 0, cache_read: 0, cache_write: 0 },
    capabilities: CAPABILITIES,
  };
  return {
    name,
    kind: name,
    dialect: 'compatible',
    baseUrl: null,
    baseUrlEnv: null,
    apiKeyEnv: null,
    authTokenEnv: null,
    keyOptional: false,
    keyHeader: null,
    chatPath: null,
    awsService: null,
    priceList: null,
    outputTokensPerSecond: OUTPUT_TOKENS_PER_SECOND,
    headers: {},
    models: { [name]: model },
    otherModels: null,
    tiers: {},
    fallback: [],
    pricesAsOf: null,
    options: {},
  };
}

function parseProvider(
  name: string,
  layered: LayeredConfig,
  known: {
    providers: readonly string[];
    ignored: readonly string[];
    kinds: Readonly<Record<string, KnownKind>>;
  },
): ProviderConfig {
  const { value, isShipped } = layered;
  const locate: Locate = (path) => {
    const { origins } = layered;
    for (let at = path; at !== ''; at = at.slice(0, Math.max(0, at.lastIndexOf('.')))) {
      const origin = origins.get(at);
      if (origin !== undefined) return `${origin}: provider ${name}: ${path}`;
    }
    // a member that is missing is named with the file that lacks it
    const file = [...origins.values()].at(-1)?.replace(/:\d+$/, '');
    return `${file === undefined ? '' : `${file}: `}provider ${name}: ${path}`;
  };
  const { kind, options, file } = parseKind(value, known.kinds, locate);
  const problem = isShipped ? undefined : findProblem(schema, file);
  if (problem) throw problemError(problem, locate);
  const raw = file as ProviderFile;
  const others = raw.other_models;
  const models = Object.fromEntries(
    Object.entries(raw.models ?? {}).map(([id, model]) => [id, modelConfig(model)]),
  );
  const isModel = (id: string): boolean => others !== undefined || Object.hasOwn(models, id);
  const fallback = (raw.fallback ?? []).filter(
    (id) => Object.hasOwn(models, id) || !isOf(known.ignored, id),
  );
  const missing = fallback.find((id) => !isModel(id) && !isOf(known.providers, id));
  if (missing !== undefined) {
    const shown = JSON.stringify(missing);
    throw invalid(`${locate('fallback')} has ${shown}, which is not a model of this provider`);
  }
  return {
    name,
    kind,
    dialect: raw.dialect ?? 'compatible',
    ...connectionOf(raw, locate),
    models,
    otherModels: others === undefined ? null : modelConfig(others),
    tiers: resolveTiers(raw.tiers ?? {}, isModel, locate),
    fallback,
    pricesAsOf: raw.prices_as_of ?? null,
    options,
    ...compact({
      credentialCommand: commandOf(raw, locate),
      wire: raw.wire,
      betas: raw.betas ?? undefined,
      contextManagement: (raw.context_management ?? undefined) as JsonObject | undefined,
    }),
  };
}

/** True for a model of one of these other providers. */
function isOf(names: readonly string[], id: string): boolean {
  return names.some((other) => id.startsWith(`${other}/`));
}

/** A command gives the value of a variable, which names the kind of credential. */
function commandOf(raw: ProviderFile, locate: Locate): readonly string[] | undefined {
  const { credential_command: command, api_key_env: key, auth_token_env: token } = raw;
  if (!command) return undefined;
  if (key || token) return command;
  throw invalid(
    `${locate('credential_command')} has no variable to fill`,
    'Name one with api_key_env or auth_token_env.',
  );
}

/** Returns the address of a provider and its credential. */
function connectionOf(raw: ProviderFile, locate: Locate) {
  return {
    baseUrl: httpUrl(raw.base_url, locate),
    baseUrlEnv: raw.base_url_env ?? null,
    apiKeyEnv: raw.api_key_env ?? null,
    authTokenEnv: raw.auth_token_env ?? null,
    keyOptional: raw.key_optional ?? false,
    keyHeader: raw.key_header ?? null,
    chatPath: raw.chat_path ?? null,
    awsService: raw.aws_service ?? null,
    priceList: raw.price_list ?? null,
    outputTokensPerSecond: raw.output_tokens_per_second ?? OUTPUT_TOKENS_PER_SECOND,
    headers: raw.headers ?? {},
  };
}

/** True for a member that providers of every kind may have. */
function isCommon(member: string): boolean {
  return Object.hasOwn(schema.properties, member);
}

/** Parses the kind, and splits the members that only this kind has from the others. */
function parseKind(
  value: JsonObject,
  kinds: Readonly<Record<string, KnownKind>>,
  locate: Locate,
): { readonly kind: string; readonly options: JsonObject; readonly file: JsonObject } {
  const { kind: name } = value;
  const kind = typeof name === 'string' && Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  if (!kind || kind.traits.embedded || typeof name !== 'string') {
    const names = Object.keys(kinds).filter((known) => kinds[known]?.traits.embedded === false);
    const near = typeof name === 'string' ? didYouMean(name, names) : undefined;
    const hint = near ?? `Use ${names.join(' or ')}.`;
    throw invalid(
      name === undefined
        ? `${locate('kind')} is missing`
        : `${locate('kind')} is ${JSON.stringify(name)}`,
      name === undefined ? `Add a line such as kind: ${names.at(-1) ?? 'openai'}.` : hint,
    );
  }
  if (!kind.checkOptions) return { kind: name, options: {}, file: value };
  const members = Object.entries(value);
  const options = Object.fromEntries(members.filter(([member]) => !isCommon(member)));
  const refused = kind.checkOptions(options);
  if (refused) throw invalid(`${locate(refused.member)} ${refused.problem}`);
  return {
    kind: name,
    options,
    file: Object.fromEntries(members.filter(([member]) => isCommon(member))),
  };
}

function problemError({ path, text, hint, known }: Problem, locate: Locate): RyeError {
  // an item of a list is named by its list
  const names = path.filter((step) => typeof step === 'string');
  const all = known && `Known: ${known.join(', ')}.`;
  return invalid(`${locate(names.join('.'))} ${text}`, hint ?? all);
}

function modelConfig(model: ModelFile): ModelConfig {
  return {
    contextWindow: model.context_window,
    maxOutputTokens: model.max_output_tokens,
    pricing: model.pricing ? compact(model.pricing) : null,
    capabilities: model.capabilities ?? CAPABILITIES,
    ...compact({ thinking: model.thinking }),
  };
}

/** A tier names a model of this provider, or another tier. */
function resolveTiers(
  own: Readonly<Record<string, string>>,
  known: (id: string) => boolean,
  locate: Locate,
): Readonly<Record<string, string>> {
  const all = { ...TIER_ALIASES, ...own };
  const tiers: Record<string, string> = {};
  for (const name of Object.keys(all)) {
    let target = name;
    const seen = new Set<string>();
    while (Object.hasOwn(all, target) && !seen.has(target)) {
      seen.add(target);
      target = all[target] ?? '';
    }
    if (!Object.hasOwn(all, target) && known(target)) {
      tiers[name] = target;
    } else if (Object.hasOwn(own, name)) {
      throw invalid(
        `${locate(`tiers.${name}`)} is ${JSON.stringify(own[name])}, which is neither a model nor a tier of this provider`,
        didYouMean(target, Object.keys(all)),
      );
    }
    // skip an alias of a tier that this provider does not have
  }
  return tiers;
}

/** The variables of an address count as any text, and one at the start as a whole address. */
function httpUrl(text: string | null | undefined, locate: Locate): string | null {
  if (text === null || text === undefined) return null;
  const filled = text
    .replace(/^\{[A-Z][A-Z0-9_]*\}/, 'https://x')
    .replaceAll(/\{[A-Z][A-Z0-9_]*(?::[\w.-]*)?\}/g, 'x');
  if (/^https?:\/\/[^\s{}]+$/.test(filled) && URL.canParse(filled)) return text;
  throw invalid(
    `${locate('base_url')} is ${JSON.stringify(text)}`,
    'Use a URL that starts with https:// or http://.',
  );
}

function invalid(message: string, hint?: string): RyeError {
  return new RyeError('config_invalid', message, { hint });
}
