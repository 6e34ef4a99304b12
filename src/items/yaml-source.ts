import { LineCounter, parseDocument } from 'yaml';
import type { ErrorCode, SourceLocation } from '../core/errors.ts';
import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { isJsonObject } from '../core/json.ts';
import type { SourceText } from './source-text.ts';
import { shifted } from './source-text.ts';

/** A YAML mapping with the places of its top-level keys. */
export interface YamlMapping {
  readonly value: JsonObject;
  /** Place of a top-level key; of the mapping's start where it has no such key. */
  locate(key: string): SourceLocation;
}

/**
 * Parses one YAML mapping cut out of a file; an empty text is an empty mapping. Aliases are bounded by the package, duplicate keys are
 * errors. Every error has `code` and its place in the file.
 */
export function parseYamlMapping(source: SourceText, code: ErrorCode): YamlMapping {
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
  const places = new Map<string, number>();
  for (const { key, offset } of topLevelKeys(document.contents)) places.set(key, offset);
  return { value, locate: (key) => at(places.get(key) ?? 0) };
}

function toPlain(
  document: { toJS(): unknown },
  code: ErrorCode,
  location: SourceLocation,
): unknown {
  try {
    return document.toJS();
  } catch (error) {
    // Alias bombs and unresolved aliases are found only here.
    const reason = error instanceof Error ? error.message : String(error);
    throw new RyeError(code, `this YAML cannot be read: ${reason}`, { location });
  }
}

function topLevelKeys(contents: unknown): { readonly key: string; readonly offset: number }[] {
  if (typeof contents !== 'object' || contents === null || !('items' in contents)) return [];
  if (!Array.isArray(contents.items)) return [];
  return contents.items.flatMap(
    (pair: { readonly key?: { readonly value?: unknown; readonly range?: unknown } }) => {
      const { value, range } = pair.key ?? {};
      const offset: unknown = Array.isArray(range) ? range[0] : undefined;
      return typeof value === 'string' && typeof offset === 'number'
        ? [{ key: value, offset }]
        : [];
    },
  );
}
