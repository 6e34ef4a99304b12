import type { Alias, Document, LineCounter, ParsedNode, YAMLMap } from 'yaml';
import { messageOf, RyeError } from '../core/errors.ts';
import { SPACES, type Space } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';
import {
  decide,
  faultError,
  overlayPolicy,
  readPolicyLayer,
  STRICT_POLICY,
  type TrustPolicy,
} from '../trust/policy.ts';
import { blankSignatureLine } from '../trust/signature-line.ts';
import {
  bearsPower,
  type ConfigNode,
  type ConfigOverride,
  configNodeOf,
  EMPTY_MAP,
  flattenConfig,
  type LoadedConfig,
  mergeConfig,
  nestConfig,
  overridePath,
  unknownSetting,
} from './config.ts';
import type { FoundFile } from './spaces-fs.ts';
import { type VerifyContext, verifyFile } from './verified-fs.ts';
import type * as Yaml from './yaml.ts';

/** Nodes of one YAML file with its aliases expanded; beyond it somebody built a bomb. */
const MAX_NODES = 100_000;

export interface ConfigOptions extends VerifyContext {
  readonly policy: TrustPolicy;
  /** `-c key=value`, in order; the last layer of all. */
  readonly overrides?: readonly ConfigOverride[];
  /** Called with one line for each file that is ignored or only warned about. */
  readonly onNotice: (notice: string) => void;
}

export interface Config {
  /**
   * The file `.ai/config/<name>.yaml` of all spaces merged, system first, project last, then the overrides. Empty
   * where no space has it. Throws `config_invalid` with file:line:col, or the code of a signature that is required.
   */
  load(name: string): Promise<LoadedConfig>;
  /** One space's own file without the others, under the same checks; empty where there is none. */
  loadFrom(name: string, space: Space): Promise<LoadedConfig>;
  /** Names of the configuration files of all spaces, such as `agent/providers/anthropic`, sorted. */
  names(prefix?: string): readonly string[];
}

/**
 * Opens layered configuration. Every file is read and merged at most once. Throws `usage` for an override that no
 * configuration file would ever see.
 */
export function openConfig(options: ConfigOptions): Config {
  assertOverridesMeanFiles(options);
  const merged = new Map<string, Promise<LoadedConfig>>();
  const layers = new Map<string, Promise<ConfigNode | undefined>>();

  function layer(name: string, space: Space): Promise<ConfigNode | undefined> {
    return remember(layers, `${space}:${name}`, () => loadLayer(name, space, options));
  }

  return {
    load: (name) => remember(merged, name, () => mergeLayers(name, layer, options.overrides ?? [])),
    loadFrom: async (name, space) => flattenConfig((await layer(name, space)) ?? EMPTY_MAP),
    names(prefix = '') {
      const ids = options.spaces.list('config').map(({ id }) => id);
      return [...new Set(ids)].filter((id) => id.startsWith(prefix)).toSorted();
    },
  };
}

