import MarkdownIt from 'markdown-it';
import { VERBS, type Verb } from '../core/capability.ts';
import type { JsonObject, JsonValue } from '../core/json.ts';
import { isSignatureLine } from '../trust/signature-line.ts';

let markdown: MarkdownIt | undefined;

/** Only the block structure is needed; inline parsing is most of the cost. */
function parser(): MarkdownIt {
  if (markdown !== undefined) return markdown;
  markdown = new MarkdownIt('commonmark');
  markdown.core.ruler.disable(['inline', 'text_join']);
  return markdown;
}

/** A fenced code block at the top level of a Markdown text. Lines count from 1 in that text. */
export interface Fence {
  /** First word of the info string, lower case. */
  readonly language: string;
  /** The text between the fence lines with its indentation, so that columns match the file. */
  readonly content: string;
  /** Line of the opening fence. */
  readonly line: number;
  /** Line after the closing fence. */
  readonly endLine: number;
  readonly closed: boolean;
}

/** Returns the first top-level CommonMark fence whose info string starts with one of `languages`. */
export function findFence(text: string, languages: readonly string[]): Fence | undefined {
  return findPlainFence(text, languages) ?? findAnyFence(text, languages);
}

/** A line of a paragraph, a heading or a comment: no container, fence, reference or indented code begins so. */
const PLAIN_LINE = /^(?:[A-Za-z]|#{1,6} |<!--.*-->|[ \t]*$)/;
const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/;

/**
 * Finds a fence that only headings, paragraphs and other fences precede, without the parser, which takes longer to load than a
 * directive takes to read. Returns undefined for all other texts.
 */
function findPlainFence(text: string, languages: readonly string[]): Fence | undefined {
  if (/[\r\0]/.test(text)) return undefined;
  const lines = text.split('\n');
  for (let at = 0; at < lines.length; at += 1) {
    const line = lines[at] ?? '';
    if (PLAIN_LINE.test(line)) continue;
    const [, markup = '', info = ''] = FENCE.exec(line) ?? [];
    const end = markup === '' ? -1 : closingLine(lines, at + 1, markup);
    if (end === -1) return undefined;
    const language = info.trim().split(/\s/)[0]?.toLowerCase() ?? '';
    if (languages.includes(language)) {
      const content = lines.slice(at + 1, end).join('\n');
      return { language, content, line: at + 1, endLine: end + 2, closed: true };
    }
    at = end;
  }
  return undefined;
}

function closingLine(lines: readonly string[], from: number, markup: string): number {
  const mark = markup.slice(0, 1);
  const closing = new RegExp(`^ {0,3}${mark}{${markup.length},}[ \\t]*$`);
  return lines.findIndex((line, at) => at >= from && closing.test(line));
}

function findAnyFence(text: string, languages: readonly string[]): Fence | undefined {
  const lines = text.split('\n');
  for (const token of parser().parse(text, {})) {
    if (token.type !== 'fence' || token.level !== 0 || token.map === null) continue;
    const language = token.info.trim().split(/\s/)[0]?.toLowerCase() ?? '';
    if (!languages.includes(language)) continue;
    const [start, end] = token.map;
    const closed = end - 1 > start && isClosingFence(lines[end - 1] ?? '', token.markup);
    return {
      language,
      content: lines.slice(start + 1, closed ? end - 1 : end).join('\n'),
      line: start + 1,
      endLine: end + 1,
      closed,
    };
  }
  return undefined;
}

function isClosingFence(line: string, markup: string): boolean {
  const [, run = ''] = /^ {0,3}(`+|~+)\s*$/.exec(line) ?? [];
  return run.startsWith(markup);
}

/** A heading; `line` counts from 1. */
export interface Heading {
  readonly text: string;
  readonly line: number;
}

/** Returns the headings of a text in order; ignores `#` lines inside code. */
export function findHeadings(text: string): readonly Heading[] {
  const tokens = parser().parse(text, {});
  return tokens.flatMap((token, index) =>
    token.type === 'heading_open' && token.map !== null
      ? [{ text: tokens[index + 1]?.content ?? '', line: token.map[0] + 1 }]
      : [],
  );
}

/** Returns the text from line `from` (1 is the first) to before line `to`, trimmed and without a signature on line 1. */
export function linesBetween(lines: readonly string[], from: number, to: number): string {
  const first = from === 1 && isSignatureLine(lines[0] ?? '') ? 2 : from;
  return lines
    .slice(first - 1, Math.max(first - 1, to - 1))
    .join('\n')
    .trim();
}

/** One `rye_execute(...)`, `rye_fetch(...)` or `rye_sign(...)` written in backticks or a code block. */
export interface WrittenCall {
  readonly primary: Verb;
  readonly args: JsonObject;
  /** Offset of the name in the text. */
  readonly offset: number;
}

/** A call with a syntax error. */
export interface UnreadableCall {
  readonly offset: number;
  readonly message: string;
}

const CODE = /(?<!`)(`+)(?!`)([\s\S]*?[^`])\1(?!`)/g;
const CALL = /\brye_(execute|fetch|sign)\s*\(/g;

/**
 * Finds the calls in the code spans and code blocks of a text. The arguments are `name=value` pairs with JSON values;
 * single quotes, `True`, `False`, `None`, trailing commas and bare `{input:k}` and `${…}` references also work. Skips
 * calls with the arguments `...`, which only mention the action.
 */
export function findCalls(text: string): {
  readonly calls: readonly WrittenCall[];
  readonly unreadable: readonly UnreadableCall[];
} {
  const calls: WrittenCall[] = [];
  const unreadable: UnreadableCall[] = [];
  if (!text.includes('rye_')) return { calls, unreadable };
  for (const code of text.matchAll(CODE)) {
    const start = code.index + (code[1] ?? '').length;
    const content = code[2] ?? '';
    for (const found of content.matchAll(CALL)) {
      const offset = start + found.index;
      const from = start + found.index + found[0].length;
      const end = start + content.length;
      if (/^\s*(?:\.\.\.|…)?\s*\)/.test(text.slice(from, end))) continue;
      try {
        const args = new ArgumentReader(text.slice(0, end), from).readAll();
        calls.push({ primary: VERBS.find((verb) => verb === found[1]) ?? 'execute', args, offset });
      } catch (error) {
        if (!(error instanceof SyntaxError)) throw error;
        unreadable.push({ offset, message: error.message });
      }
    }
  }
  return { calls, unreadable };
}

const IDENTIFIER = /[A-Za-z_]\w*/y;
const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const REFERENCE = /\{(?:input|env|secret):[^}]*\}|\$\{[^}]*\}/y;
const WORDS: Readonly<Record<string, JsonValue>> = {
  true: true,
  True: true,
  false: false,
  False: false,
  null: null,
  None: null,
};
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', t: '\t', r: '\r', b: '\b', f: '\f' };
const MAX_DEPTH = 32;

/** Parses one argument list by recursive descent. Throws SyntaxError, which {@link findCalls} catches. */
class ArgumentReader {
  private readonly text: string;
  private at: number;
  private depth = 0;

  constructor(text: string, at: number) {
    this.text = text;
    this.at = at;
  }

  readAll(): JsonObject {
    return this.members(')', () => {
      const name = this.match(IDENTIFIER);
      if (name === undefined) throw new SyntaxError(`expected a name, found ${this.here()}`);
      this.expect(['=', ':']);
      return name;
    });
  }

  private value(): JsonValue {
    this.skipSpace();
    const character = this.text[this.at];
    if (character === '"' || character === "'") return this.string(character);
    const reference = this.match(REFERENCE);
    if (reference !== undefined) return reference;
    if (character === '{') return this.nested(() => this.object());
    if (character === '[') return this.nested(() => this.array());
    const number = this.match(NUMBER);
    if (number !== undefined) return Number(number);
    const word = this.match(IDENTIFIER);
    if (word !== undefined && Object.hasOwn(WORDS, word)) return WORDS[word] ?? null;
    throw new SyntaxError(
      `expected a value, found ${word === undefined ? this.here() : `"${word}"`}`,
    );
  }

  private object(): JsonObject {
    this.at += 1;
    return this.members('}', () => {
      const quote = this.text[this.at];
      if (quote !== '"' && quote !== "'")
        throw new SyntaxError(`expected a quoted key, found ${this.here()}`);
      const key = this.string(quote);
      this.expect([':']);
      return key;
    });
  }

  private members(close: string, key: () => string): JsonObject {
    const members = new Map<string, JsonValue>();
    for (;;) {
      this.skipSpace();
      if (this.text[this.at] === close) break;
      const name = key();
      if (members.has(name)) throw new SyntaxError(`duplicate "${name}"`);
      members.set(name, this.value());
      if (!this.separator(close)) break;
    }
    this.at += 1;
    return Object.fromEntries(members);
  }

  private array(): JsonValue {
    this.at += 1;
    const items: JsonValue[] = [];
    for (;;) {
      this.skipSpace();
      if (this.text[this.at] === ']') break;
      items.push(this.value());
      if (!this.separator(']')) break;
    }
    this.at += 1;
    return items;
  }

  /** True after a comma, false at `close`. */
  private separator(close: string): boolean {
    this.skipSpace();
    if (this.text[this.at] === close) return false;
    this.expect([',']);
    return true;
  }

  private string(quote: string): string {
    let result = '';
    for (let at = this.at + 1; at < this.text.length; at += 1) {
      const character = this.text[at] ?? '';
      if (character === quote) {
        this.at = at + 1;
        return result;
      }
      if (character !== '\\') {
        result += character;
        continue;
      }
      at += 1;
      const escaped = this.text[at] ?? '';
      const code = /^u([\da-fA-F]{4})/.exec(this.text.slice(at, at + 5))?.[1];
      if (code !== undefined) {
        result += String.fromCharCode(Number.parseInt(code, 16));
        at += 4;
      } else {
        result += ESCAPES[escaped] ?? escaped;
      }
    }
    throw new SyntaxError('unterminated string');
  }

  private nested<T>(read: () => T): T {
    this.depth += 1;
    if (this.depth > MAX_DEPTH) throw new SyntaxError(`values are nested deeper than ${MAX_DEPTH}`);
    const result = read();
    this.depth -= 1;
    return result;
  }

  private match(pattern: RegExp): string | undefined {
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text)?.[0];
    if (found !== undefined) this.at += found.length;
    return found;
  }

  private expect(characters: readonly string[]): void {
    this.skipSpace();
    if (!characters.includes(this.text[this.at] ?? '')) {
      throw new SyntaxError(`expected "${characters[0]}", found ${this.here()}`);
    }
    this.at += 1;
  }

  private skipSpace(): void {
    while (/\s/.test(this.text[this.at] ?? '')) this.at += 1;
  }

  private here(): string {
    const character = this.text[this.at];
    return character === undefined ? 'the end' : JSON.stringify(character);
  }
}
