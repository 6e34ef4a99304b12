import type { ErrorCode, SourceLocation } from '../core/errors.ts';
import { RyeError } from '../core/errors.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';

/** An import of a Python module that is not part of the standard library. */
export interface ModuleImport {
  /** `a.b`; empty for `from . import x`. */
  readonly module: string;
  readonly names: readonly string[];
  /** Leading dots of a relative import. */
  readonly level: number;
  readonly line: number;
  /** True inside a `try` that handles ImportError. */
  readonly optional: boolean;
}

/** What a script's source shows of its behavior without running it. */
export interface SourceFacts {
  /** `--params` and `--project-path`, if the source mentions them as arguments. */
  readonly flags: readonly string[];
  readonly imports: readonly ModuleImport[];
  /** False if running the file can have no effect: it only defines and imports. */
  readonly runsSomething: boolean;
  /** True if the file has an entry point of its own. */
  readonly hasMain: boolean;
  /** A top-level `execute` function: positional parameters without a default, required keyword-only ones, and its line. */
  readonly execute?: {
    readonly required: number;
    readonly keywords: number;
    readonly line: number;
  };
}

/** What decides how a file runs. */
export interface RuntimeQuestion {
  readonly path: string;
  readonly kind: string;
  /** Members of the header, the manifest or the constants. */
  readonly value: JsonObject;
  locate(key: string): SourceLocation;
  readonly facts: SourceFacts | undefined;
  readonly files: Readonly<Record<string, string>> | undefined;
  /** The names of the input schema's properties. */
  readonly parameters: readonly string[];
  /** Reads another manifest below the same `.ai/tools` by id; undefined if there is none. */
  readonly manifest?: ((id: string) => JsonObject | undefined) | undefined;
}

/** What a refusal tells: what is wrong, and what to write instead. */
export interface Advice {
  readonly message: string;
  readonly hint: string;
  readonly code?: ErrorCode;
  readonly line?: number;
}

export function refuse(question: RuntimeQuestion, advice: Advice, key = ''): RyeError {
  const { path } = question;
  const location = advice.line === undefined ? question.locate(key) : { path, line: advice.line };
  return new RyeError(advice.code ?? 'tool_unsupported', advice.message, {
    location,
    hint: advice.hint,
  });
}

/** A member as text: numbers and booleans as they are written, anything else as the fallback. */
export function plainText(value: JsonValue | undefined, fallback = ''): string {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : fallback;
}
