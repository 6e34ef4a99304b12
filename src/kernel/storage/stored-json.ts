import { RyeError } from '../core/errors.ts';
import { isRecord, parseJson } from '../core/json.ts';
import type { Shape } from '../core/shape.ts';

/**
 * Reads JSON that rye wrote into a row. Another program may have changed the row: throws `thread_tampered` unless the value
 * has the shape; signatures decide about its content.
 */
export function storedJson<T>(text: string, shape: Shape<T>, what: string): T {
  const value: unknown = parseJson(text);
  if (isRecord(value) && shape.fits(value)) return value;
  throw new RyeError('thread_tampered', `${what} in the store is damaged`, {
    hint: 'It was changed in the database. Restore a copy of the database, or look for who can write to it.',
  });
}
