import { ignoredWarning, messageOf, RyeError } from '../core/errors.ts';
import { SPACES, type Space } from '../core/ids.ts';
import { isRecord } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import {
  countsAsUnsigned,
  decide,
  faultError,
  overlayPolicy,
  readPolicyLayer,
  STRICT_POLICY,
  type TrustPolicy,
} from '../trust/policy.ts';
import {
  type ConfigMeaning,
  type ConfigNode,
  type ConfigOverride,
  configMeaning,
  EMPTY_MAP,
  flattenConfig,
  isPowerFile,
  type LoadedConfig,
  lowerLimits,
  mergeConfig,
  nestConfig,
  overriddenFile,
  overridePath,
  SIGNED_ONLY,
  shippedConfig,
  thawConfig,
  type UnknownSetting,
  unknownSettings,
  withLowerRows,
  withoutEmptySections,
} from './config.ts';
import {
  assertOnlyLowers,
  hasCeiling,
  LIMITS_FILE,
  withLowestCeiling,
  withoutCeiling,
  withPlainLimits,
} from './limit-ceiling.ts';
import { knownMeaning, meaningOf, shippedMeaning } from './meanings.ts';
import { fromRyeOs } from './rye-os-config.ts';
import type { FoundFile, Spaces } from './spaces-fs.ts';
import { type VerifyContext, verifyFile } from './verified-fs.ts';

export interface ConfigOptions extends VerifyContext {
  readonly policy: TrustPolicy;
  /** `-c key=value`, in order; the last layer of all. */
  readonly overrides?: readonly ConfigOverride[];
  /** Called with one line for each file that is ignored or causes a warning. */
  readonly onNotice: (notice: string) => void;
  /** Returns the first mistake of a file that would count without a trusted signature. Absent: such files are not checked. */
  readonly mistakeIn?: (file: FoundFile) => Promise<string | undefined>;
}

export interface Config {
  /**
   * Merges the file `.ai/config/<name>.yaml` of all spaces, system first, project last, then the overrides. Empty if no
   * space has it. Throws `config_invalid` with file:line:col, or the code of a signature fault.
   */
  load(name: string): Promise<LoadedConfig>;
  /** Loads the file of one space under the same checks; empty if there is none. */
  loadFrom(name: string, space: Space): Promise<LoadedConfig>;
  /** Returns the sorted names of the configuration files of all spaces, such as `agent/providers/anthropic`. */
  names(prefix?: string): readonly string[];
}

/**
 * Opens layered configuration. Reads and merges every file at most once. Throws `usage` for an override without a
 * configuration file.
 */
export function openConfig(options: ConfigOptions): Config {
  assertOverridesMeanFiles(options);
  const merged = new Map<string, Promise<LoadedConfig>>();
  const layers = new Map<string, Promise<ConfigNode | undefined>>();

  function layer(name: string, space: Space): Promise<ConfigNode | undefined> {
    return remember(layers, `${space}:${name}`, () => loadLayer(name, space, options));
  }

  return {
    load: (name) => remember(merged, name, () => mergeLayers(name, layer, options)),
    loadFrom: async (name, space) => flattenConfig((await layer(name, space)) ?? EMPTY_MAP),
    names(prefix = '') {
      return configNames(options)
        .filter((id) => id.startsWith(prefix))
        .toSorted();
    },
  };
}

/**
 * Loads the trust policy from `trust.yaml` of all spaces. An unreadable file makes the policy at least the strict one. A
 * project's file without a trusted signature can only tighten it.
 */
export async function loadTrustPolicy(
  options: VerifyContext & Pick<ConfigOptions, 'onNotice'>,
): Promise<TrustPolicy> {
  let policy = STRICT_POLICY;
  for (const space of SPACES.toReversed()) {
    try {
      const found = options.spaces.find('config', 'trust', { space });
      if (found === undefined) continue;
      const verdict = verifyFile(found, options);
      const mayLoosen = verdict.ok || (space === 'user' && countsAsUnsigned(verdict.code));
      const { value } = flattenConfig(await parseConfig(found));
      const overlaid = overlayPolicy(policy, readPolicyLayer(value, found.path), { mayLoosen });
      policy = overlaid.policy;
      if (!verdict.ok && overlaid.loosened.length > 0) {
        const { hint } = faultError(found, verdict);
        const message = `${found.path} cannot loosen ${overlaid.loosened.join(', ')}`;
        options.onNotice(ignoredWarning({ message, code: verdict.code, hint }));
      }
    } catch (error) {
      policy = overlayPolicy(policy, STRICT_POLICY, { mayLoosen: false }).policy;
      options.onNotice(`using the strict trust policy: ${messageOf(error)}`);
    }
  }
  return policy;
}

