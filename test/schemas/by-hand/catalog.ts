import { RyeError } from '../../../src/kernel/core/errors.ts';
import { isRecord, type JsonObject } from '../../../src/kernel/core/json.ts';
import { didYouMean } from '../../../src/kernel/core/text.ts';
import type { Pricing } from '../../../src/kernel/core/usage.ts';

/**
 * Ways to switch a model's thinking on and off. `always`: adaptive, cannot be turned off. `adaptive`: on or disabled.
 * `between_tools`: adaptive, and off means thinking between tools only. `budget`: a token budget. `none`: no such thing.
 */
const THINKING_STYLES = ['always', 'adaptive', 'between_tools', 'budget', 'none'] as const;
type ThinkingStyle = (typeof THINKING_STYLES)[number];

/** Features that a model may support besides text. Without `tools`, calls are read from its text. */
const CAPABILITIES = ['tools', 'images', 'forced_tools', 'structured_output'] as const;
type ModelCapability = (typeof CAPABILITIES)[number];

/** Servers that speak chat completions, each with its own accent; `compatible` keeps to what all of them know. */
const DIALECTS = [
  'compatible',
  'openai',
  'openrouter',
  'ollama',
  'vllm',
  'llamacpp',
  'azure',
  'gemini',
  'groq',
  'lmstudio',
  'mistral',
] as const;
type Dialect = (typeof DIALECTS)[number];

/** One model of a provider: tokens, and USD per million tokens (null: no price is known). */
interface ModelConfig {
  readonly contextWindow: number;
  readonly maxOutputTokens: number;
  readonly pricing: Pricing | null;
  /** Absent: the adapter decides by the model's id. */
  readonly thinking?: ThinkingStyle;
  readonly capabilities: readonly ModelCapability[];
}

/** One provider as its layered file defines it. It names environment variables and never holds a secret. */
interface ProviderConfig {
  readonly name: string;
  readonly kind: string;
  /** Used by the kind `openai` only. */
  readonly dialect: Dialect;
  readonly baseUrl: string | null;
  /** Variable that overrides `baseUrl`. */
  readonly baseUrlEnv: string | null;
  /** Variable with the key; null for servers that need none. */
  readonly apiKeyEnv: string | null;
  /** Variable with a bearer token, used where there is no key. */
  readonly authTokenEnv: string | null;
  readonly keyOptional: boolean;
  readonly keyHeader: string | null;
  readonly chatPath: string | null;
  readonly awsService: string | null;
  readonly priceList: string | null;
  readonly outputTokensPerSecond: number;
  readonly headers: Readonly<Record<string, string>>;
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
}

/** A member of a provider file that its kind refuses. */
interface OptionProblem {
  readonly member: string;
  /** Follows the name of the member, such as `must be a text`. */
  readonly problem: string;
}

/** The part of a kind of provider that the catalog checks. */
interface KnownKind {
  readonly traits: { readonly embedded: boolean };
  readonly checkOptions?: (options: JsonObject) => OptionProblem | undefined;
}

/** All configured providers by name. */
type Catalog = Readonly<Record<string, ProviderConfig>>;

/** A merged configuration file, and for each dotted path the `file:line` that set it. */
interface LayeredConfig {
  readonly value: JsonObject;
  readonly origins: ReadonlyMap<string, string>;
}

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

const PROVIDER_KEYS = [
  'kind',
  'dialect',
  'description',
  'base_url',
  'base_url_env',
  'api_key_env',
  'auth_token_env',
  'credential_command',
  'key_optional',
  'key_header',
  'chat_path',
  'aws_service',
  'price_list',
  'output_tokens_per_second',
  'headers',
  'betas',
  'context_management',
  'models',
  'other_models',
  'tiers',
  'fallback',
  'prices_as_of',
  'wire',
];
const MODEL_KEYS = ['context_window', 'max_output_tokens', 'pricing', 'thinking', 'capabilities'];
const PRICE_KEYS = ['input', 'output', 'cache_read', 'cache_write'];

/** Returns the file and line of a dotted path, or of the nearest parent that has one. */
type Locate = (path: string) => string;

/**
 * Parses the layered files of `.ai/config/agent/providers/`, keyed by provider name. Throws `config_invalid` with file
 * and line for anything unknown (a kind that is not among `kinds` too), negative or dangling (a tier without a model).
 */
