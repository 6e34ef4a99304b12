import { RyeError } from '../core/errors.ts';

const STAR = '*';
/** Intermediate strings that one intersection may make; ordinary patterns need a few dozen. */
const MAX_WORK = 20_000;

/**
 * True if `text` is in the language of `pattern`, where `*` matches any text. A `*` inside `text` is an ordinary
 * character that only a `*` matches, so the same function decides inclusion between patterns. Greedy, no
 * backtracking: at most |pattern| · |text| steps.
 */
export function globMatches(pattern: string, text: string): boolean {
  const pieces = pattern.split(STAR);
  const head = pieces[0] ?? '';
  if (pieces.length === 1) return head === text;
  const tail = pieces[pieces.length - 1] ?? '';
  if (text.length < head.length + tail.length) return false;
  if (!text.startsWith(head) || !text.endsWith(tail)) return false;
  const end = text.length - tail.length;
  let from = head.length;
  for (const piece of pieces.slice(1, -1)) {
    const found = text.indexOf(piece, from);
    if (found < 0 || found + piece.length > end) return false;
    from = found + piece.length;
  }
  return true;
}

/**
 * Patterns whose union is exactly the intersection of two patterns. Walks both from the left: equal characters are
 * kept, a `*` ends here or swallows the other side's next character, and two `*` give one `*` after which either may
 * end first. Patterns with many `*` can overlap in exponentially many ways, so the work is bounded:
 * `pattern_invalid` past the bound.
 */
export function globIntersection(left: string, right: string): string[] {
  if (areApart(left, right)) return [];
  const memo = new Map<number, readonly string[]>();
  let work = 0;

  const cell = (i: number, j: number): readonly string[] => {
    const key = i * (right.length + 1) + j;
    const known = memo.get(key);
    if (known !== undefined) return known;
    const found = [...new Set(overlaps(i, j))];
    work += found.length;
    if (work > MAX_WORK) throw tooManyOverlaps(left, right);
    memo.set(key, found);
    return found;
  };

  const overlaps = (i: number, j: number): readonly string[] => {
    const a = left[i];
    const b = right[j];
    if (a === STAR && b === STAR) return [...cell(i + 1, j), ...cell(i, j + 1)].map(startWithStar);
    if (a === STAR) return [...cell(i + 1, j), ...prefixed(b, () => cell(i, j + 1))];
    if (b === STAR) return [...cell(i, j + 1), ...prefixed(a, () => cell(i + 1, j))];
    if (a === undefined && b === undefined) return [''];
    return a === b ? prefixed(a, () => cell(i + 1, j + 1)) : [];
  };

  return [...cell(0, 0)];
}

/** True if no text can begin, or end, as both patterns do: the usual case, which needs no walk. */
function areApart(left: string, right: string): boolean {
  const [a, b] = [left.split(STAR), right.split(STAR)];
  const [head, otherHead] = [a[0] ?? '', b[0] ?? ''];
  if (!head.startsWith(otherHead) && !otherHead.startsWith(head)) return true;
  const [tail, otherTail] = [a.at(-1) ?? '', b.at(-1) ?? ''];
  return !tail.endsWith(otherTail) && !otherTail.endsWith(tail);
}

function prefixed(character: string | undefined, rest: () => readonly string[]): readonly string[] {
  return character === undefined ? [] : rest().map((text) => character + text);
}

function startWithStar(rest: string): string {
  return rest.startsWith(STAR) ? rest : STAR + rest;
}

function tooManyOverlaps(left: string, right: string): RyeError {
  return new RyeError(
    'pattern_invalid',
    `the patterns "${left}" and "${right}" overlap in too many ways`,
    { hint: 'Write the capability with fewer * in the middle.' },
  );
}
