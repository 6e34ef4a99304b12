import { closeSync, existsSync, fstatSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { itemIdProblem } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import { LruMap } from '../core/lru.ts';
import { resourceError } from '../disk/reasons.ts';
import { sha256Hex } from '../trust/keys.ts';
import { blankSignatureLine } from '../trust/signature-line.ts';
import { parseYamlMapping } from './metadata.ts';
import type { PythonOptions } from './python-source-fs.ts';
import { openForReading } from './read-inside-fs.ts';
import { shellActs } from './shell-source.ts';
import { cacheKey, normalizeNewlines } from './source.ts';
import { siblingAdvice } from './tool-advice.ts';
import {
  checkToolMetadata,
  type RawToolMetadata,
  readToolHeader,
  type ToolMetadata,
  toolKind,
  toolMalformed,
} from './tool-metadata.ts';
import { runsTypescript } from './tool-runtime.ts';

/**
 * Reads a tool's metadata from its text without running it: a header comment in any language, else a YAML manifest, else
 * the constants in the syntax tree of JavaScript or Python. Other scripts without a header declare nothing. Throws
 * `tool_malformed` with the location in the file, or `tool_failed` if Python is missing.
 */
export async function readToolMetadata(
  text: string,
  path: string,
  options?: PythonOptions,
): Promise<ToolMetadata> {
  const raw = await readRemembered(text, path, options);
  const metadata = checkToolMetadata(raw, path, (id) => readManifest(path, id));
  const unsupported = partOf(metadata) ?? metadata.unsupported ?? unpinned(raw, metadata);
  return unsupported === undefined ? metadata : { ...metadata, unsupported };
}

/**
 * By the text's hash and the path, so that a process that prepares thread after thread parses each tool once. The files
 * beside it may change in between.
 */
const remembered = new LruMap<string, RawToolMetadata>(256);

async function readRemembered(
  text: string,
  path: string,
  options: PythonOptions | undefined,
): Promise<RawToolMetadata> {
  if (options !== undefined) return await readRaw(normalizeNewlines(text), path, options);
  const key = cacheKey(text, path);
  const known = remembered.get(key);
  if (known !== undefined) return known;
  const raw = await readRaw(normalizeNewlines(text), path, {});
  remembered.set(key, raw);
  return raw;
}

async function readRaw(
  text: string,
  path: string,
  options: PythonOptions,
): Promise<RawToolMetadata> {
  const header = readToolHeader(text, path);
  if (header === undefined) return await readOwnForm(text, path, options);
  const facts = await factsBesideHeader(text, path, options);
  return facts === undefined ? header : { ...header, facts };
}

/**
 * A header needs no interpreter, unless only the syntax tree shows how the file runs or that it does nothing. The header
 * decides everything else, so it does not matter whether the rest could be read.
 */
async function factsBesideHeader(
  text: string,
  path: string,
  options: PythonOptions,
): Promise<RawToolMetadata['facts']> {
  const kind = toolKind(path);
  if (kind === 'shell') return scriptFacts(text, path);
  if (kind === 'python') {
    if (/^(?:async )?def execute\(/m.test(text))
      return (await readOwnForm(text, path, options)).facts;
    const { plainlyRuns } = await import('./python-source-fs.ts');
    if (plainlyRuns(text)) return undefined;
  } else if (kind !== 'javascript') return undefined;
  try {
    const { facts } = await readOwnForm(text, path, options);
    return facts?.runsSomething === false ? { ...facts, imports: [], flags: [] } : undefined;
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}

async function readOwnForm(
  text: string,
  path: string,
  options: PythonOptions,
): Promise<RawToolMetadata> {
  const kind = toolKind(path);
  if (kind === 'manifest') {
    return parseYamlMapping({ path, text, line: 1, column: 1 }, 'tool_malformed');
  }
  const script = kind === 'typescript' ? await withoutTypes(text, path) : text;
  if (script !== undefined && (kind === 'javascript' || kind === 'typescript')) {
    const { readJsConstants } = await import('./tool-constants.ts');
    return readJsConstants(script, path);
  }
  if (kind === 'python') {
    const { readPythonSource } = await import('./python-source-fs.ts');
    return await readPythonSource(text, path, options);
  }
  const facts = scriptFacts(text, path);
  return { value: {}, locate: () => ({ path, line: 1 }), ...(facts ? { facts } : {}) };
}

/**
 * Returns TypeScript as JavaScript with every place kept, as Node runs it; undefined for a Node that does not. Throws
 * `tool_malformed` for syntax that Node refuses, such as an enum.
 */
async function withoutTypes(text: string, path: string): Promise<string | undefined> {
  if (!runsTypescript(process.versions.node)) return undefined;
  const module: object = await import('node:module');
  const { stripTypeScriptTypes: strip } = module as {
    readonly stripTypeScriptTypes?: (text: string) => string;
  };
  const warn: unknown = Reflect.get(process, 'emitWarning');
  try {
    // Node warns at the first use that the function may change
    Reflect.set(process, 'emitWarning', () => undefined);
    return strip?.(text);
  } catch (error) {
    throw new RyeError('tool_malformed', `Node cannot run this TypeScript: ${messageOf(error)}`, {
      location: { path, line: 1 },
      hint: 'Use only types that can be erased: no enums, namespaces or parameter properties.',
    });
  } finally {
    Reflect.set(process, 'emitWarning', warn);
  }
}

/** Reads facts of a shell script: one without commands would succeed without doing anything. */
function scriptFacts(text: string, path: string): RawToolMetadata['facts'] {
  if (toolKind(path) !== 'shell') return undefined;
  const works = shellActs(text);
  return { flags: [], imports: [], hasMain: works, runsSomething: works };
}

const MAX_MANIFEST_BYTES = 256 * 1024;

/** Reads the manifest `id` below the `.ai/tools` of `path`. It is used only for advice, so it needs no signature. */
function readManifest(path: string, id: string): JsonObject | undefined {
  const marker = '/.ai/tools/';
  const at = path.lastIndexOf(marker);
  if (at === -1 || itemIdProblem(id) !== undefined) return undefined;
  for (const extension of ['.yaml', '.yml', '.json']) {
    const file = join(path.slice(0, at + marker.length), `${id}${extension}`);
    const stats = statSync(file, { throwIfNoEntry: false });
    if (stats?.isFile() !== true || stats.size > MAX_MANIFEST_BYTES) continue;
    try {
      const text = blankSignatureLine(readFileSync(file, 'utf8'), 'yaml');
      return parseYamlMapping({ path: file, text, line: 1, column: 1 }, 'tool_malformed').value;
    } catch (error) {
      if (!(error instanceof RyeError)) throw error;
      return undefined;
    }
  }
  return undefined;
}

/** Refuses an import of an unpinned file: a tool runs in a private folder that has only pinned files. */
function unpinned(raw: RawToolMetadata, { path, files = {} }: ToolMetadata): RyeError | undefined {
  for (const { module, level, line, optional } of raw.facts?.imports ?? []) {
    const root = module.split('.')[0] ?? '';
    if (optional || level > 0 || root === '') continue;
    if (Object.keys(files).some((name) => name === `${root}.py` || name.startsWith(`${root}/`)))
      continue;
    const file = [`${root}.py`, `${root}/__init__.py`].find((name) =>
      existsSync(join(dirname(path), name)),
    );
    if (file === undefined) continue;
    const { message, hint } = siblingAdvice(file, hashOf(join(dirname(path), file)), line);
    return new RyeError('tool_unsupported', message, {
      location: { ...raw.locate(''), line },
      hint,
    });
  }
  return undefined;
}

const MAX_NEIGHBORS = 500;

/** Recognizes a module that a tool beside it pins; `details.part_of` names the tool. */
function partOf({ path, unsupported }: ToolMetadata): RyeError | undefined {
  if (unsupported === undefined || toolKind(path) !== 'python') return undefined;
  const folder = dirname(path);
  const name = basename(path);
  const pin = new RegExp(`["']?${name.replaceAll('.', '\\.')}["']?\\s*:\\s*["']?[0-9a-f]{64}`);
  const owner = neighbors(folder).find(
    (file) => file !== name && pin.test(headOf(join(folder, file))),
  );
  if (owner === undefined) return undefined;
  return new RyeError('tool_unsupported', `${name} is a module of ${owner}, not a tool`, {
    location: { path, line: 1 },
    hint: `Run the tool ${owner} instead.`,
    details: { part_of: owner },
  });
}

function neighbors(folder: string): readonly string[] {
  try {
    return readdirSync(folder).slice(0, MAX_NEIGHBORS);
  } catch {
    return [];
  }
}

function headOf(file: string): string {
  const stats = statSync(file, { throwIfNoEntry: false });
  const isSmall = stats?.isFile() === true && stats.size <= MAX_MANIFEST_BYTES;
  return isSmall ? readFileSync(file, 'utf8') : '';
}

function hashOf(file: string): string | undefined {
  const stats = statSync(file, { throwIfNoEntry: false });
  const isPlain = stats?.isFile() === true && stats.size <= 4 * 1024 * 1024;
  return isPlain ? sha256Hex(readFileSync(file)) : undefined;
}

const MAX_BYTES = 4 * 1024 * 1024;

/** A file that a tool's manifest pins, with the bytes whose hash was checked. */
export interface ToolFile {
  /** Relative to the manifest's folder, with forward slashes. */
  readonly name: string;
  readonly bytes: Uint8Array;
}

/**
 * Reads the files that a manifest pins by SHA-256, which its signature covers. Symbolic links do not matter, because only
 * the pinned bytes are accepted. Throws `tool_malformed` for an unreadable file and `content_modified` for other bytes.
 */
export function readToolFiles(
  manifestPath: string,
  files: Readonly<Record<string, string>>,
): readonly ToolFile[] {
  return Object.entries(files).map(([name, sha256]) => {
    const bytes = readBytes(manifestPath, name);
    if (sha256Hex(bytes) === sha256) return { name, bytes };
    throw new RyeError(
      'content_modified',
      `${name} differs from the file that the manifest pins: its SHA-256 is ${sha256Hex(bytes)}`,
      {
        location: { path: manifestPath },
        hint: 'Review what changed, put the new hash into the manifest and sign it again.',
        details: { path: join(dirname(manifestPath), name) },
      },
    );
  });
}

function readBytes(manifestPath: string, name: string): Uint8Array {
  const unreadable = (why: string): RyeError =>
    toolMalformed(`the manifest pins ${name}, ${why}`, { path: manifestPath });
  let descriptor: number;
  try {
    descriptor = openForReading(join(dirname(manifestPath), name));
  } catch (error) {
    throw (
      resourceError(manifestPath, error) ??
      unreadable(`which cannot be opened (${systemCodeOf(error) ?? 'unknown error'})`)
    );
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > MAX_BYTES)
      throw unreadable('which is not a regular file of at most 4 MiB');
    return readFileSync(descriptor);
  } finally {
    closeSync(descriptor);
  }
}
