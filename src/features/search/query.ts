import { isoTime } from '../../kernel/core/clock.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { ITEM_TYPES, type ItemType } from '../../kernel/core/ids.ts';
import { compact } from '../../kernel/core/json.ts';
import {
  type SearchFilters,
  type SearchNode,
  TEXT_FIELDS,
  type TextField,
} from '../../kernel/core/search.ts';
import { didYouMean } from '../../kernel/core/text.ts';
import { wordsOf } from './snippet.ts';

/** A parsed query: the terms and filters of a search, without its limit and space. */
export interface ParsedQuery {
  /** Absent: matches everything that passes the filters. */
  readonly text?: SearchNode;
  readonly filters: SearchFilters;
}

const MAX_LENGTH = 4096;
/** Each word and term costs time in every document that contains it. */
const MAX_WORDS = 64;
const MAX_TERMS = 32;
const MAX_DEPTH = 32;
const FILTER_FIELDS = ['directive', 'status', 'model', 'after', 'before', 'type'] as const;
type FilterField = (typeof FILTER_FIELDS)[number];

/**
 * Parses a query: words (all must occur), `"a phrase"`, `prefix*`, `AND`, `OR`, `NOT` in capitals, parentheses, and
 * `field:value` with the text fields `title tag body id` and the filters `directive status model after before type`.
 * Dates are ISO, `today`, `yesterday` or an age such as `7d` before `now` (epoch milliseconds). Filters apply to the
 * whole query. Throws `query_malformed` with the column.
 */
export function parseQuery(text: string, now: number): ParsedQuery {
  if (text.length > MAX_LENGTH) throw malformed(`it is longer than ${MAX_LENGTH} characters`, 1);
  const tokens = tokenize(text);
  const words = tokens.flatMap((token) => [...wordsOf(token.text)]);
  const parsed = new QueryParser(tokens, text.length + 1, now).parse();
  const isLong = words.length > MAX_WORDS || countTerms(parsed.text) > MAX_TERMS;
  if (!isLong) return parsed;
  throw malformed(
    `it has more than ${MAX_TERMS} terms or ${MAX_WORDS} words`,
    1,
    'Use fewer words.',
  );
}

interface Token {
  readonly kind: 'word' | 'phrase' | 'open' | 'close';
  readonly text: string;
  readonly column: number;
  /** Lower case, without its colon. */
  readonly field?: string;
}

const KNOWN_FIELDS: ReadonlySet<string> = new Set([...TEXT_FIELDS, ...FILTER_FIELDS]);
const TOKEN = /\s+|\(|\)|(?:([A-Za-z]+):)?(?:"([^"]*)("?)|([^\s()"]+))/y;

function tokenize(text: string): Token[] {
  const tokens: Token[] = [];
  TOKEN.lastIndex = 0;
  while (TOKEN.lastIndex < text.length) {
    const column = TOKEN.lastIndex + 1;
    const match = TOKEN.exec(text);
    if (match === null)
      throw malformed(`${JSON.stringify(text[column - 1])} is unexpected`, column);
    const token = toToken(match, column);
    if (token !== undefined) tokens.push(token);
  }
  return tokens;
}

function toToken(match: RegExpExecArray, column: number): Token | undefined {
  const [whole, rawField, phrase, closing, word = ''] = match;
  if (whole.trim() === '') return undefined;
  if (whole === '(') return { kind: 'open', text: whole, column };
  if (whole === ')') return { kind: 'close', text: whole, column };
  const field = rawField?.toLowerCase();
  if (phrase === undefined) return wordToken(whole, word, field, column);
  if (closing === '') throw malformed('unterminated quote', column);
  if (field !== undefined && !KNOWN_FIELDS.has(field)) throw unknownField(field, column);
  return compact({ kind: 'phrase', text: phrase, column, field });
}

function wordToken(whole: string, value: string, field: string | undefined, column: number): Token {
  const [, empty] = /^([A-Za-z]+):$/.exec(value) ?? [];
  if (empty !== undefined && KNOWN_FIELDS.has(empty.toLowerCase())) {
    throw malformed(`${empty}: has no value`, column);
  }
  // A word that only looks like a field, such as https://…
  if (field === undefined || !KNOWN_FIELDS.has(field)) return { kind: 'word', text: whole, column };
  return { kind: 'word', text: value, column, field };
}

function unknownField(field: string, column: number): RyeError {
  const known = [...KNOWN_FIELDS];
  return malformed(
    `unknown field "${field}"`,
    column,
    didYouMean(field, known) ?? `Fields are ${known.join(', ')}.`,
  );
}

