import {
  type SearchDocument,
  type SearchNode,
  SNIPPET_CLOSE,
  SNIPPET_OPEN,
  type TextField,
} from '../../kernel/core/search.ts';

/** Length of a snippet in characters, and the part of it before the first match. */
const WIDTH = 200;
const BEFORE = 60;
/** Length of a snippet without a match. */
const HEAD = 160;
/** Maximum matches that are compared to find the best position. */
const MAX_MATCHES = 200;
/** Maximum characters of context on each side of a match. */
const CONTEXT_WIDTH = 1200;

/** Word characters and accents as the tokenizer of the index defines them. */
interface Alphabet {
  readonly word: string;
  readonly accents: string;
  readonly flags: string;
}

const ANY: Alphabet = {
  word: String.raw`\p{L}\p{N}\p{Co}`,
  accents: String.raw`\p{M}`,
  flags: 'iu',
};
// Unicode classes take several milliseconds to compile
const ASCII: Alphabet = { word: 'a-z0-9', accents: '', flags: 'i' };

function alphabetOf(text: string): Alphabet {
  return isAscii(text) ? ASCII : ANY;
}

function isAscii(text: string): boolean {
  return !/[^\0-\x7f]/.test(text);
}

/** Splits a text into words as the index does: lower case, without accents. */
export function wordsOf(text: string): readonly string[] {
  const { word, flags } = alphabetOf(text);
  return folded(text).match(new RegExp(`[${word}]+`, `g${flags}`)) ?? [];
}

function folded(text: string): string {
  const plain = isAscii(text) ? text : text.normalize('NFD').replaceAll(/\p{M}/gu, '');
  return plain.toLowerCase();
}

/**
 * Returns the part of a document with the most different matches close together, with marks around them; the beginning
 * if nothing matches. Takes time linear in the text.
 */
export function snippetOf(
  document: Pick<SearchDocument, 'title' | 'tags' | 'id' | 'body'>,
  node: SearchNode | undefined,
): string {
  // the index also finds parts of words
  for (const isPart of [false, true]) {
    for (const [field, name] of FIELDS) {
      const text = unmarked(document[name]);
      const pattern = node && patternOf(node, field, alphabetOf(text), isPart);
      const matches = pattern ? findMatches(text, pattern) : [];
      if (matches.length > 0) return cut(text, matches);
    }
  }
  return unmarked(document.body).slice(0, HEAD);
}

/** Returns the lines around the first match, `lines` on each side; undefined if no term matches. */
export function contextOf(
  text: string,
  node: SearchNode | undefined,
  lines: number,
): string | undefined {
  const alphabet = alphabetOf(text);
  const patterns = FIELDS.map(([field]) => node && patternOf(node, field, alphabet));
  const match = patterns
    .map((pattern) => pattern && findMatches(text, pattern, 1)[0])
    .find(Boolean);
  if (match === undefined) return undefined;
  let start = match.start;
  for (let line = 0; line <= lines && start > 0; line += 1)
    start = text.lastIndexOf('\n', start - 1);
  let end = match.end;
  for (let line = 0; line <= lines && end !== -1; line += 1) {
    end = text.indexOf('\n', line === 0 ? end : end + 1);
  }
  const from = Math.max(text[start] === '\n' ? start + 1 : 0, match.start - CONTEXT_WIDTH, 0);
  const to = Math.min(end === -1 ? text.length : end, match.start + CONTEXT_WIDTH);
  return text.slice(from, to).replaceAll('\r', '');
}

const FIELDS: readonly (readonly [TextField, 'title' | 'tags' | 'id' | 'body'])[] = [
  ['body', 'body'],
  ['title', 'title'],
  ['tag', 'tags'],
  ['id', 'id'],
];

interface Match {
  readonly start: number;
  readonly end: number;
}

/** Returns one pattern for all terms of a query in a field; undefined if there are none. */
function patternOf(
  node: SearchNode,
  field: TextField,
  alphabet: Alphabet,
  isPart = false,
): RegExp | undefined {
  const sources = [...new Set(alternatives(node, field, alphabet, isPart))];
  if (sources.length === 0) return undefined;
  // the longest first, so that a phrase is marked as a whole even if its first word is also a term
  const longest = sources.toSorted((left, right) => right.length - left.length);
  const start = isPart ? '' : `(?<![${alphabet.word}])`;
  return new RegExp(`${start}(?:${longest.join('|')})`, `g${alphabet.flags}`);
}

