import { isRecord } from '../core/json.ts';
import { headBytes } from '../core/text.ts';

/** Texts up to this many characters stay on a line that is too long. */
const KEPT_CHARS = 64 * 1024;
/** Bytes that are kept of a truncated text. */
const HEAD_BYTES = 2048;

/**
 * A payload for a line that would be too long: of each long text its head and where all of it is. `save` keeps a text and
 * returns its path. Blocks that can't be truncated become text: an image, and reasoning, whose signature covers the whole.
 */
export function withoutLongTexts(payload: object, save: (text: string) => string): object {
  const shorten = (text: string): string =>
    text.length <= KEPT_CHARS ? text : headAndPlace(text, HEAD_BYTES, save(text));
  const visit = (value: unknown): unknown => {
    if (typeof value === 'string') return shorten(value);
    if (Array.isArray(value)) return value.map(visit);
    if (!isRecord(value)) return value;
    const { type, data, text } = value;
    if (type === 'image' && typeof data === 'string' && data.length > KEPT_CHARS) {
      return { type: 'text', text: `[An image, as base64 in ${save(data)}]` };
    }
    if (type === 'thinking' && typeof text === 'string' && text.length > KEPT_CHARS) {
      return { type, text: shorten(text) };
    }
    return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, visit(member)]));
  };
  return visit(payload) as object;
}

/** The first `maxBytes` UTF-8 bytes of a longer text, what they are of, and where the whole is. */
export function headAndPlace(text: string, maxBytes: number, place: string): string {
  const head = headBytes(text.slice(0, maxBytes), maxBytes);
  return `${head}\n… (the first ${Buffer.byteLength(head)} of ${Buffer.byteLength(text)} bytes; all of it is in ${place})`;
}