/** `or := and (OR and)*`, `and := unary ((AND)? unary)*`, `unary := NOT unary | ( or ) | term`. */
class QueryParser {
  private readonly tokens: readonly Token[];
  private readonly endColumn: number;
  private readonly now: number;
  private readonly filters = new Map<FilterField, Token>();
  private readonly types: ItemType[] = [];
  private at = 0;
  private depth = 0;
  /** Above 0 inside OR or NOT, where a filter could not apply to the whole query. */
  private choice = 0;

  constructor(tokens: readonly Token[], endColumn: number, now: number) {
    this.tokens = tokens;
    this.endColumn = endColumn;
    this.now = now;
  }

  parse(): ParsedQuery {
    const node = this.tokens.length === 0 ? undefined : this.or();
    const rest = this.tokens[this.at];
    if (rest !== undefined) throw malformed(`unmatched "${rest.text}"`, rest.column);
    if (node !== undefined) this.assertPositive(node);
    return compact({ text: node, filters: this.collectFilters() });
  }

  private or(): SearchNode | undefined {
    const isChoice = this.aheadIsChoice();
    if (isChoice) this.choice += 1;
    const nodes = [this.and()];
    while (this.takeOperator('OR')) nodes.push(this.and());
    if (isChoice) this.choice -= 1;
    return join('or', nodes);
  }

  /** True if an OR follows at this level before a closing parenthesis. */
  private aheadIsChoice(): boolean {
    let depth = 0;
    for (const token of this.tokens.slice(this.at)) {
      if (token.kind === 'open') depth += 1;
      if (token.kind === 'close') depth -= 1;
      if (depth < 0) return false;
      if (depth === 0 && isOperator(token, 'OR')) return true;
    }
    return false;
  }

  private and(): SearchNode | undefined {
    const nodes = [this.unary()];
    for (;;) {
      const explicit = this.takeOperator('AND');
      const next = this.tokens[this.at];
      if (!explicit && (next === undefined || next.kind === 'close' || isOperator(next, 'OR')))
        break;
      nodes.push(this.unary());
    }
    return join('and', nodes);
  }

  private unary(): SearchNode | undefined {
    const token = this.tokens[this.at];
    if (token === undefined) throw malformed('a search term is missing at the end', this.endColumn);
    if (token.kind === 'close' || isOperator(token, 'AND') || isOperator(token, 'OR')) {
      throw malformed(`a search term is missing before "${token.text}"`, token.column);
    }
    this.at += 1;
    if (isOperator(token, 'NOT')) return this.negation(token);
    return token.kind === 'open' ? this.group(token) : this.term(token);
  }

  private negation(token: Token): SearchNode {
    this.choice += 1;
    this.enter(token);
    const node = this.unary();
    this.depth -= 1;
    this.choice -= 1;
    if (node === undefined) throw malformed('NOT needs a search term', token.column);
    return { kind: 'not', node };
  }

  private group(token: Token): SearchNode | undefined {
    this.enter(token);
    if (this.tokens[this.at]?.kind === 'close') throw malformed('empty parentheses', token.column);
    const node = this.or();
    if (this.tokens[this.at]?.kind !== 'close')
      throw malformed('unclosed parenthesis', token.column);
    this.at += 1;
    this.depth -= 1;
    return node;
  }

  private enter(token: Token): void {
    this.depth += 1;
    if (this.depth > MAX_DEPTH)
      throw malformed(`it is nested deeper than ${MAX_DEPTH}`, token.column);
  }

  private term(token: Token): SearchNode | undefined {
    const filter = FILTER_FIELDS.find((name) => name === token.field);
    if (filter !== undefined) {
      this.addFilter(filter, token);
      return undefined;
    }
    const field = TEXT_FIELDS.find((name): name is TextField => name === token.field);
    if (token.kind === 'phrase') {
      if (token.text.trim() === '') throw malformed('empty phrase', token.column);
      return compact({ kind: 'phrase', text: token.text, field });
    }
    const prefix = token.text.endsWith('*');
    const text = prefix ? token.text.replace(/\*+$/, '') : token.text;
    if (text === '')
      throw malformed('a prefix needs at least one character before *', token.column);
    return compact({ kind: 'term', text, prefix, field });
  }

  private addFilter(field: FilterField, token: Token): void {
    if (this.choice > 0) {
      throw malformed(
        `${field}: is not allowed inside OR or NOT`,
        token.column,
        'A filter applies to the whole query; move it out of the parentheses.',
      );
    }
    if (field === 'type') {
      this.types.push(itemType(token));
    } else if (this.filters.has(field)) {
      throw malformed(`duplicate ${field}:`, token.column);
    } else {
      this.filters.set(field, token);
    }
  }

  private collectFilters(): SearchFilters {
    const date = (field: FilterField): string | undefined => {
      const token = this.filters.get(field);
      return token === undefined ? undefined : parseDate(token, this.now);
    };
    return compact({
      types: this.types.length === 0 ? undefined : [...new Set(this.types)],
      directive: this.filters.get('directive')?.text,
      status: this.filters.get('status')?.text,
      model: this.filters.get('model')?.text,
      after: date('after'),
      before: date('before'),
    });
  }

