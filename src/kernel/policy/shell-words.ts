/** Text of a word as its program gets it; null: text that is only known when the line runs. */
export type Part = string | null;

/** A word of a command, without its quotes. */
export type Word = readonly Part[];

/** One program with its arguments: `a` and `b` of `a; b`. */
export interface SimpleCommand {
  readonly words: readonly Word[];
  /** The text that a here-document or here-string passes; null: text that is only known when the line runs. */
  readonly stdin?: string | null;
}

/** A line that this reader does not understand. */
class Unreadable extends Error {}

const MAX_CHARS = 64 * 1024;
const MAX_COMMANDS = 500;
const MAX_DEPTH = 20;
const ASSIGNMENT = /^[A-Za-z_]\w*(?:\[[^\]]*\])?\+?=/;
/** Words of the language in the place of a program. */
const RESERVED: ReadonlySet<string> = new Set(
  'if then elif else fi while until do done { } !'.split(' '),
);
/** Words of the language that begin something other than a list of commands. */
const UNREAD: ReadonlySet<string> = new Set(['case', 'coproc', 'function']);

/**
 * Splits a line of a POSIX shell or bash into all simple commands that it may run, those in substitutions too. Undefined if
 * it cannot be read.
 */
export function readShellLine(line: string): readonly SimpleCommand[] | undefined {
  const commands: SimpleCommand[] = [];
  try {
    new Reader(line, commands, 0).all();
  } catch (error) {
    if (error instanceof Unreadable) return undefined;
    throw error;
  }
  return commands;
}

/** The text around an expansion: nothing, double quotes, or a here-document. */
type Around = 'none' | 'quotes' | 'document';

interface HereDocument {
  readonly end: string;
  readonly isQuoted: boolean;
  readonly isIndented: boolean;
  readonly take: (text: string | null) => void;
}

/** Reads one text from its begin; what it runs is added to a list that all readers of a line share. */
class Reader {
  readonly #text: string;
  readonly #commands: SimpleCommand[];
  readonly #depth: number;
  #at = 0;
  #documents: HereDocument[] = [];
  #nesting = 0;
  /** Number of open `((`, in which `<<` is an operator. */
  #sums = 0;

  constructor(text: string, commands: SimpleCommand[], depth: number) {
    if (depth > MAX_DEPTH || text.length > MAX_CHARS || text.includes('\0')) throw new Unreadable();
    this.#text = text;
    this.#commands = commands;
    this.#depth = depth;
  }

