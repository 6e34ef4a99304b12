import type { Profile, Token } from './languages.ts';

export const REGIONS = ['code', 'comment', 'string', 'prose'] as const;
export type Region = (typeof REGIONS)[number];

/** The regions of one text: each begins where the one before ends. */
export class Regions {
  readonly #starts: readonly number[];
  readonly #kinds: readonly Region[];

  constructor(parts: readonly { readonly at: number; readonly kind: Region }[]) {
    this.#starts = parts.map(({ at }) => at);
    this.#kinds = parts.map(({ kind }) => kind);
  }

  /** True if all of a span is in regions of these kinds. */
  covers(start: number, end: number, kinds: ReadonlySet<Region>): boolean {
    let low = 0;
    let high = this.#starts.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if ((this.#starts[middle] ?? 0) <= start) low = middle;
      else high = middle - 1;
    }
    for (let at = low; at === low || (this.#starts[at] ?? end) < end; at += 1) {
      const kind = this.#kinds[at];
      if (kind === undefined || !kinds.has(kind)) return false;
    }
    return true;
  }
}

/** Tells the code in fences of a text apart from its prose. */
export function proseRegions(text: string): Regions {
  const parts: { at: number; kind: Region }[] = [{ at: 0, kind: 'prose' }];
  let fence: string | undefined;
  for (const line of text.matchAll(/^ {0,3}(`{3,}|~{3,})([^\n]*)(?:\n|$)/gm)) {
    const [whole, mark = '', info = ''] = line;
    if (fence === undefined) {
      fence = mark;
      parts.push({ at: line.index + whole.length, kind: 'code' });
    } else if (mark.startsWith(fence) && info.trim() === '') {
      fence = undefined;
      parts.push({ at: line.index, kind: 'prose' });
    }
  }
  return new Regions(parts);
}

/** Tells code, comments and literals of a source text apart. Reads each character once, except in nested openings. */
export function codeRegions(text: string, profile: Profile): Regions {
  return new Regions(new Lexer(text, profile).read());
}

/** A literal that was left for the code in it. */
interface Hole {
  readonly token: Token;
  depth: number;
}

class Lexer {
  readonly #text: string;
  readonly #profile: Profile;
  readonly #byFirst = new Map<string, Token[]>();
  readonly #parts: { at: number; kind: Region }[] = [];
  readonly #holes: Hole[] = [];
  /** Literals that their line leaves open: none of their kind ends before these positions. */
  readonly #unclosed = new Map<Token, number>();
  /** The last character of code that is no space: it tells a division from a regular expression. */
  #before = '';

  constructor(text: string, profile: Profile) {
    this.#text = text;
    this.#profile = profile;
    for (const token of profile.tokens) {
      const first = token.open.charAt(0);
      this.#byFirst.set(first, [...(this.#byFirst.get(first) ?? []), token]);
    }
  }

  read(): readonly { at: number; kind: Region }[] {
    this.#begin(0, 'code');
    for (let at = 0; at < this.#text.length; ) at = this.#step(at);
    return this.#parts;
  }

  #begin(at: number, kind: Region): void {
    if (this.#parts.at(-1)?.kind !== kind) this.#parts.push({ at, kind });
  }

  #step(at: number): number {
    const letter = this.#text.charAt(at);
    for (const token of this.#byFirst.get(letter) ?? []) {
      const end = this.#endOf(token, at);
      if (end !== undefined) return end;
    }
    const literal = this.#literalEnd(letter, at);
    if (literal !== undefined) return this.#take('string', at, literal);
    this.#begin(at, 'code');
    if (letter.trim() !== '') this.#before = letter;
    const hole = this.#holes.at(-1);
    if (hole && letter === '{') hole.depth += 1;
    if (hole && letter === '}') {
      hole.depth -= 1;
      if (hole.depth < 0) {
        this.#holes.pop();
        return this.#quoted(hole.token, at, at + 1) ?? at + 1;
      }
    }
    return at + 1;
  }

  #take(kind: Region, at: number, end: number): number {
    this.#begin(at, kind);
    this.#before = kind === 'string' ? '"' : this.#before;
    return end;
  }

  /** The end of the part that the token opens here; undefined if it opens none. */
  #endOf(token: Token, at: number): number | undefined {
    const text = this.#text;
    if (!text.startsWith(token.open, at)) return undefined;
    const before = token.kind === 'comment' ? NOT_BEFORE_COMMENT : NOT_BEFORE_LITERAL;
    if (token.atWord === true && before.test(text.charAt(at - 1))) return undefined;
    const from = at + token.open.length;
    if (token.kind === 'string') return this.#quoted(token, at, from);
    if (token.close === undefined) {
      const line = text.indexOf('\n', from);
      return this.#take('comment', at, line === -1 ? text.length : line);
    }
    return this.#take('comment', at, this.#commentEnd(token, from));
  }

  #commentEnd({ open, close = '', nests }: Token, from: number): number {
    let depth = 1;
    let at = from;
    let inner = nests === true ? 0 : -1;
    while (depth > 0) {
      const end = this.#text.indexOf(close, at);
      if (end === -1) return this.#text.length;
      if (inner !== -1 && inner < at) inner = this.#text.indexOf(open, at);
      const isInner = inner !== -1 && inner < end;
      depth += isInner ? 1 : -1;
      at = isInner ? inner + open.length : end + close.length;
    }
    return at;
  }

  /** The end of a literal, or of its part before a hole; undefined if its line ends before it. */
  #quoted(token: Token, start: number, from: number): number | undefined {
    const text = this.#text;
    const { close = '', escapes, lines, hole } = token;
    if (from <= (this.#unclosed.get(token) ?? 0)) return undefined;
    for (let at = from; at < text.length; at += 1) {
      if (escapes === true && text.charAt(at) === '\\') at += 1;
      else if (text.startsWith(close, at)) return this.#take('string', start, at + close.length);
      else if (lines !== true && text.charAt(at) === '\n') return this.#leaveOpen(token, at);
      else if (hole !== undefined && text.startsWith(hole, at)) {
        this.#holes.push({ token, depth: 0 });
        this.#before = '{';
        this.#begin(start, 'string');
        this.#begin(at, 'code');
        return at + hole.length;
      }
    }
    // a text that still comes, or one that was cut
    return lines === true
      ? this.#take('string', start, text.length)
      : this.#leaveOpen(token, text.length);
  }

  #leaveOpen(token: Token, until: number): undefined {
    this.#unclosed.set(token, until);
  }

  #literalEnd(letter: string, at: number): number | undefined {
    const { character, hasRegex } = this.#profile;
    if (letter === "'" && character) {
      character.lastIndex = at;
      const found = character.exec(this.#text);
      return found ? at + found[0].length : undefined;
    }
    if (letter !== '/' || hasRegex !== true || !this.#mayBeRegex(at)) return undefined;
    REGEX_LITERAL.lastIndex = at;
    const found = REGEX_LITERAL.exec(this.#text);
    return found ? at + found[0].length : undefined;
  }

  #mayBeRegex(at: number): boolean {
    if (this.#before === '' || /[(,=:[!&|?{};+\-*%<>~^]/.test(this.#before)) return true;
    return /\b(?:return|typeof|case|in|of|void|delete|throw|yield|await|else|do)\s*$/.test(
      this.#text.slice(Math.max(0, at - 20), at),
    );
  }
}

const NOT_BEFORE_COMMENT = /[^\s;(]/;
const NOT_BEFORE_LITERAL = /[\w$}\])]/;
const REGEX_LITERAL =
  /\/(?![*/])(?:\\[^\n]|\[(?:\\[^\n]|[^\]\\\n]){0,100}\]|[^/\\[\n]){1,1000}\/[a-z]*/y;
