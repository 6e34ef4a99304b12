import matter from 'gray-matter';
import { LineCounter, parseDocument } from 'yaml';
import { type ErrorCode, RyeError, type SourceLocation } from '../core/errors.ts';
import type { ItemType } from '../core/ids.ts';
import { isJsonObject, type JsonObject, toText } from '../core/json.ts';
import { headChars } from '../core/text.ts';
import { isSignatureLine } from '../trust/signature-line.ts';
import { meaningOf } from './meanings.ts';
import { normalizeNewlines, type SourceText, shifted } from './source.ts';

/** A YAML mapping with the locations of its top-level keys. */
export interface YamlMapping {
  readonly value: JsonObject;
  /** Returns the location of a key, by the keys and indexes that lead to it, or of the last one that exists. */
  locate(key: string, ...rest: readonly (string | number)[]): SourceLocation;
}

/** Like {@link parseMapping}, for texts that were read before without the parser. */
export function parseYamlMapping(source: SourceText, code: ErrorCode): YamlMapping {
  let parsed: YamlMapping | undefined;
  const parse = (): YamlMapping => (parsed ??= parseMapping(source, code));
  const value = meaningOf('mapping', source.text, () => parse().value);
  return { value, locate: (...place) => parse().locate(...place) };
}

/**
 * Parses one YAML mapping of a file; an empty text is an empty mapping. The package limits aliases and refuses duplicate
 * keys. Every error has `code` and its location in the file.
 */
function parseMapping(source: SourceText, code: ErrorCode): YamlMapping {
  const lines = new LineCounter();
  const document = parseDocument(source.text, {
    lineCounter: lines,
    prettyErrors: false,
    logLevel: 'error',
  });
  const at = (offset: number): SourceLocation => {
    const { line, col } = lines.linePos(offset);
    return shifted(source, Math.max(1, line), Math.max(1, col));
  };
  const [problem] = document.errors;
  if (problem !== undefined) {
    throw new RyeError(code, `this is not YAML: ${problem.message}`, {
      location: at(problem.pos[0]),
    });
  }
  const value = toPlain(document, code, at(0)) ?? {};
  if (!isJsonObject(value)) {
    throw new RyeError(code, 'the YAML is not a mapping', {
      location: at(0),
      hint: 'Write one "key: value" on each line.',
    });
  }
  return { value, locate: (...place) => at(offsetOf(document.contents, place)) };
}

function toPlain(
  document: { toJS(): unknown },
  code: ErrorCode,
  location: SourceLocation,
): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // Only this step detects alias bombs and unresolved aliases.
    const reason = error instanceof Error ? error.message : String(error);
    throw new RyeError(code, `this YAML cannot be read: ${reason}`, { location });
  }
}

/** The offset of the node that the keys and indexes lead to, or of the last one on the way. */
function offsetOf(contents: unknown, place: readonly (string | number)[]): number {
  let offset = 0;
  let node = contents;
  for (const step of place) {
    if (!isCollection(node)) break;
    const pair = node.items.find((item) => isPair(item) && item.key.value === step);
    const found = typeof step === 'number' ? node.items[step] : isPair(pair) ? pair.key : undefined;
    if (!isRanged(found)) break;
    offset = found.range[0];
    node = isPair(pair) ? pair.value : found;
  }
  return offset;
}

function isCollection(node: unknown): node is { readonly items: readonly unknown[] } {
  return isObject(node) && 'items' in node && Array.isArray(node.items);
}

function isPair(
  node: unknown,
): node is { readonly key: { readonly value: unknown }; readonly value: unknown } {
  return isObject(node) && 'key' in node && isObject(node.key) && 'value' in node.key;
}

function isRanged(node: unknown): node is { readonly range: readonly [number] } {
  return (
    isObject(node) &&
    'range' in node &&
    Array.isArray(node.range) &&
    typeof node.range[0] === 'number'
  );
}

function isObject(node: unknown): node is object {
  return typeof node === 'object' && node !== null;
}

/** Reads the members of a YAML mapping; errors have the location of the member. */
export class MetadataReader {
  private readonly mapping: YamlMapping;
  private readonly code: ErrorCode;

  constructor(mapping: YamlMapping, code: ErrorCode) {
    this.mapping = mapping;
    this.code = code;
  }