/**
 * The trust policy of `trust.yaml` in all spaces. A file that cannot be read or checked makes the policy at least
 * the strict one; a project's that no trusted key signed can only tighten it.
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
      const mayLoosen = verdict.ok || (space === 'user' && verdict.code === 'unsigned');
      const { value } = flattenConfig(await parseConfig(found));
      const overlaid = overlayPolicy(policy, readPolicyLayer(value, found.path), { mayLoosen });
      policy = overlaid.policy;
      if (!verdict.ok && overlaid.loosened.length > 0) {
        const { hint } = faultError(found, verdict);
        options.onNotice(
          `${found.path} does not loosen ${overlaid.loosened.join(', ')}: ${verdict.code}. ${hint ?? ''}`.trim(),
        );
      }
    } catch (error) {
      policy = overlayPolicy(policy, STRICT_POLICY, { mayLoosen: false }).policy;
      options.onNotice(`the strict trust policy is used: ${messageOf(error)}`);
    }
  }
  return policy;
}

async function mergeLayers(
  name: string,
  layer: (name: string, space: Space) => Promise<ConfigNode | undefined>,
  overrides: readonly ConfigOverride[],
): Promise<LoadedConfig> {
  const shipped = (await layer(name, 'system')) ?? EMPTY_MAP;
  let node = EMPTY_MAP;
  const lay = (upper: ConfigNode): void => {
    assertKnownSettings(name, shipped, upper);
    node = mergeConfig(node, upper);
  };
  for (const space of SPACES.toReversed()) {
    const upper = await layer(name, space);
    if (upper !== undefined) lay(upper);
  }
  for (const { key, value } of overrides) {
    const path = overridePath(name, key);
    if (path !== undefined) lay(nestConfig(path, await parseOverride(key, value)));
  }
  return flattenConfig(node);
}

function assertKnownSettings(name: string, shipped: ConfigNode, upper: ConfigNode): void {
  const unknown = unknownSetting(name, shipped, upper);
  if (unknown === undefined) return;
  throw new RyeError('config_invalid', `${unknown.origin}: there is no setting ${unknown.path}`, {
    hint: unknown.hint ?? 'Remove it. `rye config show` lists every setting.',
  });
}

function assertOverridesMeanFiles({ overrides = [], spaces }: ConfigOptions): void {
  if (overrides.length === 0) return;
  const names = [...new Set(spaces.list('config').map(({ id }) => id))];
  for (const { key } of overrides) {
    if (names.some((name) => overridePath(name, key) !== undefined)) continue;
    const [file = ''] = key.split('.');
    const known = names.map((name) => name.slice(name.lastIndexOf('/') + 1));
    throw new RyeError('usage', `-c ${key}: there is no configuration file for it`, {
      hint: didYouMean(file, known) ?? '`rye config show` lists every setting.',
    });
  }
}

async function loadLayer(
  name: string,
  space: Space,
  options: ConfigOptions,
): Promise<ConfigNode | undefined> {
  const found = options.spaces.find('config', name, { space });
  if (found === undefined || !admitted(found, options)) return undefined;
  return parseConfig(found);
}

/** Whether a file counts; tells about those that do not and about those that are only warned about. */
function admitted(found: FoundFile, options: ConfigOptions): boolean {
  const verdict = verifyFile(found, options);
  if (verdict.ok) return true;
  const error = faultError(found, verdict);
  if (found.space === 'project' && bearsPower(found.id)) {
    options.onNotice(`ignored: ${error.message} [${error.code}]. ${error.hint ?? ''}`.trim());
    return false;
  }
  const decision = decide(options.policy, { operation: 'config', space: found.space, verdict });
  if (decision === 'refuse') throw error;
  if (decision === 'warn') options.onNotice(`${error.message} [${error.code}]`);
  return true;
}

/** Reads one configuration file by itself; throws `config_invalid` with file:line:col. */
export async function readConfigFile(found: FoundFile): Promise<LoadedConfig> {
  return flattenConfig(await parseConfig(found));
}

async function parseConfig(found: FoundFile): Promise<ConfigNode> {
  const yaml = await import('./yaml.ts');
  try {
    return readConfig(yaml, found);
  } catch (error) {
    if (error instanceof RyeError) throw error;
    // nesting, or aliases in a circle, deeper than the stack
    throw invalid(found.path, `the file cannot be read: ${messageOf(error)}`, {
      line: 1,
      column: 1,
    });
  }
}

