import { extname } from 'node:path';
import { RISKS, type Risk } from '../core/capability.ts';
import { RyeError, type SourceLocation } from '../core/errors.ts';
import { itemIdProblem } from '../core/ids.ts';
import { compact, isJsonObject, type JsonObject, type JsonValue } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { parseYamlMapping, type YamlMapping } from './metadata.ts';
import type { RuntimeQuestion, SourceFacts } from './tool-advice.ts';
import { runtimeOf, type ToolRuntime } from './tool-runtime.ts';

/** The way a tool's file runs. A `manifest` names its command, an `executable` runs by its first line. */
export const TOOL_KINDS = [
  'javascript',
  'typescript',
  'python',
  'shell',
  'executable',
  'manifest',
] as const;
export type ToolKind = (typeof TOOL_KINDS)[number];

/** A tool's declarations about its effects; an absent one has the cautious value. */
export interface DeclaredTraits {
  readonly reads_only?: boolean;
  readonly idempotent?: boolean;
  readonly network?: boolean;
  readonly sequential?: boolean;
  readonly parallel?: boolean;
  readonly timeout_seconds?: number;
  readonly risk?: Risk;
}

/** Metadata of a tool's file, read without running it. */
export interface ToolMetadata {
  readonly path: string;
  readonly kind: ToolKind;
  readonly description: string;
  /** Undefined if none is declared. */
  readonly version?: string;
  readonly category?: string;
  /** JSON Schema of type object; an empty object schema if none is declared. */
  readonly inputSchema: JsonObject;
  readonly traits: DeclaredTraits;
  /** Program and arguments of a manifest. */
  readonly command?: readonly string[];
  /** The way parameters are passed; absent: as JSON on stdin. */
  readonly runtime?: ToolRuntime;
  /** The reason why rye does not run it (`tool_unsupported`), with a replacement in the hint. */
  readonly unsupported?: RyeError;
  /** SHA-256 of each file beside the tool that it uses, by relative path. */
  readonly files?: Readonly<Record<string, string>>;
  /** Environment variables that are passed to the tool. */
  readonly env: readonly string[];
}

/** Unchecked metadata: members of the header, the manifest or the constants, with their locations. */
export interface RawToolMetadata extends YamlMapping {
  /** Facts from the source; absent if the source was not parsed. */
  readonly facts?: SourceFacts;
}

const KIND_BY_EXTENSION: Readonly<Record<string, ToolKind>> = {
  '.js': 'javascript',
  '.mjs': 'javascript',
  '.cjs': 'javascript',
  '.ts': 'typescript',
  '.mts': 'typescript',
  '.py': 'python',
  '.sh': 'shell',
  '.bash': 'shell',
  '.yaml': 'manifest',
  '.yml': 'manifest',
  '.json': 'manifest',
};

export function toolKind(path: string): ToolKind {
  return KIND_BY_EXTENSION[extname(path).toLowerCase()] ?? 'executable';
}

/** Constants that a script may declare, with the member that each sets. */
export const TOOL_CONSTANTS: Readonly<Record<string, string>> = {
  __version__: 'version',
  __tool_description__: 'description',
  __category__: 'category',
  __traits__: 'traits',
  __executor_id__: 'executor_id',
  __tool_type__: 'tool_type',
  __files__: 'files',
  CONFIG_SCHEMA: 'config_schema',
  ENV_CONFIG: 'env_config',
};

/**
 * Checks the metadata of a tool. Throws `tool_malformed` with the location in the file. `manifest` reads another manifest
 * of the same space, for advice.
 */
