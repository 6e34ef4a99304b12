import { join } from 'node:path';
import { didYouMean } from '../core/text.ts';
import type { ProviderFacts } from '../policy/provider-hint.ts';
import type { Catalog, ProviderConfig } from '../providers/catalog.ts';
import { usedVariables } from '../providers/endpoint.ts';
import { readUserEnv } from './user-space.ts';

type Env = Readonly<Record<string, string | undefined>>;

/** Finds out where variables come from. Never returns a value of one. */
interface VariableSources {
  readonly env: Env;
  readonly userSpacePath: string;
}

/** Returns where a variable that is set comes from: `the environment` or the file of keys. */
function sourceOf(name: string, { env, userSpacePath }: VariableSources): string {
  const inFile = readUserEnv(userSpacePath)[name];
  if (inFile === undefined || inFile !== env[name]) return 'the environment';
  return env['HOME'] === userSpacePath ? '~/.ai/.env' : join(userSpacePath, '.ai', '.env');
}

/** Returns what the hint of a failed call needs to know of a provider. */
export function factsOf(
  model: { readonly provider: string; readonly id: string },
  catalog: Catalog,
  sources: VariableSources,
): ProviderFacts {
  const config = Object.hasOwn(catalog, model.provider) ? catalog[model.provider] : undefined;
  if (config === undefined) return { access: 'key: none' };
  const others = Object.keys(config.models).filter((id) => id !== model.id);
  return { access: accessOf(config, sources), near: didYouMean(model.id, others) };
}

/** Returns the variables of keys that are set, and where each comes from. */
export function keysOf(catalog: Catalog, sources: VariableSources): readonly string[] {
  const keys = Object.values(catalog).map((config) => usedVariables(config, sources.env).key);
  const set = new Set(keys.filter((name) => name !== undefined));
  return [...set].map((name) => originOf(name, sources));
}

/** Formats `NAME, from the environment`. */
function originOf(name: string, sources: VariableSources): string {
  return `${name}, from ${sourceOf(name, sources)}`;
}

function accessOf(config: ProviderConfig, sources: VariableSources): string {
  const { key, address } = usedVariables(config, sources.env);
  const header = Object.keys(config.headers).find((name) => KEY_HEADER.test(name));
  const ofFile =
    header === undefined ? 'none' : `header ${header} of agent/providers/${config.name}`;
  const ofAddress = address === undefined ? '' : `; address: ${originOf(address, sources)}`;
  return `key: ${key === undefined ? ofFile : originOf(key, sources)}${ofAddress}`;
}

const KEY_HEADER = /authorization|api-?key|token/i;