  all(): void {
    this.#list('');
    if (this.#at < this.#text.length) throw new Unreadable();
  }

  /** Reads commands up to a closing character, which it takes, or the end. */
  #list(close: string): void {
    for (;;) {
      this.#command();
      const next = this.#text[this.#at] ?? '';
      if (next === close) {
        // the text of a document after `)` is that of the outer list
        if (this.#documents.length > 0 && close === '') throw new Unreadable();
        this.#at += close.length;
        return;
      }
      if (next === '' || !';&|\n('.includes(next)) throw new Unreadable();
      this.#at += 1;
      if (next === '\n') this.#readDocuments();
      if (next === '(') this.#nested();
    }
  }

  /** Reads `…)` of a subshell, a substitution or a sum. */
  #nested(): void {
    const isSum = this.#text[this.#at] === '(';
    this.#nesting += 1;
    this.#sums += Number(isSum);
    if (this.#nesting > MAX_DEPTH) throw new Unreadable();
    this.#list(')');
    this.#nesting -= 1;
    this.#sums -= Number(isSum);
  }

  #command(): void {
    const words: Word[] = [];
    const command: { words: Word[]; stdin?: string | null } = { words };
    for (;;) {
      this.#skipBlanks();
      if (this.#redirection((text) => (command.stdin = text))) continue;
      const start = this.#at;
      const word = this.#word();
      if (this.#at === start) break;
      // an array, a function, or a pattern
      if (this.#text[this.#at] === '(') throw new Unreadable();
      const isDescriptor = /^\{\w+\}$/.test(this.#text.slice(start, this.#at));
      if (isDescriptor && /[<>]/.test(this.#text[this.#at] ?? '')) continue;
      if (words.length === 0 && this.#isSkipped(word)) continue;
      words.push(word);
    }
    if (words.length > 0) this.#commands.push(command);
    if (this.#commands.length > MAX_COMMANDS) throw new Unreadable();
  }

  /** True for words before the program: assignments and words of the language. */
  #isSkipped([first = '', ...more]: Word): boolean {
    if (first !== null && ASSIGNMENT.test(first)) return true;
    if (first === null || more.length > 0) return false;
    if (UNREAD.has(first)) throw new Unreadable();
    return RESERVED.has(first);
  }

  #skipBlanks(): void {
    const [blank = ''] = /^(?:[ \t]|\\\n)*(?:#[^\n]*)?/.exec(this.#text.slice(this.#at)) ?? [];
    this.#at += blank.length;
  }

  /** Takes a redirection with its target, if one comes next. */
  #redirection(take: (text: string | null) => void): boolean {
    const rest = this.#text.slice(this.#at, this.#at + 20);
    const [whole, operator = ''] = /^\d*(<<<|<<-?|&>>?|>>|[<>]&|>\||<>|[<>])/.exec(rest) ?? [];
    if (whole === undefined || /^[<>]\(/.test(rest)) return false;
    this.#at += whole.length;
    this.#skipBlanks();
    const start = this.#at;
    const word = this.#word();
    if (this.#at === start) throw new Unreadable();
    if (operator === '<<<') take(textOf(word));
    if (operator === '<<' || operator === '<<-') {
      if (this.#sums > 0) throw new Unreadable();
      const isQuoted = /['"\\]/.test(this.#text.slice(start, this.#at));
      const end = textOf(word);
      if (end === null) throw new Unreadable();
      this.#documents.push({ end, isQuoted, isIndented: operator === '<<-', take });
    }
    return true;
  }

  #readDocuments(): void {
    for (const { end, isQuoted, isIndented, take } of this.#documents) {
      const lines: string[] = [];
      for (;;) {
        if (this.#at >= this.#text.length) throw new Unreadable();
        const stop = this.#text.indexOf('\n', this.#at);
        const until = stop === -1 ? this.#text.length : stop;
        const written = this.#text.slice(this.#at, until);
        this.#at = Math.min(until + 1, this.#text.length);
        const line = isIndented ? written.replace(/^\t+/, '') : written;
        if (line === end) break;
        lines.push(line);
      }
      const body = lines.join('\n');
      const inner = new Reader(body, this.#commands, this.#depth + 1);
      take(isQuoted ? body : textOf(inner.#quoted('document')));
    }
    this.#documents = [];
  }

  /** Reads one word; it is empty if none comes next. */
  #word(): Word {
    const parts: Part[] = [];
    for (;;) {
      const next = this.#text[this.#at];
      if (next === undefined) break;
      if (/[<>]/.test(next) && this.#text[this.#at + 1] === '(' && parts.length === 0) {
        this.#at += 2;
        this.#nested();
        parts.push(null);
        continue;
      }
      if (' \t\n;&|()<>'.includes(next)) break;
      parts.push(...this.#piece(next));
    }
    return merged(parts);
  }

  /** Reads a quoted text, an expansion, or plain characters. */
  #piece(next: string): readonly Part[] {
    if (next === "'") return [this.#until("'")];
    if (next === '"') {
      this.#at += 1;
      return this.#quoted('quotes');
    }
    if (next === '`' || next === '$') return this.#expansion('none');
    this.#at += 1;
    if (next === '\\') return [this.#escaped()];
    const rest = this.#text.slice(this.#at);
    // the program `[`, and `{` or `{}`, are plain
    if (next === '[') return /^\[?(?:[ \t\n]|$)/.test(rest) ? [next] : [null];
    if (next === '{') return /^(?:[ \t\n}]|$)/.test(rest) ? [next] : [null, next];
    if (next === '*' || next === '?') return [null];
    const [plain = ''] = /^[\w./:=,@%+~^-]*/.exec(rest) ?? [];
    this.#at += plain.length;
    return [next + plain];
  }

  #escaped(): string {
    const next = this.#text[this.#at];
    if (next === undefined) throw new Unreadable();
    this.#at += 1;
    return next === '\n' ? '' : next;
  }

  /** Returns the text up to a character, after the one where the reader is. */
  #until(end: string): string {
    const stop = this.#text.indexOf(end, this.#at + 1);
    if (stop === -1) throw new Unreadable();
    const text = this.#text.slice(this.#at + 1, stop);
    this.#at = stop + 1;
    return text;
  }

  /** Reads up to a closing double quote, or the end of a here-document. */
  #quoted(around: Around): Word {
    const parts: Part[] = [''];
    for (;;) {
      const next = this.#text[this.#at];
      if (next === undefined && around === 'quotes') throw new Unreadable();
      if (next === undefined) return merged(parts);
      if (next === '`' || next === '$') {
        parts.push(...this.#expansion(around));
        continue;
      }
      this.#at += 1;
      if (next === '"' && around === 'quotes') return merged(parts);
      if (next !== '\\') parts.push(next);
      else if (/[$`"\\\n]/.test(this.#text[this.#at] ?? '')) parts.push(this.#escaped());
      else parts.push('\\');
    }
  }

  /** Reads `$…` or a backtick. */
  #expansion(around: Around): readonly Part[] {
    if (this.#text[this.#at] === '`') {
      this.#backticks(around);
      return [null];
    }
    this.#at += 1;
    const next = this.#text[this.#at] ?? '';
    if (next === "'" && around === 'none') return [this.#ansi()];
    if (next === '"' && around === 'none') return [];
    if (next === '(') {
      this.#at += 1;
      this.#nested();
      return [null];
    }
    if (next === '{') {
      this.#at += 1;
      this.#parameter(around);
      return [null];
    }
    const [name] = /^(?:\w+|[@*#?$!-])/.exec(this.#text.slice(this.#at)) ?? [];
    if (name === undefined) return ['$'];
    this.#at += name.length;
    return [null];
  }

  /** Reads `…}` of `${…}`, whose default may run commands. */
  #parameter(around: Around): void {
    for (;;) {
      const next = this.#text[this.#at];
      if (next === undefined) throw new Unreadable();
      // whether they quote there depends on the operator
      if (around !== 'none' && (next === "'" || next === '"')) throw new Unreadable();
      if (next === '}') {
        this.#at += 1;
        return;
      }
      if (next === '`' || next === '$') this.#expansion(around);
      else if (/["'\\]/.test(next)) this.#piece(next);
      else this.#at += 1;
    }
  }

  #backticks(around: Around): void {
    const [whole, inner = ''] = /^`((?:\\[^]|[^\\`])*)`/.exec(this.#text.slice(this.#at)) ?? [];
    if (whole === undefined) throw new Unreadable();
    this.#at += whole.length;
    if (around === 'document' && inner.includes('\\"')) throw new Unreadable();
    const text = inner.replaceAll(around === 'quotes' ? /\\([\\`$"])/g : /\\([\\`$])/g, '$1');
    new Reader(text, this.#commands, this.#depth + 1).all();
  }

  /** Reads `$'…'`. */
  #ansi(): string {
    const [whole, inner = ''] = /^'((?:\\[^]|[^\\'])*)'/.exec(this.#text.slice(this.#at)) ?? [];
    if (whole === undefined) throw new Unreadable();
    this.#at += whole.length;
    return inner.replaceAll(ANSI, (escape: string, code: string) => decoded(escape, code));
  }
}

const ANSI = /\\(x[\da-fA-F]{1,2}|u[\da-fA-F]{1,4}|U[\da-fA-F]{1,8}|[0-7]{1,3}|c?[^])/g;
const LETTERS: Readonly<Record<string, string>> = {
  a: '\x07',
  b: '\b',
  e: '\x1B',
  E: '\x1B',
  f: '\f',
  n: '\n',
  r: '\r',
  t: '\t',
  v: '\v',
};

function decoded(escape: string, code: string): string {
  const octal = /^[0-7]+$/.test(code);
  const hex = /^[xuU]([\da-fA-F]+)$/.exec(code)?.[1];
  if (!octal && hex === undefined) return LETTERS[code] ?? (/^\W$/.test(code) ? code : escape);
  const point = octal ? Number.parseInt(code, 8) & 255 : Number.parseInt(hex ?? '', 16);
  // the shell ends the text there
  if (point === 0 || point > 0x10_ffff) throw new Unreadable();
  return String.fromCodePoint(point);
}

/** The text of a word; null if a part of it is unknown. */
export function textOf(word: Word): string | null {
  return word.includes(null) ? null : word.join('');
}

/** Joins neighbors that are known, and those that are not. */
export function merged(parts: readonly Part[]): Word {
  const all: Part[] = [];
  for (const part of parts) {
    const last = all.at(-1);
    if (typeof part === 'string' && typeof last === 'string') all[all.length - 1] = last + part;
    else if (part !== null || last !== null) all.push(part);
  }
  return all;
}
