import { RyeError } from '../core/errors.ts';
import { ITEM_TYPES, type ItemType, type SignableType } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';

/** What stands for a type on the command line: singular or plural. */
function typeNamed<T extends string>(text: string, types: readonly T[]): T {
  const wanted = text.toLowerCase();
  const found = types.find((type) => type === wanted || `${type}s` === wanted);
  if (found !== undefined) return found;
  throw new RyeError('usage', `${JSON.stringify(text)} is not a type`, {
    hint: didYouMean(wanted, types) ?? `A type is one of: ${types.join(', ')}.`,
  });
}

export function parseItemType(text: string): ItemType {
  return typeNamed(text, ITEM_TYPES);
}

/** An item type or `all`. */
export function parseSearchType(text: string): ItemType | 'all' {
  return typeNamed(text, [...ITEM_TYPES, 'all']);
}

export function parseSignableType(text: string): SignableType {
  return typeNamed(text, [...ITEM_TYPES, 'config']);
}

/** A signable type or `thread`. */
export function parseVerifiableType(text: string): SignableType | 'thread' {
  return typeNamed(text, [...ITEM_TYPES, 'config', 'thread']);
}