export function checkToolMetadata(
  raw: RawToolMetadata,
  path: string,
  manifest?: (id: string) => JsonObject | undefined,
): ToolMetadata {
  const { value } = raw;
  const kind = toolKind(path);
  const text = (key: string): string | undefined => readText(raw, key);
  const files = readFiles(raw);
  const inputSchema = readSchema(raw);
  const properties = inputSchema['properties'];
  const { runtime, unsupported } = decideRuntime({
    path,
    kind,
    value,
    locate: (key) => raw.locate(key),
    facts: raw.facts,
    files,
    parameters: isJsonObject(properties) ? Object.keys(properties) : [],
    manifest,
  });
  const hasCommand =
    kind === 'manifest' &&
    unsupported === undefined &&
    runtime?.how !== 'http' &&
    runtime?.how !== 'shell';
  return compact({
    path,
    kind,
    description: text('description') ?? '',
    version: text('version'),
    category: text('category'),
    inputSchema,
    traits: declaredTraits(raw, runtime),
    runtime,
    unsupported,
    command: hasCommand ? readCommand(raw, files ?? {}) : undefined,
    files,
    env: readEnv(value['env'] ?? value['env_config']),
  });
}

function decideRuntime(question: RuntimeQuestion): {
  readonly runtime?: ToolRuntime | undefined;
  readonly unsupported?: RyeError;
} {
  try {
    return { runtime: runtimeOf(question) };
  } catch (error) {
    if (error instanceof RyeError && error.code === 'tool_unsupported') {
      return { unsupported: error };
    }
    throw error;
  }
}

/** Reads traits. The older form has the timeout in `config`; an HTTP request always uses the network. */
function declaredTraits(raw: RawToolMetadata, runtime: ToolRuntime | undefined): DeclaredTraits {
  const traits = readTraits(raw);
  const { config } = raw.value;
  const timeout = isJsonObject(config) ? config['timeout'] : undefined;
  const isTimed = typeof timeout === 'number' && Number.isFinite(timeout) && timeout > 0;
  return {
    ...(isTimed && raw.value['executor_id'] !== undefined ? { timeout_seconds: timeout } : {}),
    ...(runtime?.how === 'http' ? { timeout_seconds: runtime.request.timeoutSeconds } : {}),
    ...traits,
    ...(runtime?.how === 'http' ? { network: true } : {}),
  };
}

export function toolMalformed(message: string, location: SourceLocation, hint?: string): RyeError {
  return new RyeError('tool_malformed', message, { location, hint });
}

function readText(raw: RawToolMetadata, key: string): string | undefined {
  const value = raw.value[key];
  if (value === undefined || value === null) return undefined;
  if (typeof value === 'object') throw toolMalformed(`${key} must be text`, raw.locate(key));
  return String(value).trim();
}

const SCHEMA_KEYS = ['input_schema', 'config_schema', 'parameters'] as const;

function readSchema(raw: RawToolMetadata): JsonObject {
  const key = SCHEMA_KEYS.find((name) => raw.value[name] !== undefined && raw.value[name] !== null);
  if (key === undefined) return { type: 'object' };
  const value = raw.value[key];
  if (Array.isArray(value)) return schemaOfList(raw, key, value);
  if (!isJsonObject(value)) throw toolMalformed(`${key} must be a JSON Schema`, raw.locate(key));
  const { type } = value;
  if (type !== undefined && type !== 'object') {
    throw toolMalformed(
      `${key} has the type ${JSON.stringify(type)}`,
      raw.locate(key),
      'A tool takes one JSON object: use "type": "object" with properties.',
    );
  }
  return { ...value, type: 'object' };
}

/** The short form: a list of `{name, type, required, description, default, enum}`. */
function schemaOfList(raw: RawToolMetadata, key: string, list: readonly JsonValue[]): JsonObject {
  const properties = new Map<string, JsonObject>();
  const required: string[] = [];
  for (const entry of list) {
    const name = isJsonObject(entry) ? entry['name'] : undefined;
    if (!isJsonObject(entry) || typeof name !== 'string') {
      throw toolMalformed(`an entry of ${key} has no name`, raw.locate(key));
    }
    const { name: _, required: needed, ...schema } = entry;
    properties.set(name, schema);
    if (needed === true) required.push(name);
  }
  return compact({
    type: 'object',
    properties: Object.fromEntries(properties),
    required: required.length > 0 ? required : undefined,
  });
}

