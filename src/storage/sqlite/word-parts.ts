/** Text of scripts that put no spaces between words, which the tokenizer of the index takes for one word. */
const UNSPACED =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\u{30FC}]+/gu;
const WORD = /[A-Za-z][A-Za-z0-9]*/g;
/** A longer one is data. */
const MAX_WORD = 200;
/** A place inside a word where another one begins, as in `retryDelay` or `HTTPServer`. */
const SEAM = /[a-z0-9][A-Z]|[A-Z]{2}[a-z]/;
const PART = /[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+/g;

/**
 * Returns a text as it is indexed: itself, and after it the parts by which its words are found: `retry` and `delay` of
 * `retryDelay`, and each pair of neighbors in a text without spaces.
 */
export function withParts(text: string): string {
  const parts = new Set<string>();
  for (const [word] of text.matchAll(WORD)) {
    if (word.length <= MAX_WORD && SEAM.test(word)) parts.add(word.match(PART)?.join(' ') ?? '');
  }
  for (const [run] of text.matchAll(UNSPACED)) parts.add(pairs(run));
  return parts.size === 0 ? text : `${text}\n${[...parts].join('\n')}`;
}

/** Returns a searched text with its parts without spaces as pairs, which are beside each other where the text is. */
export function pairedText(text: string): string {
  return text.replaceAll(UNSPACED, (run) => pairs(run, false));
}

/** True for a single sign of a script without spaces: it is the beginning of a pair. */
export function isOneSign(text: string): boolean {
  const [run = ''] = text.match(UNSPACED) ?? [];
  return run === text && Array.from(run).length === 1;
}

function pairs(run: string, hasLast = true): string {
  const signs = Array.from(run);
  if (signs.length === 1) return run;
  const all = signs.slice(1).map((sign, index) => `${signs[index]}${sign}`);
  // the last sign by itself can be searched for too
  return [...all, ...(hasLast ? signs.slice(-1) : [])].join(' ');
}