export function parseCatalog(
  files: Readonly<Record<string, LayeredConfig>>,
  kinds: Readonly<Record<string, KnownKind>>,
): Catalog {
  const names = Object.keys(files);
  const providers = Object.entries(files).map(
    ([name, file]) => [name, parseProvider(name, file, { providers: names, kinds })] as const,
  );
  return Object.fromEntries(providers);
}

function parseProvider(
  name: string,
  { value, origins }: LayeredConfig,
  known: { providers: readonly string[]; kinds: Readonly<Record<string, KnownKind>> },
): ProviderConfig {
  const locate: Locate = (path) => {
    for (let at = path; at !== ''; at = at.slice(0, Math.max(0, at.lastIndexOf('.')))) {
      const origin = origins.get(at);
      if (origin !== undefined) return `${origin}: provider ${name}: ${path}`;
    }
    const file = [...origins.values()].at(-1)?.replace(/:\d+$/, '');
    return `${file === undefined ? '' : `${file}: `}provider ${name}: ${path}`;
  };
  const { kind, options } = parseKind(value, known.kinds, locate);
  const models: Record<string, ModelConfig> = {};
  for (const [id, raw] of members(value['models'], 'models', locate)) {
    models[id] = parseModel(raw, `models.${id}`, locate);
  }
  const otherModels =
    value['other_models'] === undefined
      ? null
      : parseModel(value['other_models'], 'other_models', locate);
  const isModel = (id: string): boolean => otherModels !== null || Object.hasOwn(models, id);
  return {
    name,
    kind,
    dialect: parseDialect(value['dialect'], locate),
    baseUrl: optionalUrl(value['base_url'], locate),
    baseUrlEnv: optionalText(value['base_url_env'], 'base_url_env', locate),
    apiKeyEnv: optionalText(value['api_key_env'], 'api_key_env', locate),
    authTokenEnv: optionalText(value['auth_token_env'], 'auth_token_env', locate),
    keyOptional: optionalSwitch(value['key_optional'], locate),
    keyHeader: optionalPattern(value['key_header'], 'key_header', {
      pattern: /^[A-Za-z0-9-]+$/,
      problem: ', not the name of a header',
      locate,
    }),
    chatPath: optionalPattern(value['chat_path'], 'chat_path', {
      pattern: /^\/\S*$/,
      hint: 'Use a path that starts with /, such as /chat/completions.',
      locate,
    }),
    awsService: optionalPattern(value['aws_service'], 'aws_service', {
      pattern: /^[a-z0-9-]+$/,
      hint: 'Use the signing name of the service, such as bedrock-mantle.',
      locate,
    }),
    priceList: optionalText(value['price_list'], 'price_list', locate),
    outputTokensPerSecond: parseRate(value['output_tokens_per_second'], locate),
    headers: parseHeaders(value['headers'], locate),
    models,
    otherModels,
    tiers: parseTiers(value['tiers'], isModel, locate),
    fallback: parseFallback(
      value['fallback'],
      (id) => isModel(id) || known.providers.some((other) => id.startsWith(`${other}/`)),
      locate,
    ),
    pricesAsOf: optionalText(value['prices_as_of'], 'prices_as_of', locate),
    options,
  };
}

/** Parses the kind and the members that only this kind has. */
function parseKind(
  value: JsonObject,
  kinds: Readonly<Record<string, KnownKind>>,
  locate: Locate,
): { readonly kind: string; readonly options: JsonObject } {
  const { kind: name } = value;
  const kind = typeof name === 'string' && Object.hasOwn(kinds, name) ? kinds[name] : undefined;
  const checkOptions = kind?.checkOptions;
  if (!checkOptions) onlyKeys(value, PROVIDER_KEYS, '', locate);
  if (!kind || kind.traits.embedded || typeof name !== 'string') {
    const names = Object.keys(kinds).filter((known) => kinds[known]?.traits.embedded === false);
    const near = typeof name === 'string' ? didYouMean(name, names) : undefined;
    if (name === undefined) {
      const example = names.at(-1) ?? 'openai';
      throw invalid(`${locate('kind')} is missing`, `Add a line such as kind: ${example}.`);
    }
    throw invalid(
      `${locate('kind')} is ${JSON.stringify(name)}`,
      near ?? `Use ${names.join(' or ')}.`,
    );
  }
  const own = Object.entries(value).filter(([key]) => !PROVIDER_KEYS.includes(key));
  const options = Object.fromEntries(own);
  const refused = checkOptions?.(options);
  if (refused) throw invalid(`${locate(refused.member)} ${refused.problem}`);
  return { kind: name, options };
}