const TRAIT_CHECKS: Readonly<
  Record<keyof DeclaredTraits, { expected: string; fits(value: unknown): boolean }>
> = {
  reads_only: { expected: 'true or false', fits: isBoolean },
  idempotent: { expected: 'true or false', fits: isBoolean },
  network: { expected: 'true or false', fits: isBoolean },
  sequential: { expected: 'true or false', fits: isBoolean },
  parallel: { expected: 'true or false', fits: isBoolean },
  timeout_seconds: {
    expected: 'a positive number of seconds',
    fits: (value) => typeof value === 'number' && Number.isFinite(value) && value > 0,
  },
  risk: {
    expected: `one of ${RISKS.join(', ')}`,
    fits: (value) => RISKS.some((risk) => risk === value),
  },
};

function isBoolean(value: unknown): boolean {
  return typeof value === 'boolean';
}

function readTraits(raw: RawToolMetadata): DeclaredTraits {
  const { traits } = raw.value;
  if (traits === undefined || traits === null) return {};
  const location = raw.locate('traits');
  if (!isJsonObject(traits)) throw toolMalformed('traits must be a mapping', location);
  const names = Object.keys(TRAIT_CHECKS) as (keyof DeclaredTraits)[];
  for (const [name, value] of Object.entries(traits)) {
    const known = names.find((trait) => trait === name);
    if (known === undefined) {
      const hint = didYouMean(name, names) ?? `Traits are ${names.join(', ')}.`;
      throw toolMalformed(`unknown trait "${name}"`, location, hint);
    }
    if (!TRAIT_CHECKS[known].fits(value)) {
      throw toolMalformed(`the trait ${name} must be ${TRAIT_CHECKS[known].expected}`, location);
    }
  }
  return traits;
}

/** `command` is a program or a list of program and arguments; `config: {command, args}` is the older form. */
function readCommand(
  raw: RawToolMetadata,
  files: Readonly<Record<string, string>>,
): readonly string[] {
  const { config, command: own, args: ownArgs } = raw.value;
  const nested = isJsonObject(config) ? config : {};
  const key = own === undefined && config !== undefined ? 'config' : 'command';
  const location = raw.locate(key);
  const command = own ?? nested['command'];
  const args = ownArgs ?? nested['args'] ?? [];
  const list = Array.isArray(command)
    ? command
    : [command, ...(Array.isArray(args) ? args : [args])];
  const words = list.filter((word) => typeof word === 'string');
  const [program = ''] = words;
  if (program.trim() === '' || words.length !== list.length) {
    throw toolMalformed(
      'the manifest has no command',
      location,
      'Write command: [program, argument, …], or move the file out of .ai/tools if it is not a tool.',
    );
  }
  if (!Array.isArray(command) && /\s/.test(program)) {
    throw toolMalformed(
      `command: ${JSON.stringify(program)} is a program name with a space`,
      location,
      'Write it as a list: command: [program, argument, …].',
    );
  }
  const unpinned = words
    .map((word) => TOOL_FILE.exec(word)?.[1])
    .find((name) => isUnpinned(name, files));
  if (unpinned !== undefined) {
    throw toolMalformed(
      `the command uses ${unpinned}, which the manifest's signature does not cover`,
      location,
      `Pin it: files: {${unpinned}: SHA-256}, as "sha256sum ${unpinned}" prints it.`,
    );
  }
  return words;
}

/** A word of a command that is a file or folder beside the manifest. */
const TOOL_FILE = /^\{tool_dir\}\/(\S+)$/;

function isUnpinned(
  name: string | undefined,
  files: Readonly<Record<string, string>>,
): name is string {
  if (name === undefined) return false;
  return !Object.keys(files).some((file) => file === name || file.startsWith(`${name}/`));
}