  /** Requires a positive term: an index cannot list everything that lacks a word. */
  private assertPositive(node: SearchNode): void {
    if (node.kind === 'not') {
      throw malformed('NOT needs another term that must occur', 1, 'Write: wanted NOT unwanted.');
    }
    if (node.kind === 'or') for (const part of node.nodes) this.assertPositive(part);
    if (node.kind !== 'and') return;
    const positive = node.nodes.filter(({ kind }) => kind !== 'not');
    for (const part of positive.length === 0 ? node.nodes : positive) this.assertPositive(part);
    for (const part of node.nodes) if (part.kind === 'not') this.assertPositive(part.node);
  }

  private takeOperator(word: string): boolean {
    const token = this.tokens[this.at];
    if (token === undefined || !isOperator(token, word)) return false;
    this.at += 1;
    return true;
  }
}

function isOperator(token: Token, word: string): boolean {
  return token.kind === 'word' && token.field === undefined && token.text === word;
}

/** Combines terms; a repeated term counts once. */
function join(
  kind: 'and' | 'or',
  nodes: readonly (SearchNode | undefined)[],
): SearchNode | undefined {
  const present = new Map<string, SearchNode>();
  for (const node of nodes) {
    const parts = node?.kind === kind ? node.nodes : [node];
    for (const part of parts) if (part) present.set(JSON.stringify(part), part);
  }
  const [only, another] = present.values();
  return another === undefined ? only : { kind, nodes: [...present.values()] };
}

function countTerms(node: SearchNode | undefined): number {
  if (node === undefined) return 0;
  if (node.kind === 'not') return countTerms(node.node);
  if (node.kind !== 'and' && node.kind !== 'or') return 1;
  return node.nodes.reduce((sum, part) => sum + countTerms(part), 0);
}

function itemType({ text, column }: Token): ItemType {
  const wanted = text.toLowerCase().replace(/(?<!knowledg)s$/, '');
  const type = ITEM_TYPES.find((name) => name === wanted);
  if (type !== undefined) return type;
  throw malformed(
    `type:${text} is not an item type`,
    column,
    `Types are ${ITEM_TYPES.join(', ')}.`,
  );
}

const DAY_MS = 86_400_000;
const UNIT_MS: Readonly<Record<string, number>> = {
  m: 60_000,
  h: 3_600_000,
  d: DAY_MS,
  w: 7 * DAY_MS,
};

/** Converts `2026-01-31`, an ISO time, `today`, `yesterday`, `30m`, `12h`, `7d` or `2w` (ago) to an ISO time. */
export function parseTime(text: string, now: number): string | undefined {
  const age = /^(\d{1,4})([mhdw])$/.exec(text);
  if (age !== null) return isoTime(now - Number(age[1]) * (UNIT_MS[age[2] ?? ''] ?? 0));
  if (text === 'today') return isoTime(midnight(now, 0));
  if (text === 'yesterday') return isoTime(midnight(now, 1));
  if (!/^\d{4}-\d\d(?:-\d\d(?:T[\d:.]+(?:Z|[+-]\d\d:?\d\d)?)?)?$/.test(text)) return undefined;
  const day = text.slice(0, 10);
  // Date.parse takes February 31 for March 3
  if (day.length === 10 && !isDay(day)) return undefined;
  const zoned = text.includes('T') && !/(?:Z|[+-]\d\d:?\d\d)$/.test(text) ? `${text}Z` : text;
  const time = Date.parse(zoned);
  return Number.isNaN(time) ? undefined : isoTime(time);
}

/** Returns when a day began where this process runs, some days ago; a day of a change of the clock is as long as it is. */
function midnight(now: number, daysAgo: number): number {
  const day = new Date(now);
  return new Date(day.getFullYear(), day.getMonth(), day.getDate() - daysAgo).getTime();
}

function isDay(day: string): boolean {
  const time = Date.parse(`${day}T00:00:00Z`);
  return !Number.isNaN(time) && isoTime(time).startsWith(day);
}

function parseDate({ text, column, field }: Token, now: number): string {
  const time = parseTime(text, now);
  if (time !== undefined) return time;
  throw malformed(
    `${field}:${text} is not a date`,
    column,
    'Write 2026-01-31, yesterday or an age such as 7d.',
  );
}

function malformed(reason: string, column: number, hint?: string): RyeError {
  return new RyeError('query_malformed', `syntax error in query at column ${column}: ${reason}`, {
    hint: hint ?? 'Use words, "phrases", prefix*, AND, OR, NOT, parentheses and field:value.',
    details: { column },
  });
}