  /** Returns a scalar as text; undefined if it is absent, null or blank. */
  text(key: string): string | undefined {
    const value = this.mapping.value[key];
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'object') throw this.wrong(key, 'text');
    const text = toText(value).trim();
    return text === '' ? undefined : text;
  }

  /** Reads a list of texts, or one text with commas; trims them and drops empty and duplicate ones. */
  list(key: string): readonly string[] {
    const value = this.mapping.value[key];
    if (value === undefined || value === null) return [];
    const parts = Array.isArray(value)
      ? value
      : typeof value === 'string'
        ? value.split(',')
        : [value];
    return this.unique(key, parts);
  }

  /** Like {@link list}, but does not split a text at commas. */
  entries(key: string): readonly string[] {
    const value = this.mapping.value[key];
    if (value === undefined || value === null) return [];
    return this.unique(key, Array.isArray(value) ? value : [value]);
  }

  flag(key: string, fallback: boolean): boolean {
    const value = this.mapping.value[key];
    if (value === undefined || value === null) return fallback;
    if (typeof value !== 'boolean') throw this.wrong(key, 'true or false');
    return value;
  }

  oneOf<T extends string>(key: string, allowed: readonly T[]): T | undefined {
    const text = this.text(key);
    if (text === undefined) return undefined;
    const found = allowed.find((value) => value === text);
    if (found === undefined) throw this.wrong(key, `one of ${allowed.join(', ')}`);
    return found;
  }

  wrong(key: string, expected: string): RyeError {
    return new RyeError(this.code, `${key} must be ${expected}`, {
      location: this.mapping.locate(key),
    });
  }

  private unique(key: string, parts: readonly unknown[]): readonly string[] {
    const texts = parts.map((part) => {
      if (typeof part === 'string') return part.trim();
      if (typeof part === 'number' || typeof part === 'boolean') return String(part);
      throw this.wrong(key, 'a list of texts');
    });
    return [...new Set(texts.filter((text) => text !== ''))];
  }
}

/** A text that starts with YAML between `---` lines. */
export interface Frontmatter {
  readonly mapping: YamlMapping;
  readonly body: string;
}

/**
 * Splits a file that starts with `---` frontmatter, optionally below a signature comment; undefined for other files.
 * gray-matter runs code for `---js`, so the `yaml` package is the only engine. Without options gray-matter would share
 * results through a mutable cache. Errors have `code` and the location in the file.
 */
export function splitFrontmatter(
  text: string,
  path: string,
  code: ErrorCode,
): Frontmatter | undefined {
  const normalized = withoutMark(normalizeNewlines(text));
  const newline = normalized.indexOf('\n');
  const signed = newline !== -1 && isSignatureLine(normalized.slice(0, newline));
  // an editor may have put the mark before or below the signature
  const content = signed ? withoutMark(normalized.slice(newline + 1)) : normalized;
  const line = signed ? 2 : 1;
  if (!/^---(?!-)/.test(content)) return undefined;
  const refuse = (): never => {
    throw new RyeError(code, 'frontmatter must be YAML', {
      location: { path, line },
      hint: 'Start the file with a bare --- line.',
    });
  };
  // gray-matter ends the block at the first line that begins with ---, even if more text follows.
  if (!/^[^\n]*\n(?:(?!---)[^\n]*\n)*---[ \t]*(?:\n|$)/.test(content)) {
    throw new RyeError(code, 'unclosed frontmatter', {
      location: { path, line },
      hint: 'Close it with a line ---.',
    });
  }
  let mapping: YamlMapping | undefined;
  const engine = (yaml: string): object => {
    mapping = parseYamlMapping(
      { path, text: yaml.replace(/^\n/, ''), line: line + 1, column: 1 },
      code,
    );
    return {};
  };
  const engines = { yaml: engine, yml: engine, json: refuse, js: refuse, javascript: refuse };
  const file = withMatter(content, engines, refuse);
  // gray-matter does not call the engine for a block of comments.
  mapping ??= parseYamlMapping({ path, text: '', line, column: 1 }, code);
  return { mapping, body: file.content.trim() };
}

/** Returns the text without a byte order mark. */
function withoutMark(text: string): string {
  return text.startsWith('\uFEFF') ? text.slice(1) : text;
}

type Engine = (text: string) => object;

function withMatter(
  content: string,
  engines: Readonly<Record<string, Engine>>,
  refuse: () => never,
): { readonly content: string } {
  try {
    return matter(content, { engines, language: 'yaml' });
  } catch (error) {
    if (error instanceof RyeError) throw error;
    // A language without an engine.
    return refuse();
  }
}

