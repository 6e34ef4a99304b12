import canonicalize from 'canonicalize';
import { messageOf, RyeError } from '../core/errors.ts';

/**
 * The one text form of a JSON value that signatures are made over: RFC 8785 (JSON Canonicalization Scheme).
 * `undefined` members are left out. Throws `invalid_input` for what JSON cannot carry: NaN, infinities, lone
 * surrogates, cycles, and nesting deeper than the stack.
 */
export function canonicalJson(value: unknown): string {
  let text: string | undefined;
  try {
    text = canonicalize(value);
  } catch (error) {
    throw new RyeError('invalid_input', `a value has no canonical JSON form: ${messageOf(error)}`, {
      cause: error,
    });
  }
  if (text === undefined) {
    throw new RyeError(
      'invalid_input',
      `a value of type ${typeof value} has no canonical JSON form`,
    );
  }
  return text;
}
