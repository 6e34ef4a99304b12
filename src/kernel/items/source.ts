import {
  type ErrorCode,
  formatLocation,
  RyeError,
  type SourceLocation,
  toRyeError,
} from '../core/errors.ts';
import { LruMap } from '../core/lru.ts';
import { sha256Hex } from '../trust/keys.ts';

/** A part of a file's text, with the position of its first character for error locations. */
export interface SourceText {
  readonly path: string;
  readonly text: string;
  /** Line of the first character in the file, from 1. */
  readonly line: number;
  /** Column of the first character in the file, from 1. */
  readonly column: number;
}

/** Converts CRLF and CR to LF, as signing does, so that offsets, lines and hashes agree. Keeps a byte order mark. */
export function normalizeNewlines(text: string): string {
  return text.includes('\r') ? text.replaceAll('\r\n', '\n').replaceAll('\r', '\n') : text;
}

/** Converts offsets to locations in the file. Construction is O(length), a lookup O(log lines). */
export class Locator {
  private readonly source: SourceText;
  private readonly starts: number[] = [0];

  constructor(source: SourceText) {
    this.source = source;
    for (let at = source.text.indexOf('\n'); at !== -1; at = source.text.indexOf('\n', at + 1)) {
      this.starts.push(at + 1);
    }
  }

  at(offset: number): SourceLocation & { readonly line: number; readonly column: number } {
    let low = 0;
    let high = this.starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.starts[middle] ?? 0) <= offset) low = middle;
      else high = middle - 1;
    }
    const column = offset - (this.starts[low] ?? 0) + 1;
    const { path, line, column: first } = this.source;
    return { path, line: line + low, column: low === 0 ? column + first - 1 : column };
  }
}

/** Converts a line and column of the source to a location in the file. */
export function shifted(source: SourceText, line: number, column: number): SourceLocation {
  return {
    path: source.path,
    line: source.line + line - 1,
    column: line === 1 ? column + source.column - 1 : column,
  };
}

/** Formats a location as an origin: `file:line`. */
export function originOf({ path, line }: SourceLocation): string {
  return line === undefined ? path : `${path}:${line}`;
}

/** A problem of an item; `rye validate` prints it as `file:line:col: code: message`. */
export interface ItemProblem {
  readonly severity: 'error' | 'warning';
  readonly code: ErrorCode;
  readonly message: string;
  readonly location: SourceLocation;
  readonly hint?: string;
}

/** A problem that a parser reports, without its severity. */
export interface Finding {
  readonly code: ErrorCode;
  readonly message: string;
  readonly location: SourceLocation;
  readonly hint?: string | undefined;
}

/** Collects problems so that a parser can continue and report all of them. */
export class Problems {
  private readonly found: ItemProblem[] = [];

  error(finding: Finding): void {
    this.record('error', finding);
  }

  warn(finding: Finding): void {
    this.record('warning', finding);
  }

  /** Records an error that a nested parser threw. */
  caught(
    error: unknown,
    fallback: { readonly code: ErrorCode; readonly location: SourceLocation },
  ): void {
    this.found.push(problemOf(error, fallback));
  }

  /** Adds problems of another collection. */
  addAll(found: readonly ItemProblem[]): void {
    this.found.push(...found);
  }

  get all(): readonly ItemProblem[] {
    return this.found;
  }

  get warnings(): readonly ItemProblem[] {
    return this.found.filter(({ severity }) => severity === 'warning');
  }

  get hasErrors(): boolean {
    return this.found.some(({ severity }) => severity === 'error');
  }

  /** Throws the first error as a RyeError, with all errors in `details.problems` if there are several. */
  throwIfAny(): void {
    const errors = this.found.filter(({ severity }) => severity === 'error');
    const [first] = errors;
    if (first === undefined) return;
    throw new RyeError(first.code, first.message, {
      hint: first.hint,
      location: first.location,
      ...(errors.length > 1 ? { details: { problems: errors.map(formatProblem) } } : {}),
    });
  }

  private record(severity: 'error' | 'warning', { code, message, location, hint }: Finding): void {
    this.found.push({ severity, code, message, location, ...(hint === undefined ? {} : { hint }) });
  }
}

/** Converts a thrown error to a problem. */
export function problemOf(
  error: unknown,
  fallback: { readonly code: ErrorCode; readonly location: SourceLocation },
): ItemProblem {
  const { code, message, hint, location } = toRyeError(error, fallback.code);
  const prefix = location === undefined ? '' : `${formatLocation(location)}: `;
  return {
    severity: 'error',
    code,
    message: message.startsWith(prefix) ? message.slice(prefix.length) : message,
    location: location ?? fallback.location,
    ...(hint === undefined ? {} : { hint }),
  };
}

/** Formats a problem as `file:line:col: code: message`. */
export function formatProblem({ code, message, location }: ItemProblem): string {
  return `${formatLocation(location)}: ${code}: ${message}`;
}

/** Longer texts are parsed again: remembering keeps them whole. */
const MAX_REMEMBERED_LENGTH = 64 * 1024;

/**
 * Wraps a parser so that it remembers its results by text and path: a process that prepares thread after thread parses
 * each file once. Results must not be changed. Failures are not remembered.
 */
export function rememberParsed<T>(
  parse: (text: string, path: string) => T,
): (text: string, path: string) => T {
  const known = new LruMap<string, { readonly value: T }>(256);
  return (text, path) => {
    if (text.length > MAX_REMEMBERED_LENGTH) return parse(text, path);
    return known.getOrMake(cacheKey(text, path), () => ({ value: parse(text, path) })).value;
  };
}

/** Returns the key under which what was parsed from a text is remembered. */
export function cacheKey(text: string, path: string): string {
  return `${sha256Hex(text)} ${path}`;
}