/** The version and description of an item in a listing; empty if a cheap look does not find them. */
export interface ItemSummary {
  readonly version: string;
  readonly description: string;
}

/** Characters at the start of a file that are searched for metadata. */
const HEAD = 16 * 1024;
const MAX_DESCRIPTION = 200;

/**
 * Finds version and description for `rye list` in the head of the file: in its frontmatter, or with patterns. Never fails
 * and does not validate the file.
 */
export function summarize(type: ItemType, text: string): ItemSummary {
  return SUMMARIES[type](normalizeNewlines(text.slice(0, HEAD)));
}

const SUMMARIES: Readonly<Record<ItemType, (head: string) => ItemSummary>> = {
  directive: (head) => (/<directive\b/.test(head) ? xmlSummary(head) : metadataSummary(head)),
  tool: (head) =>
    summary(
      constant(head, '__version__') ?? member(head, 'version'),
      constant(head, '__tool_description__') ?? member(head, 'description'),
    ),
  knowledge: (head) => metadataSummary(head, ['description', 'title', 'name']),
  rule: metadataSummary,
  skill: metadataSummary,
};

function xmlSummary(head: string): ItemSummary {
  return summary(
    /<directive\b[^>]*?\bversion\s*=\s*["']([^"']*)["']/.exec(head)?.[1],
    decode(/<description>([\s\S]*?)<\/description>/.exec(head)?.[1]),
  );
}

function metadataSummary(head: string, names = ['description']): ItemSummary {
  const read = frontmatterReader(head) ?? ((name: string) => member(head, name));
  return summary(
    read('version'),
    names.reduce<string | undefined>((found, name) => found ?? read(name), undefined),
  );
}

/** Reads members of the YAML between `---` lines or in a fence; undefined where there is none. */
function frontmatterReader(head: string): ((name: string) => string | undefined) | undefined {
  const yaml = /^(?:---|```ya?ml)[ \t]*\n([\s\S]*?)\n(?:---|```)/m.exec(withoutMark(head))?.[1];
  if (yaml === undefined) return undefined;
  return (name) => {
    // each member by itself: another one may be no YAML
    const text = new RegExp(`^${name}:.*(?:\\n(?:[ \\t].*)?)*`, 'm').exec(yaml)?.[0] ?? '';
    const code = 'invalid_input';
    try {
      const mapping = parseYamlMapping({ path: '', text, line: 1, column: 1 }, code);
      const isText = isScalar(mapping.value[name]);
      return isText ? new MetadataReader(mapping, code).text(name) : undefined;
    } catch {
      return member(yaml, name);
    }
  };
}

function isScalar(value: unknown): boolean {
  return typeof value !== 'object';
}

function summary(version: string | undefined, description: string | undefined): ItemSummary {
  const line = (description ?? '').replaceAll(/\s+/g, ' ').trim();
  return {
    version: (version ?? '').trim(),
    description: line.length > MAX_DESCRIPTION ? `${headChars(line, MAX_DESCRIPTION - 1)}…` : line,
  };
}

/** Finds `name = "text"` in JavaScript or Python. */
function constant(text: string, name: string): string | undefined {
  const found = new RegExp(
    `^(?:export )?(?:const |let |var )?${name}(?::[^=]*)?\\s*=\\s*(["'\`])(.*?)\\1`,
    'm',
  ).exec(text);
  return found?.[2];
}

/** Finds `name: text` on a line of YAML, also after a comment mark. */
function member(text: string, name: string): string | undefined {
  const found = new RegExp(`^(?:[#;%*/ -]* )?${name}:[ \\t]*(.+)$`, 'm').exec(text)?.[1]?.trim();
  if (found === undefined || /^[|>]/.test(found)) return undefined;
  return /^(["'])(.*)\1(?:\s*#.*)?$/.exec(found)?.[2] ?? found.replace(/\s+#.*$/, '');
}

const ENTITIES: Readonly<Record<string, string>> = {
  lt: '<',
  gt: '>',
  quot: '"',
  apos: "'",
  amp: '&',
};

function decode(text: string | undefined): string | undefined {
  return text?.replaceAll(
    /&(lt|gt|quot|apos|amp);/g,
    (whole, name: string) => ENTITIES[name] ?? whole,
  );
}