/** Returns where a space keeps signatures, by its `trust.yaml`. That file needs no signature for it. */
export async function signingMode(spaces: Spaces, space: Space): Promise<'inline' | 'detached'> {
  const found = spaces.find('config', 'trust', { space });
  if (found === undefined) return 'inline';
  const { value } = flattenConfig(await parseConfig(found));
  return isRecord(value) && value['signing'] === 'detached' ? 'detached' : 'inline';
}

async function mergeLayers(
  name: string,
  layer: (name: string, space: Space) => Promise<ConfigNode | undefined>,
  options: ConfigOptions,
): Promise<LoadedConfig> {
  const { overrides = [] } = options;
  const unchanged = unchangedConfig(name, options);
  if (unchanged) return unchanged;
  const names = overrides.length === 0 ? [] : configNames(options);
  const shipped = (await layer(name, 'system')) ?? EMPTY_MAP;
  let node = EMPTY_MAP;
  const lay = (upper: ConfigNode): void => {
    assertKnownSettings(name, shipped, upper);
    node = layConfig(name, node, upper);
  };
  for (const space of SPACES.toReversed()) {
    const upper = await layer(name, space);
    if (upper !== undefined) lay(upper);
  }
  // its limits count also without a trusted signature where they are lower
  const ignored = name === LIMITS_FILE ? await ignoredLayer(name, options) : undefined;
  if (ignored) node = lowerLimits(node, ignored);
  for (const { key, value } of overrides) {
    const path = overriddenFile(names, key) === name ? overridePath(name, key) : undefined;
    if (path === undefined) continue;
    const given = await parseOverride(key, value);
    if (name === LIMITS_FILE) assertOnlyLowers(node, key, path, given);
    lay(nestConfig(path, given));
  }
  return flattenConfig(node);
}

/** Returns a shipped file that no other space, and no override, lays anything over. */
function unchangedConfig(name: string, options: ConfigOptions): LoadedConfig | undefined {
  const { spaces, overrides = [] } = options;
  // its limits are merged by their meaning, also with nothing
  if (name === LIMITS_FILE || overrides.length > 0) return undefined;
  const found = spaces.find('config', name);
  if (found?.space !== 'system' || !verifyFile(found, options).ok) return undefined;
  const meaning = shippedMeaning('config', found.text) as ConfigMeaning | undefined;
  return meaning && shippedConfig(meaning, found.path);
}

/** Lays one version of a file over another. What guards is merged by its meaning. */
function layConfig(name: string, lower: ConfigNode, given: ConfigNode): ConfigNode {
  const upper = withoutEmptySections(lower, given);
  if (name === LIMITS_FILE) {
    return mergeConfig(lower, withLowestCeiling(lower, withPlainLimits(upper)));
  }
  return mergeConfig(lower, name === RISK_FILE ? withLowerRows(lower, upper) : upper);
}

const RISK_FILE = 'agent/capability_risk';

/** Returns the project's file that is ignored because its signature does not count; undefined if it can't be parsed. */
async function ignoredLayer(name: string, options: ConfigOptions): Promise<ConfigNode | undefined> {
  const found = options.spaces.find('config', name, { space: 'project' });
  if (found === undefined || verifyFile(found, options).ok) return undefined;
  try {
    return await parseConfig(found);
  } catch {
    return undefined;
  }
}

/** Throws if there are unknown settings; names all of them with their lines. */
function assertKnownSettings(name: string, shipped: ConfigNode, upper: ConfigNode): void {
  const unknown = unknownSettings(name, shipped, upper);
  const [first, ...others] = unknown;
  if (first === undefined) return;
  const lines = others.map(({ origin, path }) => `${origin}: unknown setting ${path}`);
  throw new RyeError(
    'config_invalid',
    [`${first.origin}: unknown setting ${first.path}`, ...lines].join('; '),
    {
      hint: first.hint ?? 'Remove it. `rye config show --all` lists every setting.',
      details: { unknown: unknown.map(({ path, origin }) => ({ setting: path, origin })) },
    },
  );
}

function configNames({ spaces }: Pick<ConfigOptions, 'spaces'>): readonly string[] {
  return [...new Set(spaces.list('config').map(({ id }) => id))];
}

function assertOverridesMeanFiles({ overrides = [], spaces }: ConfigOptions): void {
  if (overrides.length === 0) return;
  const names = configNames({ spaces });
  for (const { key } of overrides) {
    const meant = overriddenFile([...names, ...SIGNED_ONLY], key);
    if (meant !== undefined && SIGNED_ONLY.has(meant)) {
      throw new RyeError(
        'usage',
        `-c ${key}: no option changes ${meant}, which counts as it is signed`,
        {
          hint: `Write it to .ai/config/${meant}.yaml and sign it: rye sign config ${meant}`,
        },
      );
    }
    if (meant !== undefined) continue;
    const [file = ''] = key.split('.');
    const known = names.map((name) => name.slice(name.lastIndexOf('/') + 1));
    throw new RyeError('usage', `-c ${key}: no configuration file matches this key`, {
      hint: didYouMean(file, known) ?? '`rye config show --all` lists every setting.',
    });
  }
}

