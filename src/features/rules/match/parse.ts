import { isJsonObject, type JsonObject, type JsonValue } from '../../../kernel/core/json.ts';
import { didYouMean } from '../../../kernel/core/text.ts';
import { streamRegexProblem } from '../../../kernel/policy/regex.ts';
import { compileGlob } from '../../../kernel/tools/glob-pattern.ts';
import { expressionProblem } from '../stream/expression.ts';
import { extensionsOf, similarLanguage } from './languages.ts';
import { REGIONS, type Region } from './regions.ts';

/** A regular expression, and the engine that runs it. */
export interface Pattern {
  readonly source: string;
  readonly isSlow: boolean;
}

/** A test of the paths that a call names; one path has to satisfy all members. */
export interface PathTest {
  readonly globs?: readonly ((path: string) => boolean)[];
  readonly patterns?: readonly Pattern[];
  readonly under?: readonly string[];
  readonly outside?: readonly string[];
}

/** Tests of the places that a condition finds. */
export interface SpanTests {
  readonly min: number;
  readonly max: number;
  readonly inside?: Node;
  readonly notInside?: Node;
  readonly has?: Node;
  readonly notHas?: Node;
}

export interface RegexNode extends SpanTests {
  readonly kind: 'regex';
  readonly patterns: readonly Pattern[];
  readonly regions?: ReadonlySet<Region>;
}

export interface AstNode extends SpanTests {
  readonly kind: 'ast';
  readonly patterns: readonly string[];
  readonly strictness: Strictness;
  readonly selector?: string;
  readonly where: readonly MetavariableTest[];
}

export interface MetavariableTest {
  readonly name: string;
  readonly regex?: Pattern;
  readonly notRegex?: Pattern;
}

export interface DidNode {
  readonly kind: 'did';
  readonly tools?: readonly string[];
  readonly path?: PathTest;
  readonly args?: readonly Pattern[];
  /** Globs over the texts of arguments, by their names. */
  readonly named?: readonly (readonly [name: string, globs: readonly string[]])[];
  readonly within?: number | 'run';
  readonly status?: 'completed' | 'failed';
}

/** A question that a small model answers about the text. */
export interface JudgeNode {
  readonly kind: 'llm';
  readonly question: string;
  readonly models: readonly string[];
  /** True if the condition holds when there is no answer. */
  readonly holdsOnError: boolean;
}

export type Node =
  | RegexNode
  | AstNode
  | DidNode
  | JudgeNode
  | { readonly kind: 'lang'; readonly extensions: ReadonlySet<string> }
  | { readonly kind: 'path'; readonly test: PathTest }
  | { readonly kind: 'all' | 'any'; readonly of: readonly Node[] }
  | { readonly kind: 'not'; readonly of: Node }
  | { readonly kind: 'if'; readonly test: Node; readonly yes: Node; readonly no?: Node };

const STRICTNESS = ['cst', 'smart', 'ast', 'relaxed', 'signature', 'template'] as const;
export type Strictness = (typeof STRICTNESS)[number];

/** A condition that cannot be read, and where in the document it is. */
export class MatchError extends Error {
  readonly at: Place;
  readonly hint: string | undefined;

  constructor(at: Place, message: string, hint?: string) {
    super(`${nameOf(at)}: ${message}`);
    this.at = at;
    this.hint = hint;
  }
}

/** Keys and indexes from the member `match` on. */
export type Place = readonly (string | number)[];

function nameOf(place: Place): string {
  return place.reduce<string>(
    (name, step) => (typeof step === 'number' ? `${name}[${step}]` : `${name}.${step}`),
    'match',
  );
}

export interface MatchOptions {
  /** True if all expressions run as JavaScript. */
  readonly isSlow: boolean;
}

/** Reads a condition. Throws {@link MatchError} at the first word or type that it does not know. */
export function parseMatch(match: JsonValue, options: MatchOptions): Node {
  return new Reader(options).node(match, []);
}

const GLOB_HINT = 'Write it relative to the project, or use under with a folder.';
const MAX_COUNT = 1000;
const MAX_DEPTH = 30;
const MAX_NODES = 500;

type Read = (reader: Reader, members: Members) => Node;