/** Reads `files`, which maps relative paths to hashes. A run sees no other files of the folder. */
function readFiles(raw: RawToolMetadata): Readonly<Record<string, string>> | undefined {
  const { files } = raw.value;
  if (files === undefined || files === null) return undefined;
  const location = raw.locate('files');
  if (!isJsonObject(files)) throw toolMalformed('files must be a mapping', location);
  const pinned: [string, string][] = [];
  for (const [name, hash] of Object.entries(files)) {
    if (itemIdProblem(name) !== undefined)
      throw toolMalformed(`${JSON.stringify(name)} is not a path below the folder`, location);
    if (typeof hash !== 'string' || !/^[0-9a-f]{64}$/.test(hash))
      throw toolMalformed(`the SHA-256 of ${name} is not 64 hexadecimal digits`, location);
    pinned.push([name, hash]);
  }
  return Object.fromEntries(pinned);
}

/**
 * Reads the names of environment variables. `env` is a list. `ENV_CONFIG` of the older form is a mapping: its `env` member,
 * or itself, has the names as keys; `interpreter` is not a variable.
 */
function readEnv(value: JsonValue | undefined): readonly string[] {
  const own = isJsonObject(value) && isJsonObject(value['env']) ? value['env'] : value;
  const names = Array.isArray(own)
    ? own
    : isJsonObject(own)
      ? Object.keys(own).filter((name) => name !== 'interpreter')
      : [];
  return names.filter((name) => typeof name === 'string' && /^[A-Za-z_]\w*$/.test(name));
}

const MAX_HEADER_LINES = 200;
const OPEN = /^(\s*(?:#|\/\/|--|;|%|\*|\/\*+|<!--|"""|''')?\s*)rye:tool\s*$/;
const CLOSE = /(?:^|\s)\/rye:tool\s*(?:\*\/|-->|"""|''')?\s*$/;

/**
 * Reads metadata in a comment at the head of a script of any language: YAML between a line `rye:tool` and a line
 * `/rye:tool`, with the same comment mark on each line, or none inside a block comment. Undefined if the first 200 lines
 * have none. Throws `tool_malformed` with the location in the file.
 *
 *     # rye:tool
 *     # description: Counts words.
 *     # parameters: [{name: path, type: string, required: true}]
 *     # traits: {reads_only: true}
 *     # /rye:tool
 */
export function readToolHeader(text: string, path: string): RawToolMetadata | undefined {
  if (!text.includes('rye:tool')) return undefined;
  const lines = text.split('\n', MAX_HEADER_LINES);
  const start = lines.findIndex((line) => OPEN.test(line));
  if (start === -1) return undefined;
  const prefix = OPEN.exec(lines[start] ?? '')?.[1] ?? '';
  const mark = /^\s*(?:\/\*+|<!--|"""|''')/.test(prefix) ? '' : prefix.trimEnd();
  const end = lines.findIndex((line, index) => index > start && CLOSE.test(line));
  if (end === -1) {
    throw toolMalformed(
      'unclosed tool header',
      { path, line: start + 1 },
      'Close it with a line /rye:tool.',
    );
  }
  // Replacing marks with blanks keeps the columns of the file; YAML may be indented as a whole.
  const indent = ' '.repeat(prefix.length);
  const yaml = lines.slice(start + 1, end).map((line, index) => {
    if (mark === '') return line;
    if (line.trim() === '' || line.trimEnd() === mark) return '';
    if (line.startsWith(prefix)) return indent + line.slice(prefix.length);
    if (line.startsWith(mark)) return indent + line.slice(mark.length);
    const location = { path, line: start + 2 + index };
    throw toolMalformed(`a line of the tool header does not start with "${mark}"`, location);
  });
  const source = { path, text: yaml.join('\n'), line: start + 2, column: 1 };
  return parseYamlMapping(source, 'tool_malformed');
}