async function loadLayer(
  name: string,
  space: Space,
  options: ConfigOptions,
): Promise<ConfigNode | undefined> {
  const found = options.spaces.find('config', name, { space });
  if (found === undefined || !(await admitted(found, options))) return undefined;
  const node = bounded(found, await parseConfig(found), options);
  if (space === 'system') return node;
  const translated = fromRyeOs(name, node);
  for (const line of translated.ignored) options.onNotice(`ignored: ${line}`);
  return translated.node;
}

/** Drops the ceilings of a limits file that no trusted key has signed, and reports that. */
function bounded(found: FoundFile, node: ConfigNode, options: ConfigOptions): ConfigNode {
  if (found.id !== LIMITS_FILE || !hasCeiling(node) || verifyFile(found, options).ok) return node;
  const message = `${found.path}: limits.ceiling applies only in a signed file`;
  const hint = `Sign it: rye sign config ${LIMITS_FILE}`;
  options.onNotice(ignoredWarning({ code: 'unsigned', message, hint }));
  return withoutCeiling(node);
}

/** True if a file counts; reports ignored files and warnings. A file without a trusted signature stops no command. */
async function admitted(found: FoundFile, options: ConfigOptions): Promise<boolean> {
  const verdict = verifyFile(found, options);
  if (verdict.ok) return true;
  const error = faultError(found, verdict);
  if (found.space === 'project' && isPowerFile(found.id)) {
    options.onNotice(ignoredFile(found.id, error));
    return false;
  }
  const decision = decide(options.policy, { operation: 'config', space: found.space, verdict });
  if (decision === 'refuse') throw error;
  // a guard that cannot be read is an error, never no guard
  const isChecked = decision === 'warn' && !isPowerFile(found.id);
  const mistake = isChecked ? await options.mistakeIn?.(found) : undefined;
  if (mistake !== undefined) {
    const message = `${error.message} and cannot be used: ${mistake}`;
    options.onNotice(ignoredWarning({ code: error.code, message }));
    return false;
  }
  if (decision === 'warn') options.onNotice(`${error.message} [${error.code}]`);
  return true;
}

/** Returns the warning about a configuration file that is ignored, with what still applies of it. */
export function ignoredFile(
  id: string,
  { message, code, hint }: Parameters<typeof ignoredWarning>[0],
): string {
  const rest = id === LIMITS_FILE ? '; only its lower limits apply' : '';
  return ignoredWarning({ message: `${message}${rest}`, code, hint });
}

/** Reads one configuration file without its layers; throws `config_invalid` with file:line:col. */
export async function readConfigFile(found: FoundFile): Promise<LoadedConfig> {
  return flattenConfig(fromRyeOs(found.id, await parseConfig(found)).node);
}

/** Reads one configuration file over the shipped one of the same name; throws `config_invalid` with file:line:col. */
export async function readOverShipped(found: FoundFile, spaces: Spaces): Promise<LoadedConfig> {
  const shipped = spaces.find('config', found.id, { space: 'system' });
  const { node } = fromRyeOs(found.id, await parseConfig(found));
  return flattenConfig(layConfig(found.id, shipped ? await parseConfig(shipped) : EMPTY_MAP, node));
}

/** Returns the unknown settings of one file. Throws `config_invalid` if the file cannot be parsed. */
export async function unknownIn(
  found: FoundFile,
  spaces: ConfigOptions['spaces'],
): Promise<readonly UnknownSetting[]> {
  const { node } = fromRyeOs(found.id, await parseConfig(found));
  const shipped = spaces.find('config', found.id, { space: 'system' });
  return unknownSettings(found.id, shipped ? await parseConfig(shipped) : EMPTY_MAP, node);
}

async function parseConfig({ text, path }: FoundFile): Promise<ConfigNode> {
  const known = knownMeaning('config', text) as ConfigMeaning | undefined;
  if (known !== undefined) return thawConfig(known.node, path);
  const { readConfigText } = await import('./config-yaml.ts');
  const node = readConfigText(text, path);
  meaningOf('config', text, () => configMeaning(node, path));
  return node;
}

async function parseOverride(key: string, text: string): Promise<ConfigNode> {
  const { readOverride } = await import('./config-yaml.ts');
  return readOverride(key, text);
}

function remember<T>(
  known: Map<string, Promise<T>>,
  key: string,
  make: () => Promise<T>,
): Promise<T> {
  const value = known.get(key) ?? make();
  known.set(key, value);
  return value;
}