function alternatives(
  node: SearchNode,
  field: TextField,
  alphabet: Alphabet,
  isPart: boolean,
): string[] {
  if (node.kind === 'not') return [];
  if (node.kind === 'and' || node.kind === 'or')
    return node.nodes.flatMap((part) => alternatives(part, field, alphabet, isPart));
  if (node.field !== undefined && node.field !== field) return [];
  const { word: letters, accents } = alphabet;
  const words = wordsOf(node.text).map((word) =>
    alphabet === ASCII
      ? word
      : Array.from(word, (character) => `${variantsOf(character)}${accents}*`).join(''),
  );
  if (words.length === 0) return [];
  const isPrefix = node.kind === 'term' && node.prefix;
  // bounded, because one word may be as long as its document
  const wordEnds = isPart ? '' : `(?![${letters}${accents}])`;
  const end = isPrefix ? `[${letters}${accents}]{0,64}` : wordEnds;
  return [`${words.join(`[^${letters}]{1,64}`)}${end}`];
}

/** Returns the class of a character with all its accented forms. */
function variantsOf(character: string): string {
  accented ??= accentedLetters();
  return `[${character}${accented.get(character) ?? ''}]`;
}

let accented: ReadonlyMap<string, string> | undefined;

function accentedLetters(): ReadonlyMap<string, string> {
  const letters = new Map<string, string>();
  for (let code = 0xc0; code < 0x2000; code += 1) {
    const letter = String.fromCodePoint(code);
    const plain = folded(letter);
    if (plain !== letter.toLowerCase() && plain.length === 1) {
      letters.set(plain, `${letters.get(plain) ?? ''}${letter}`);
    }
  }
  return letters;
}

function findMatches(text: string, pattern: RegExp, limit = MAX_MATCHES): Match[] {
  const matches: Match[] = [];
  for (const { 0: found, index } of text.matchAll(pattern)) {
    matches.push({ start: index, end: index + found.length });
    if (matches.length === limit) break;
  }
  return matches;
}

/** Returns the first window with the most different matches. */
function cut(text: string, matches: readonly Match[]): string {
  let best = 0;
  let most = 0;
  for (const [at, { start }] of matches.entries()) {
    const window = matches.slice(at, at + 24).filter(({ end }) => end <= start + WIDTH - BEFORE);
    const kinds = new Set(window.map((match) => folded(text.slice(match.start, match.end)))).size;
    if (kinds > most) [best, most] = [at, kinds];
  }
  const first = matches[best]?.start ?? 0;
  const from = wordStart(text, Math.max(0, first - BEFORE), first);
  const to = wordEnd(text, Math.min(text.length, from + WIDTH), from);
  let marked = from > 0 ? '…' : '';
  let at = from;
  for (const { start, end } of matches) {
    if (start < from || start >= to) continue;
    const last = Math.min(end, to);
    marked += `${text.slice(at, start)}${SNIPPET_OPEN}${text.slice(start, last)}${SNIPPET_CLOSE}`;
    at = last;
  }
  return `${marked}${text.slice(at, to)}${to < text.length ? '…' : ''}`;
}

/** Returns the next start of a word up to `limit`, so that a cut splits neither a word nor a surrogate pair. */
function wordStart(text: string, from: number, limit: number): number {
  if (from === 0) return 0;
  const gap = text.slice(from, limit).search(/\s/);
  return gap === -1 ? whole(text, from) : from + gap + 1;
}

function wordEnd(text: string, to: number, from: number): number {
  if (to === text.length) return to;
  const gap = text.slice(from, to).search(/\s\S*$/);
  return gap <= 0 || gap < WIDTH / 2 ? whole(text, to) : from + gap;
}

function whole(text: string, at: number): number {
  const code = text.charCodeAt(at);
  return code >= 0xdc_00 && code <= 0xdf_ff ? at - 1 : at;
}

/** Removes marks from a document, which could otherwise fake a match. */
function unmarked(text: string): string {
  return text.replaceAll(SNIPPET_OPEN, '').replaceAll(SNIPPET_CLOSE, '');
}