function parseDialect(raw: unknown, locate: Locate): Dialect {
  const dialect = DIALECTS.find((known) => known === (raw ?? 'compatible'));
  if (dialect !== undefined) return dialect;
  throw invalid(
    `${locate('dialect')} is ${JSON.stringify(raw)}`,
    `Use one of ${DIALECTS.join(', ')}.`,
  );
}

function parseModel(raw: unknown, path: string, locate: Locate): ModelConfig {
  const model = mapping(raw, path, locate);
  onlyKeys(model, MODEL_KEYS, `${path}.`, locate);
  const thinking = model['thinking'];
  const style = THINKING_STYLES.find((candidate) => candidate === thinking);
  if (thinking !== undefined && style === undefined) {
    throw invalid(
      `${locate(`${path}.thinking`)} is ${JSON.stringify(thinking)}`,
      `Use one of ${THINKING_STYLES.join(', ')}.`,
    );
  }
  return {
    contextWindow: tokens(model['context_window'], `${path}.context_window`, locate),
    maxOutputTokens: tokens(model['max_output_tokens'], `${path}.max_output_tokens`, locate),
    pricing: parsePricing(model['pricing'], `${path}.pricing`, locate),
    capabilities: parseCapabilities(model['capabilities'], `${path}.capabilities`, locate),
    ...(style === undefined ? {} : { thinking: style }),
  };
}

function parsePricing(raw: unknown, path: string, locate: Locate): Pricing | null {
  if (raw === undefined || raw === null) return null;
  const pricing = mapping(raw, path, locate);
  onlyKeys(pricing, PRICE_KEYS, `${path}.`, locate);
  const price = (key: string): number => {
    const usd = pricing[key];
    if (typeof usd === 'number' && Number.isFinite(usd) && usd >= 0) return usd;
    throw invalid(
      `${locate(`${path}.${key}`)} is ${JSON.stringify(usd)}`,
      'A price is a number of USD per million tokens, 0 or more.',
    );
  };
  return {
    input: price('input'),
    output: price('output'),
    ...(pricing['cache_read'] === undefined ? {} : { cache_read: price('cache_read') }),
    ...(pricing['cache_write'] === undefined ? {} : { cache_write: price('cache_write') }),
  };
}

function parseRate(raw: unknown, locate: Locate): number {
  if (raw === undefined || raw === null) return 500;
  if (typeof raw === 'number' && Number.isFinite(raw) && raw > 0) return raw;
  const name = 'output_tokens_per_second';
  throw invalid(`${locate(name)} is ${JSON.stringify(raw)}, not a number of tokens above 0`);
}

function parseCapabilities(raw: unknown, path: string, locate: Locate): readonly ModelCapability[] {
  if (raw === undefined) return CAPABILITIES;
  return list(raw, path, locate).map((item) => {
    const capability = CAPABILITIES.find((candidate) => candidate === item);
    if (capability !== undefined) return capability;
    throw invalid(
      `${locate(path)} has ${JSON.stringify(item)}`,
      `Use some of ${CAPABILITIES.join(', ')}.`,
    );
  });
}

/** A tier names a model of this provider, or another tier. */
function parseTiers(
  raw: unknown,
  known: (id: string) => boolean,
  locate: Locate,
): Readonly<Record<string, string>> {
  const own = Object.fromEntries(members(raw, 'tiers', locate));
  const all = { ...TIER_ALIASES, ...own };
  const tiers: Record<string, string> = {};
  for (const name of Object.keys(all)) {
    let target: unknown = name;
    const seen = new Set<unknown>();
    while (typeof target === 'string' && Object.hasOwn(all, target) && !seen.has(target)) {
      seen.add(target);
      target = all[target];
    }
    if (
      typeof target === 'string' &&
      !Object.hasOwn(all, target) &&
      known(target) &&
      target !== name
    ) {
      tiers[name] = target;
    } else if (Object.hasOwn(own, name)) {
      throw invalid(
        `${locate(`tiers.${name}`)} is ${JSON.stringify(own[name])}, which is neither a model nor a tier of this provider`,
        typeof target === 'string' ? didYouMean(target, Object.keys(all)) : undefined,
      );
    }
    // skip an alias of a tier that this provider does not have
  }
  return tiers;
}