/** The conditions, by the member that names each, with the other members that it may have. */
const KINDS: Readonly<Record<string, { readonly read: Read; readonly others: readonly string[] }>> =
  {
    all: { read: (reader, members) => reader.group('all', members), others: [] },
    any: { read: (reader, members) => reader.group('any', members), others: [] },
    not: { read: (reader, members) => reader.not(members), others: [] },
    if: { read: (reader, members) => reader.choice(members), others: ['then', 'else'] },
    regex: {
      read: (reader, members) => reader.regex(members),
      others: ['in', 'count', 'inside', 'notInside', 'has', 'notHas'],
    },
    ast: {
      read: (reader, members) => reader.ast(members),
      others: ['count', 'inside', 'notInside', 'has', 'notHas', 'strictness', 'selector', 'where'],
    },
    lang: { read: (reader, members) => reader.lang(members), others: [] },
    path: { read: (reader, members) => reader.path(members), others: [] },
    did: { read: (reader, members) => reader.did(members), others: [] },
    llm: { read: (_reader, members) => judgeOf(members), others: ['model', 'onError'] },
  };

/** The members of a mapping by their names in camel case, with the names in the file. */
class Members {
  readonly at: Place;
  readonly #values = new Map<string, { readonly key: string; readonly value: JsonValue }>();

