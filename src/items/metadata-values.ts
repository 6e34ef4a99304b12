import type { ErrorCode } from '../core/errors.ts';
import { RyeError } from '../core/errors.ts';
import { toText } from '../core/json.ts';
import type { YamlMapping } from './yaml-source.ts';

/** Reads the members of a YAML mapping with errors at the place of the member. */
export class MetadataReader {
  private readonly mapping: YamlMapping;
  private readonly code: ErrorCode;

  constructor(mapping: YamlMapping, code: ErrorCode) {
    this.mapping = mapping;
    this.code = code;
  }

  /** A scalar as text; undefined where it is absent, null or blank. */
  text(key: string): string | undefined {
    const value = this.mapping.value[key];
    if (value === undefined || value === null) return undefined;
    if (typeof value === 'object') throw this.wrong(key, 'text');
    const text = toText(value).trim();
    return text === '' ? undefined : text;
  }

  /** A list of texts, or one text with commas between the parts; trimmed, empty ones dropped, each once. */
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

  /** Like {@link list}, but one text is one entry, commas and all. */
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

  wrong(key: string, wanted: string): RyeError {
    return new RyeError(this.code, `${key} must be ${wanted}`, {
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
