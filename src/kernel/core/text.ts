import { delimiter, isAbsolute } from 'node:path';

/** Levenshtein distance, given up (as Infinity) past `max`. */
function editDistance(left: string, right: string, max = Number.POSITIVE_INFINITY): number {
  if (Math.abs(left.length - right.length) > max) return Number.POSITIVE_INFINITY;
  let previous = Array.from({ length: right.length + 1 }, (_, index) => index);
  for (let row = 1; row <= left.length; row += 1) {
    const current = [row];
    for (let column = 1; column <= right.length; column += 1) {
      const substitution =
        (previous[column - 1] ?? 0) + (left[row - 1] === right[column - 1] ? 0 : 1);
      current.push(
        Math.min(substitution, (previous[column] ?? 0) + 1, (current[column - 1] ?? 0) + 1),
      );
    }
    if (Math.min(...current) > max) return Number.POSITIVE_INFINITY;
    previous = current;
  }
  const distance = previous[right.length] ?? 0;
  return distance <= max ? distance : Number.POSITIVE_INFINITY;
}

/**
 * Returns up to `limit` candidates that a person may have meant by `wanted`, nearest first. Compares whole names and
 * their last segments; drops candidates that are clearly farther than the nearest.
 */
export function nearNames(wanted: string, candidates: Iterable<string>, limit = 3): string[] {
  const needle = wanted.toLowerCase();
  const needleSegment = needle.slice(needle.lastIndexOf('/') + 1);
  const scored: { name: string; score: number }[] = [];
  for (const name of new Set(candidates)) {
    const other = name.toLowerCase();
    const score = Math.min(
      editDistance(needle, other, toleranceOf(needle)),
      editDistance(
        needleSegment,
        other.slice(other.lastIndexOf('/') + 1),
        toleranceOf(needleSegment),
      ) + 0.5,
    );
    const isNear = score < Number.POSITIVE_INFINITY && !isOtherWord(needle, other, score);
    if (isNear) scored.push({ name, score });
  }
  scored.sort((a, b) => a.score - b.score || (a.name < b.name ? -1 : 1));
  const [nearest] = scored;
  return scored
    .filter(({ score }) => score <= (nearest?.score ?? 0) + 1)
    .slice(0, limit)
    .map(({ name }) => name);
}

/** Returns how many edits still count as a typo: a third of the letters, at least one, at most three. */
function toleranceOf({ length }: string): number {
  return Math.min(3, Math.max(length < 3 ? 1 : 2, Math.floor(length / 3)));
}

const SHORT = 5;

/** True if half of a short word differs and its first letter too: that is another word, not a typo. */
function isOtherWord(needle: string, other: string, score: number): boolean {
  return needle.length < SHORT && score >= 2 && needle[0] !== other[0];
}

/** Returns `Did you mean a or b?`, or undefined if nothing is near. */
export function didYouMean(
  wanted: string,
  candidates: Iterable<string>,
  format = (name: string): string => name,
): string | undefined {
  const names = nearNames(wanted, candidates).map(format);
  return names.length === 0 ? undefined : `Did you mean ${names.join(' or ')}?`;
}

/** Escapes text for an XML or HTML text node or a double-quoted attribute. */
export function escapeXml(text: string): string {
  return text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;');
}

/** Cuts `text` to at most `maxBytes` UTF-8 bytes without splitting a code point; keeps the head. */
export function headBytes(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= maxBytes) return text;
  let end = maxBytes;
  while (end > 0 && isContinuation(bytes[end])) end -= 1;
  return bytes.toString('utf8', 0, end);
}

/** Cuts `text` to at most `max` code units without splitting a code point. */
export function headChars(text: string, max: number): string {
  const isSplit = /[\ud800-\udbff]/.test(text.charAt(max - 1)) && max < text.length;
  return text.slice(0, isSplit ? max - 1 : max);
}

/** Cuts `text` to its last `maxBytes` UTF-8 bytes at most, without splitting a code point. */
function tailBytes(text: string, maxBytes: number): string {
  const bytes = Buffer.from(text, 'utf8');
  if (bytes.length <= maxBytes) return text;
  let start = bytes.length - maxBytes;
  while (isContinuation(bytes[start])) start += 1;
  return bytes.toString('utf8', start);
}

/**
 * The first and the last `maxBytes / 2` bytes of a longer text, with a line between them that tells how much is
 * missing. The end of a tool's output is as telling as its beginning: errors and totals come last.
 */
export function headAndTail(text: string, maxBytes: number): string {
  const total = Buffer.byteLength(text, 'utf8');
  if (total <= maxBytes) return text;
  const half = Math.floor(maxBytes / 2);
  const head = headBytes(text, half);
  const tail = tailBytes(text, half);
  const missing = total - Buffer.byteLength(head, 'utf8') - Buffer.byteLength(tail, 'utf8');
  return `${head}\n…(${missing} bytes omitted)…\n${tail}`;
}

function isContinuation(byte: number | undefined): boolean {
  return byte !== undefined && (byte & 0xc0) === 0x80;
}

/** Maximum number of pieces before they are joined. */
const MAX_PIECES = 1024;

/**
 * A text that grows by small pieces. Adding to a string keeps every piece and a node for it, about a hundred bytes each, until
 * it is read; this keeps the text alone.
 */
export class GrowingText {
  #pieces: string[] = [];
  #chunks: string[] = [];

  constructor(text = '') {
    this.add(text);
  }

  get isEmpty(): boolean {
    return this.#pieces.length === 0 && this.#chunks.length === 0;
  }

  add(piece: string): void {
    if (piece === '') return;
    this.#pieces.push(piece);
    if (this.#pieces.length < MAX_PIECES) return;
    this.#chunks.push(this.#pieces.join(''));
    this.#pieces = [];
  }

  /** The whole, which is all that is kept from here on. */
  toString(): string {
    const whole = [...this.#chunks, ...this.#pieces].join('');
    this.#chunks = whole === '' ? [] : [whole];
    this.#pieces = [];
    return whole;
  }
}

/** Bidirectional embeddings, overrides and isolates: they make a text look like another one. */
const BIDI_CONTROLS = /[\u202a-\u202e\u2066-\u2069]/g;

/** Text for documents: no bidirectional controls, one kind of line end, and a mark for each other control character. */
export function withoutControls(text: string): string {
  return text
    .replaceAll(BIDI_CONTROLS, '')
    .replaceAll(/\r\n?/g, '\n')
    .replaceAll(/(?![\n\t])\p{Cc}/gu, '\u{FFFD}')
    .replaceAll(/\p{Surrogate}/gu, '\u{FFFD}');
}

/** A PATH without relative entries: programs are looked for from inside of projects, which must not bring their own. */
export function absoluteSearchPath(path: string): string {
  return path
    .split(delimiter)
    .filter((folder) => isAbsolute(folder))
    .join(delimiter);
}

/** Returns the line of the first conflict marker that a merge left in a text; undefined without a whole conflict. */
export function conflictLine(text: string): number | undefined {
  const start = /^<{7}(?: .*)?$/m.exec(text)?.index;
  if (start === undefined || !/^={7}$/m.test(text) || !/^>{7}(?: .*)?$/m.test(text))
    return undefined;
  return text.slice(0, start).split('\n').length;
}