  constructor(value: JsonObject, at: Place) {
    this.at = at;
    for (const [key, member] of Object.entries(value)) {
      if (member === undefined || member === null) {
        throw new MatchError([...at, key], 'a value is missing');
      }
      const name = key.replaceAll(/[-_]([a-z])/g, (_, letter: string) => letter.toUpperCase());
      if (this.#values.has(name)) throw new MatchError([...at, key], `${name} is given twice`);
      this.#values.set(name, { key, value: member });
    }
  }

  get names(): readonly string[] {
    return [...this.#values.keys()];
  }

  has(name: string): boolean {
    return this.#values.has(name);
  }

  get(name: string): JsonValue | undefined {
    return this.#values.get(name)?.value;
  }

  place(name: string): Place {
    return [...this.at, this.#values.get(name)?.key ?? name];
  }

  /** Refuses all members but these. */
  only(known: readonly string[]): void {
    for (const name of this.names) {
      if (known.includes(name)) continue;
      throw new MatchError(
        this.place(name),
        `unknown member; known: ${known.join(', ')}`,
        didYouMean(name, [...known]),
      );
    }
  }
}

class Reader {
  readonly #isSlow: boolean;
  #nodes = 0;
  #depth = 0;

  constructor({ isSlow }: MatchOptions) {
    this.#isSlow = isSlow;
  }

  node(value: JsonValue | undefined, at: Place): Node {
    this.#nodes += 1;
    this.#depth += 1;
    if (this.#nodes > MAX_NODES) throw new MatchError(at, `more than ${MAX_NODES} conditions`);
    if (this.#depth > MAX_DEPTH) throw new MatchError(at, `nested deeper than ${MAX_DEPTH}`);
    const node = this.#node(value, at);
    this.#depth -= 1;
    return node;
  }

  #node(value: JsonValue | undefined, at: Place): Node {
    if (typeof value === 'string') {
      return { kind: 'regex', patterns: [this.#pattern(value, at)], min: 1, max: Infinity };
    }
    if (Array.isArray(value)) return { kind: 'any', of: this.#list(value, at) };
    if (!isJsonObject(value)) throw new MatchError(at, 'must be a text, a list or a mapping');
    const members = new Members(value, at);
    const kinds = members.names.filter((name) => Object.hasOwn(KINDS, name));
    const [kind, second] = kinds;
    if (kind === undefined) {
      const names = Object.keys(KINDS);
      const [first] = members.names;
      throw new MatchError(
        first === undefined ? at : members.place(first),
        `one of ${names.join(', ')} is missing`,
        first === undefined ? undefined : didYouMean(first, names),
      );
    }
    if (second !== undefined) {
      throw new MatchError(
        members.place(second),
        `${kind} and ${second} are two conditions`,
        'Put them in the list of an all or an any.',
      );
    }
    const { read, others } = KINDS[kind] ?? {};
    if (!read || !others) throw new MatchError(at, `${kind} is unknown`);
    members.only([kind, ...others]);
    return read(this, members);
  }

  #list(values: readonly JsonValue[], at: Place): readonly Node[] {
    if (values.length === 0) throw new MatchError(at, 'at least one condition is needed');
    return values.map((value, index) => this.node(value, [...at, index]));
  }

  group(kind: 'all' | 'any', members: Members): Node {
    const value = members.get(kind);
    if (!Array.isArray(value)) throw new MatchError(members.place(kind), 'must be a list');
    return { kind, of: this.#list(value, members.place(kind)) };
  }

  not(members: Members): Node {
    return { kind: 'not', of: this.node(members.get('not'), members.place('not')) };
  }

  choice(members: Members): Node {
    if (!members.has('then'))
      throw new MatchError(members.place('if'), 'the member then is missing');
    const read = (name: string): Node => this.node(members.get(name), members.place(name));
    return {
      kind: 'if',
      test: read('if'),
      yes: read('then'),
      ...(members.has('else') ? { no: read('else') } : {}),
    };
  }

  regex(members: Members): Node {
    const patterns = this.#patterns(members, 'regex');
    const regions = members.has('in') ? this.#regions(members) : undefined;
    return { kind: 'regex', patterns, ...(regions ? { regions } : {}), ...this.#spans(members) };
  }

  ast(members: Members): Node {
    const selector = members.get('selector');
    if (selector !== undefined && typeof selector !== 'string') {
      throw new MatchError(members.place('selector'), 'must be the kind of a node');
    }
    return {
      kind: 'ast',
      patterns: textsOf(members, 'ast', 'a pattern'),
      strictness: oneOf(members, 'strictness', STRICTNESS) ?? 'smart',
      ...(selector === undefined ? {} : { selector }),
      where: this.#where(members),
      ...this.#spans(members),
    };
  }

  #where(members: Members): readonly MetavariableTest[] {
    const value = members.get('where');
    if (value === undefined) return [];
    if (!isJsonObject(value)) {
      throw new MatchError(members.place('where'), 'must map metavariables to expressions');
    }
    return Object.entries(value).map(([key, test]) => {
      const at = [...members.place('where'), key];
      const name = key.replace(/^\$+/, '');
      if (name === '') throw new MatchError(at, 'a metavariable needs a name');
      if (typeof test === 'string') return { name, regex: this.#pattern(test, at) };
      if (!isJsonObject(test)) {
        throw new MatchError(at, 'must be an expression, or a mapping of regex and not_regex');
      }
      const tests = new Members(test, at);
      tests.only(['regex', 'notRegex']);
      const read = (member: string): Pattern | undefined => {
        const source = tests.get(member);
        if (source === undefined) return undefined;
        if (typeof source === 'string') return this.#pattern(source, tests.place(member));
        throw new MatchError(tests.place(member), 'must be an expression');
      };
      const [regex, notRegex] = [read('regex'), read('notRegex')];
      if (!regex && !notRegex) throw new MatchError(at, 'regex or not_regex is missing');
      return { name, ...(regex ? { regex } : {}), ...(notRegex ? { notRegex } : {}) };
    });
  }

  lang(members: Members): Node {
    const names = textsOf(members, 'lang', 'a language');
    const extensions = names.flatMap((name) => {
      const found = extensionsOf(name);
      if (found) return found;
      throw new MatchError(
        members.place('lang'),
        `the language ${name} is unknown`,
        similarLanguage(name) ?? 'Write a path instead, such as path: "**/*.xyz".',
      );
    });
    return { kind: 'lang', extensions: new Set(extensions) };
  }

  path(members: Members): Node {
    return { kind: 'path', test: this.#pathTest(members, 'path') };
  }

  #pathTest(members: Members, name: string): PathTest {
    const value = members.get(name);
    if (!isJsonObject(value)) return { globs: this.#globs(members, name) };
    const tests = new Members(value, members.place(name));
    const known = ['glob', 'regex', 'under', 'outside'];
    tests.only(known);
    if (tests.names.length === 0) {
      throw new MatchError(tests.at, `one of ${known.join(', ')} is missing`);
    }
    return {
      ...(tests.has('glob') ? { globs: this.#globs(tests, 'glob') } : {}),
      ...(tests.has('regex') ? { patterns: this.#patterns(tests, 'regex') } : {}),
      ...(tests.has('under') ? { under: textsOf(tests, 'under', 'a folder') } : {}),
      ...(tests.has('outside') ? { outside: textsOf(tests, 'outside', 'a folder') } : {}),
    };
  }

  #globs(members: Members, name: string): readonly ((path: string) => boolean)[] {
    return textsOf(members, name, 'a glob').map((glob) => {
      try {
        return compileGlob(glob);
      } catch (error) {
        const message = error instanceof Error ? error.message : String(error);
        throw new MatchError(members.place(name), message, GLOB_HINT);
      }
    });
  }

  did(members: Members): Node {
    const value = members.get('did');
    if (!isJsonObject(value)) return { kind: 'did', tools: toolsOf(members, 'did') };
    const tests = new Members(value, members.place('did'));
    tests.only(['tool', 'path', 'args', 'within', 'status']);
    if (!['tool', 'path', 'args'].some((name) => tests.has(name))) {
      throw new MatchError(members.place('did'), 'one of tool, path, args is missing');
    }
    const status = oneOf(tests, 'status', ['completed', 'failed'] as const);
    return {
      kind: 'did',
      ...(tests.has('tool') ? { tools: toolsOf(tests, 'tool') } : {}),
      ...(tests.has('path') ? { path: this.#pathTest(tests, 'path') } : {}),
      ...this.#args(tests),
      ...(tests.has('within') ? { within: withinOf(tests) } : {}),
      ...(status ? { status } : {}),
    };
  }

  #args(tests: Members): Pick<DidNode, 'args' | 'named'> {
    const value = tests.get('args');
    if (value === undefined) return {};
    if (!isJsonObject(value)) return { args: this.#patterns(tests, 'args') };
    const at = tests.place('args');
    const named = Object.entries(value).map(([name, globs]) => {
      const list = typeof globs === 'string' ? [globs] : globs;
      if (!isTexts(list)) throw new MatchError([...at, name], 'must be a glob or a list of globs');
      return [name, list] as const;
    });
    if (named.length === 0) throw new MatchError(at, 'the name of an argument is missing');
    return { named };
  }

  #regions(members: Members): ReadonlySet<Region> | undefined {
    const names = textsOf(members, 'in', 'a region').map((name) => name.toLowerCase());
    const regions = names.flatMap((name) => {
      if (name === 'any') return REGIONS;
      const found = REGIONS.find((region) => region === name);
      if (found) return [found];
      throw new MatchError(
        members.place('in'),
        `"${name}" is none of any, ${REGIONS.join(', ')}`,
        didYouMean(name, [...REGIONS]),
      );
    });
    return names.includes('any') ? undefined : new Set(regions);
  }

  #spans(members: Members): SpanTests {
    const read = (name: string): Node | undefined => {
      if (!members.has(name)) return undefined;
      const node = this.node(members.get(name), members.place(name));
      if (findsPlaces(node)) return node;
      throw new MatchError(members.place(name), 'must be about regex or ast conditions');
    };
    const [inside, notInside] = [read('inside'), read('notInside')];
    const [has, notHas] = [read('has'), read('notHas')];
    return {
      ...countOf(members),
      ...(inside ? { inside } : {}),
      ...(notInside ? { notInside } : {}),
      ...(has ? { has } : {}),
      ...(notHas ? { notHas } : {}),
    };
  }

  #patterns(members: Members, name: string): readonly Pattern[] {
    return textsOf(members, name, 'a regular expression').map((source) =>
      this.#pattern(source, members.place(name)),
    );
  }

  #pattern(source: string, at: Place): Pattern {
    const problem = this.#isSlow ? undefined : streamRegexProblem(source);
    if (!this.#isSlow && problem === undefined) return { source, isSlow: false };
    const inJs = expressionProblem(source);
    if (inJs === undefined) return { source, isSlow: true };
    throw new MatchError(
      at,
      `the expression ${source}: ${problem ?? inJs}`,
      'RE2 and, beyond it, JavaScript expressions with the flag u are possible.',
    );
  }
}

/**
 * The expressions of a condition that a longer text cannot undo: it may hold as soon as one of them is found. Undefined for
 * other conditions.
 */
export function triggersOf(node: Node): readonly string[] | undefined {
  if (node.kind === 'regex') {
    const { patterns, max, inside, has, notInside, notHas } = node;
    const others = [inside, has].flatMap((one) => (one ? [triggersOf(one)] : []));
    const isUndone = max !== Infinity || notInside !== undefined || notHas !== undefined;
    if (isUndone || patterns.some(({ isSlow }) => isSlow) || others.includes(undefined)) {
      return undefined;
    }
    return patterns.map(({ source }) => source);
  }
  if (node.kind === 'lang' || node.kind === 'path' || node.kind === 'did') return [];
  if (node.kind !== 'all' && node.kind !== 'any') return undefined;
  const parts = node.of.map(triggersOf);
  return parts.includes(undefined) ? undefined : parts.flatMap((part) => part ?? []);
}

/** True for a condition that finds places in a text, rather than judging it as a whole. */
function findsPlaces(node: Node): boolean {
  if (node.kind === 'regex' || node.kind === 'ast') return true;
  if (node.kind === 'all') return node.of.some(findsPlaces);
  return node.kind === 'any' && node.of.every(findsPlaces);
}

function isTexts(value: JsonValue | undefined): value is string[] {
  return (
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((one) => typeof one === 'string' && one.trim() !== '')
  );
}

/** Reads one text or a list of texts. */
function textsOf(members: Members, name: string, what: string): readonly string[] {
  const value = members.get(name);
  const list = typeof value === 'string' ? [value] : value;
  if (!isTexts(list)) throw new MatchError(members.place(name), `must be ${what} or a list`);
  return list;
}

function judgeOf(members: Members): Node {
  const question = members.get('llm');
  if (typeof question !== 'string' || question.trim() === '') {
    throw new MatchError(members.place('llm'), 'must be a question');
  }
  return {
    kind: 'llm',
    question: question.trim(),
    models: members.has('model') ? textsOf(members, 'model', 'a model or tier') : [],
    holdsOnError: oneOf(members, 'onError', ['match', 'ignore'] as const) === 'match',
  };
}

function toolsOf(members: Members, name: string): readonly string[] {
  return textsOf(members, name, 'the name of a tool').map((tool) => tool.trim().toLowerCase());
}

function oneOf<T extends string>(
  members: Members,
  name: string,
  allowed: readonly T[],
): T | undefined {
  const value = members.get(name);
  if (value === undefined) return undefined;
  const found = allowed.find((one) => one === value);
  if (found === undefined) {
    throw new MatchError(members.place(name), `must be one of ${allowed.join(', ')}`);
  }
  return found;
}

function withinOf(members: Members): number | 'run' {
  const value = members.get('within');
  if (value === 'run' || isCount(value, 1)) return value;
  throw new MatchError(members.place('within'), 'must be a number of calls, or run');
}

function isCount(value: JsonValue | undefined, least: number): value is number {
  return typeof value === 'number' && Number.isInteger(value) && value >= least;
}

function countOf(members: Members): Pick<SpanTests, 'min' | 'max'> {
  const value = members.get('count');
  if (value === undefined) return { min: 1, max: Infinity };
  const at = members.place('count');
  const within = (one: JsonValue | undefined, least: number, place: Place): number => {
    if (isCount(one, least) && one <= MAX_COUNT) return one;
    throw new MatchError(place, `must be a whole number from ${least} to ${MAX_COUNT}`);
  };
  if (!isJsonObject(value)) return { min: within(value, 1, at), max: Infinity };
  const counts = new Members(value, at);
  counts.only(['min', 'max']);
  if (counts.names.length === 0) throw new MatchError(at, 'min or max is missing');
  const min = counts.has('min') ? within(counts.get('min'), 0, counts.place('min')) : 0;
  const max = counts.has('max') ? within(counts.get('max'), 0, counts.place('max')) : Infinity;
  if (min > max) throw new MatchError(at, 'min is more than max');
  return { min, max };
}
