import type { ProviderConfig } from './catalog.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Keys of an AWS account, read from the usual variables. */
export interface AwsCredentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  /** Part of temporary keys. */
  readonly sessionToken: string | undefined;
  readonly region: string;
}

/** The address and the credentials of a provider, read from its configuration and the environment. */
export interface Endpoint {
  readonly baseURL: string;
  readonly apiKey: string | undefined;
  readonly authToken: string | undefined;
  /** Signs requests if there is neither a key nor a token. */
  readonly aws: AwsCredentials | undefined;
}

const PLACEHOLDER = /\{([A-Z][A-Z0-9_]*)(?::([^{}]*))?\}/g;
const REGIONS = ['AWS_REGION', 'AWS_DEFAULT_REGION'] as const;
const DEFAULT_REGION = 'us-east-1';
const AWS_KEYS = ['AWS_ACCESS_KEY_ID', 'AWS_SECRET_ACCESS_KEY'] as const;

/** Reads everything that a call needs; `defaultURL` is the address of the vendor. */
export function endpointOf(config: ProviderConfig, env: Env, defaultURL: string): Endpoint {
  const apiKey = read(env, config.apiKeyEnv)?.trim();
  const authToken = read(env, config.authTokenEnv)?.trim();
  const hasKey = (apiKey ?? authToken) !== undefined;
  return {
    baseURL: addressOf(config, env) ?? defaultURL,
    apiKey,
    authToken,
    aws: hasKey || config.awsService === null ? undefined : awsCredentials(env),
  };
}

/**
 * Returns the address of a provider with its variables filled in: `{VARIABLE}` or `{VARIABLE:default}`. A variable that
 * already ends with the rest of the address is the whole address. Undefined if there is none.
 */
function addressOf({ baseUrl, baseUrlEnv }: ProviderConfig, env: Env): string | undefined {
  const override = read(env, baseUrlEnv);
  if (override !== undefined || baseUrl === null) return override;
  const [first = '', name] = /^\{([A-Z][A-Z0-9_]*)\}/.exec(baseUrl) ?? [];
  const whole = read(env, name ?? null)?.replace(/\/+$/, '');
  const rest = baseUrl.slice(first.length);
  if (whole?.endsWith(rest) === true) return whole;
  return baseUrl.replaceAll(PLACEHOLDER, (_text, variable: string, fallback: string = '') =>
    (valueOf(env, variable) ?? fallback).replace(/\/+$/, ''),
  );
}

/**
 * Returns the variables that have to be set before this provider can be called, the key first; empty if it can be. A
 * provider without a key in its file needs none.
 */
export function missingVariables(config: ProviderConfig, env: Env): readonly string[] {
  const variable = config.apiKeyEnv ?? config.authTokenEnv;
  const hasKey =
    read(env, config.apiKeyEnv) !== undefined ||
    read(env, config.authTokenEnv) !== undefined ||
    (config.awsService !== null && awsCredentials(env) !== undefined) ||
    config.credentialCommand !== undefined;
  const key = variable === null || config.keyOptional || hasKey ? [] : [variable];
  return [...key, ...missingInAddress(config, env)];
}

function missingInAddress({ baseUrl, baseUrlEnv }: ProviderConfig, env: Env): readonly string[] {
  if (baseUrl === null || read(env, baseUrlEnv) !== undefined) return [];
  return [...baseUrl.matchAll(PLACEHOLDER)].flatMap(([, name = '', fallback]) =>
    fallback === undefined && valueOf(env, name) === undefined ? [name] : [],
  );
}

/**
 * True if the user has set this provider up: its key or token is set, or for a server without a required key the
 * address. AWS access keys do not count, because they are set for many other reasons.
 */
export function isSetUp(config: ProviderConfig, env: Env): boolean {
  if (missingInAddress(config, env).length > 0) return false;
  const { apiKeyEnv, authTokenEnv, baseUrlEnv, keyOptional } = config;
  const hasKey =
    read(env, apiKeyEnv) !== undefined ||
    read(env, authTokenEnv) !== undefined ||
    config.credentialCommand !== undefined;
  const isOpen = keyOptional || (apiKeyEnv === null && authTokenEnv === null);
  return hasKey || (isOpen && read(env, baseUrlEnv) !== undefined);
}

/** Returns the variables of the key that is sent and of a changed address, as far as they are set. */
export function usedVariables(
  config: ProviderConfig,
  env: Env,
): { readonly key: string | undefined; readonly address: string | undefined } {
  const { apiKeyEnv, authTokenEnv, awsService, baseUrlEnv } = config;
  const names = [apiKeyEnv, authTokenEnv, awsService === null ? null : AWS_KEYS[0]];
  const isSet = (name: string | null): name is string => read(env, name) !== undefined;
  return { key: names.find(isSet), address: isSet(baseUrlEnv) ? baseUrlEnv : undefined };
}

/** Returns the variable of the key or token that is sent; if neither is set, the variable of the token, else of the key. */
export function keyVariable(
  config: Pick<ProviderConfig, 'apiKeyEnv' | 'authTokenEnv'>,
  env: Env,
): string | undefined {
  const { apiKeyEnv, authTokenEnv } = config;
  const used = [apiKeyEnv, authTokenEnv].find((name) => read(env, name) !== undefined);
  return used ?? authTokenEnv ?? apiKeyEnv ?? undefined;
}

/** Names every variable that a provider reads, so that a detached thread gets them. */
export function variablesOf(config: ProviderConfig): readonly string[] {
  const { apiKeyEnv, authTokenEnv, baseUrl, baseUrlEnv, awsService } = config;
  const named = [apiKeyEnv, authTokenEnv, baseUrlEnv].filter((name) => name !== null);
  const inAddress = [...(baseUrl ?? '').matchAll(PLACEHOLDER)].map(([, name = '']) => name);
  const aws = awsService === null ? [] : [...AWS_KEYS, 'AWS_SESSION_TOKEN', ...REGIONS];
  return [...new Set([...named, ...inAddress, ...aws])];
}

/** Returns the keys of a provider that are set, to find them in texts; a short one is a word, such as `none`. */
export function keysIn(
  { apiKeyEnv, authTokenEnv, awsService }: ProviderConfig,
  env: Env,
): string[] {
  const aws = awsService === null ? [] : [...AWS_KEYS, 'AWS_SESSION_TOKEN'];
  const keys = [apiKeyEnv, authTokenEnv, ...aws].map((name) => read(env, name)?.trim());
  return keys.filter((key) => key !== undefined && key.length >= 12) as string[];
}

function awsCredentials(env: Env): AwsCredentials | undefined {
  const [accessKeyId, secretAccessKey] = AWS_KEYS.map((name) => read(env, name));
  if (accessKeyId === undefined || secretAccessKey === undefined) return undefined;
  return {
    accessKeyId,
    secretAccessKey,
    sessionToken: read(env, 'AWS_SESSION_TOKEN'),
    region: valueOf(env, 'AWS_REGION') ?? DEFAULT_REGION,
  };
}

/** `AWS_DEFAULT_REGION` replaces a missing `AWS_REGION`, as in the tools of AWS. */
function valueOf(env: Env, name: string): string | undefined {
  return read(env, name) ?? (name === REGIONS[0] ? read(env, REGIONS[1]) : undefined);
}

function read(env: Env, name: string | null): string | undefined {
  return name === null ? undefined : env[name] || undefined;
}