/** A fallback is a model of this provider, or `provider/model` of another one. */
function parseFallback(
  raw: unknown,
  known: (id: string) => boolean,
  locate: Locate,
): readonly string[] {
  if (raw === undefined || raw === null) return [];
  return list(raw, 'fallback', locate).map((id) => {
    if (typeof id === 'string' && known(id)) return id;
    throw invalid(
      `${locate('fallback')} has ${JSON.stringify(id)}, which is not a model of this provider`,
    );
  });
}

function parseHeaders(raw: unknown, locate: Locate): Readonly<Record<string, string>> {
  const headers: Record<string, string> = {};
  for (const [name, value] of members(raw, 'headers', locate)) {
    if (!/^[A-Za-z0-9-]+$/.test(name) || typeof value !== 'string' || /[\r\n\0]/.test(value)) {
      throw invalid(
        `${locate(`headers.${name}`)} is not a header`,
        'A header is a name and one line of text.',
      );
    }
    headers[name] = value;
  }
  return headers;
}

function optionalUrl(raw: unknown, locate: Locate): string | null {
  const text = optionalText(raw, 'base_url', locate);
  if (text === null) return null;
  const filled = text
    .replace(/^\{[A-Z][A-Z0-9_]*\}/, 'https://x')
    .replaceAll(/\{[A-Z][A-Z0-9_]*(?::[\w.-]*)?\}/g, 'x');
  if (/^https?:\/\/[^\s{}]+$/.test(filled) && URL.canParse(filled)) return text;
  throw invalid(
    `${locate('base_url')} is ${JSON.stringify(text)}`,
    'Use a URL that starts with https:// or http://.',
  );
}

function optionalSwitch(raw: unknown, locate: Locate): boolean {
  if (raw === undefined || raw === null) return false;
  if (typeof raw === 'boolean') return raw;
  throw invalid(`${locate('key_optional')} is ${JSON.stringify(raw)}, not true or false`);
}

function optionalPattern(
  raw: unknown,
  path: string,
  rule: { pattern: RegExp; problem?: string; hint?: string; locate: Locate },
): string | null {
  if (raw === undefined || raw === null) return null;
  if (typeof raw === 'string' && rule.pattern.test(raw)) return raw;
  throw invalid(`${rule.locate(path)} is ${JSON.stringify(raw)}${rule.problem ?? ''}`, rule.hint);
}

function optionalText(raw: unknown, path: string, locate: Locate): string | null {
  if (raw === undefined || raw === null) return null;
  if (typeof raw === 'string' && raw !== '') return raw;
  throw invalid(`${locate(path)} is ${JSON.stringify(raw)}, not a text`);
}

function tokens(raw: unknown, path: string, locate: Locate): number {
  if (typeof raw === 'number' && Number.isSafeInteger(raw) && raw > 0) return raw;
  throw invalid(`${locate(path)} is ${JSON.stringify(raw)}, not a number of tokens above 0`);
}

function list(raw: unknown, path: string, locate: Locate): readonly unknown[] {
  if (Array.isArray(raw)) return raw;
  throw invalid(`${locate(path)} is not a list`);
}

function mapping(raw: unknown, path: string, locate: Locate): JsonObject {
  if (isRecord(raw)) return raw as JsonObject;
  throw invalid(`${locate(path)} is not a mapping`);
}

function members(raw: unknown, path: string, locate: Locate): [string, unknown][] {
  return raw === undefined || raw === null ? [] : Object.entries(mapping(raw, path, locate));
}

function onlyKeys(
  value: JsonObject,
  known: readonly string[],
  prefix: string,
  locate: Locate,
): void {
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  throw invalid(
    `${locate(`${prefix}${unknown}`)} is not a known key`,
    didYouMean(unknown, known) ?? `Known: ${known.join(', ')}.`,
  );
}

function invalid(message: string, hint?: string): RyeError {
  return new RyeError('config_invalid', message, { hint });
}