function readConfig(yaml: typeof Yaml, found: FoundFile): ConfigNode {
  const lines = new yaml.LineCounter();
  const text = blankSignatureLine(found.text, 'yaml');
  const document = yaml.parseDocument(text, { lineCounter: lines, prettyErrors: false });
  const [problem] = [...document.errors, ...document.warnings];
  if (problem !== undefined)
    throw invalid(found.path, problem.message, positionOf(lines, problem.pos[0]));
  const { contents } = document;
  if (contents === null || (yaml.isScalar(contents) && contents.value === null)) {
    return { kind: 'map', members: new Map(), origin: found.path };
  }
  if (!yaml.isMap(contents)) {
    throw invalid(
      found.path,
      'a configuration file is a mapping',
      positionOf(lines, contents.range[0]),
    );
  }
  return new NodeReader(yaml, document, found.path, lines).read(contents, 0);
}

/** Turns the nodes of one parsed file into values that know their lines. */
class NodeReader {
  readonly #yaml: typeof Yaml;
  readonly #document: Document.Parsed;
  readonly #path: string;
  readonly #lines: LineCounter;
  #count = 0;

  constructor(yaml: typeof Yaml, document: Document.Parsed, path: string, lines: LineCounter) {
    this.#yaml = yaml;
    this.#document = document;
    this.#path = path;
    this.#lines = lines;
  }

  /** `at` is the offset of what the value belongs to, for values that are left out. */
  read(node: ParsedNode | null, at: number): ConfigNode {
    const offset = node?.range[0] ?? at;
    this.#count += 1;
    if (this.#count > MAX_NODES) {
      throw this.#fail('the file has too many values, or aliases that multiply them', offset);
    }
    const origin = `${this.#path}:${positionOf(this.#lines, offset).line}`;
    if (node === null) return { kind: 'scalar', value: null, origin };
    if (this.#yaml.isAlias(node)) return this.#readAlias(node, offset);
    if (this.#yaml.isMap(node)) return this.#readMap(node, origin);
    if (this.#yaml.isSeq(node)) {
      return { kind: 'list', items: node.items.map((item) => this.read(item, offset)), origin };
    }
    const { value } = node;
    if (!isPlain(value))
      throw this.#fail('a value is neither text, a finite number, true, false nor null', offset);
    return { kind: 'scalar', value, origin };
  }

  #readAlias(node: Alias.Parsed, offset: number): ConfigNode {
    const target = node.resolve(this.#document) as ParsedNode | undefined;
    if (target === undefined) {
      throw this.#fail(`the alias *${node.source} has no anchor before it`, offset);
    }
    return this.read(target, offset);
  }

  #readMap(node: YAMLMap.Parsed, origin: string): ConfigNode {
    const members = new Map<string, ConfigNode>();
    for (const { key, value } of node.items) {
      const name = this.#yaml.isScalar(key) ? String(key.value) : '__proto__';
      if (name === '__proto__') throw this.#fail('a key is no plain name', key.range[0]);
      members.set(name, this.read(value, key.range[0]));
    }
    return { kind: 'map', members, origin };
  }

  #fail(message: string, offset: number): RyeError {
    return invalid(this.#path, message, positionOf(this.#lines, offset));
  }
}

function isPlain(value: unknown): value is string | number | boolean | null {
  return (
    typeof value === 'string' ||
    typeof value === 'boolean' ||
    value === null ||
    Number.isFinite(value)
  );
}

async function parseOverride(key: string, text: string): Promise<ConfigNode> {
  const yaml = await import('./yaml.ts');
  const origin = `-c ${key}`;
  try {
    return configNodeOf(yaml.parse(text), origin);
  } catch (error) {
    throw new RyeError('config_invalid', `${origin}: ${messageOf(error)}`, {
      hint: 'The value is YAML: a number, true, text, or [a, list].',
      cause: error,
    });
  }
}

function positionOf(lines: LineCounter, offset: number): { line: number; column: number } {
  const { line, col } = lines.linePos(offset);
  return { line, column: col };
}

function invalid(
  path: string,
  message: string,
  position: { line: number; column: number },
): RyeError {
  return new RyeError('config_invalid', message, {
    location: { path, ...position },
    hint: 'Correct the file, then run: rye config show',
  });
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
