import canonicalize from 'canonicalize';
import { messageOf, RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';

/**
 * Returns the canonical text of a JSON value that signatures cover: RFC 8785 (JSON Canonicalization Scheme). Ignores
 * `undefined` members. Throws `invalid_input` for values that JSON cannot represent: NaN, infinities, lone surrogates,
 * cycles, and nesting deeper than the stack.
 */
export function canonicalJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = canonicalize(value);
  } catch (error) {
    throw new RyeError('invalid_input', `value without canonical JSON form: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (text === undefined) {
    throw new RyeError(
      'invalid_input',
      `value of type ${typeof value} without canonical JSON form`,
    );
  }
  return text;
}

/** Parsed JSON may have no canonical form, for example with a lone surrogate; then no signature can match. */
export function canonicalIfPossible(content: JsonObject): string | undefined {
  try {
    return canonicalJson(content);
  } catch (error) {
    if (error instanceof RyeError) return undefined;
    throw error;
  }
}
