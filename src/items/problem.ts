import type { ErrorCode, SourceLocation } from '../core/errors.ts';
import { formatLocation, RyeError, toRyeError } from '../core/errors.ts';

/** Something wrong with an item, as `rye validate` prints it: `file:line:col: code: message`. */
export interface ItemProblem {
  readonly severity: 'error' | 'warning';
  readonly code: ErrorCode;
  readonly message: string;
  readonly location: SourceLocation;
  readonly hint?: string;
}

/** What a parser says about one place of a file. */
export interface Finding {
  readonly code: ErrorCode;
  readonly message: string;
  readonly location: SourceLocation;
  readonly hint?: string | undefined;
}

/** Collects problems while a parser goes on, so that one run can report all of them. */
export class Problems {
  private readonly found: ItemProblem[] = [];

  error(finding: Finding): void {
    this.record('error', finding);
  }

  warn(finding: Finding): void {
    this.record('warning', finding);
  }

  /** Records an error that some inner parser has thrown. */
  caught(
    error: unknown,
    fallback: { readonly code: ErrorCode; readonly location: SourceLocation },
  ): void {
    this.found.push(problemOf(error, fallback));
  }

  /** Takes over problems that somebody else found. */
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

  /** Throws the first error as a RyeError; the others stand in its `details.problems`. */
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

/** The problem that a thrown error stands for. */
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

/** `file:line:col: code: message`. */
export function formatProblem({ code, message, location }: ItemProblem): string {
  return `${formatLocation(location)}: ${code}: ${message}`;
}
