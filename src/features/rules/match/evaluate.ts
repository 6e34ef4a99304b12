import { posix } from 'node:path';
import { globMatches } from '../../../kernel/policy/glob.ts';
import { regexFinds, regexSpans } from '../../../kernel/policy/regex.ts';
import type { CallPath } from '../stream/paths.ts';
import type { PastCall } from './calls.ts';
import { extensionOf, isProse, profileOf } from './languages.ts';
import type {
  AstNode,
  DidNode,
  JudgeNode,
  Node,
  PathTest,
  Pattern,
  RegexNode,
  SpanTests,
} from './parse.ts';
import { codeRegions, proseRegions, type Region, type Regions } from './regions.ts';

/** A complete text that a condition judges: prose, or the texts that a call has for one file. */
export interface MatchText {
  readonly source: 'text' | 'thinking' | 'tool';
  /** Each is matched by itself. */
  readonly parts: readonly string[];
  readonly paths: readonly CallPath[];
}

/** A place in a text, in UTF-16 units. */
export interface Place {
  readonly start: number;
  readonly end: number;
}

/** A place that `ast` found, with the texts of its metavariables. */
export interface AstPlace extends Place {
  readonly text: (metavariable: string) => string | undefined;
}

/** Everything outside of the text that a condition asks. `undefined` answers mean that nothing is known. */
export interface MatchWorld {
  readonly projectPath: string;
  readonly homePath: string;
  /** Finds the places of a JavaScript expression, in bounded time. */
  readonly places: (expression: string, text: string) => Promise<readonly Place[] | undefined>;
  /** Finds the places of a pattern in a source text. */
  readonly ast: (
    node: AstNode,
    text: string,
    extension: string,
    note: (text: string) => void,
  ) => Promise<readonly AstPlace[] | undefined>;
  /** Asks a small model; undefined if it did not answer. */
  readonly judge: (node: JudgeNode, text: MatchText) => Promise<boolean | undefined>;
  /** Takes a reason why nothing is known. */
  readonly note: (text: string) => void;
  /** Calls of the thread before this answer, the oldest first. */
  readonly calls: () => readonly PastCall[];
}

interface Span extends Place {
  readonly part: number;
}

/** Undefined: it cannot be known, which decides nothing. */
interface Verdict {
  readonly holds: boolean | undefined;
  readonly spans: readonly Span[];
}

const NO: Verdict = { holds: false, spans: [] };
const UNKNOWN: Verdict = { holds: undefined, spans: [] };
const YES: Verdict = { holds: true, spans: [] };

/** A line of the text that made a condition hold. */
export interface EvidenceLine {
  /** From 1, in its part of the text. */
  readonly line: number;
  readonly text: string;
}

const MAX_EVIDENCE = 3;
const MAX_LINE = 200;
const MAX_SPANS = 1000;

/** Returns the lines that made a condition hold, none if no line alone did; undefined if it does not hold. */
export async function evaluate(
  node: Node,
  text: MatchText,
  world: MatchWorld,
): Promise<readonly EvidenceLine[] | undefined> {
  const { holds, spans } = await new Evaluation(text, world).node(node);
  return holds === true ? evidenceOf(spans, text.parts) : undefined;
}

function evidenceOf(spans: readonly Span[], parts: readonly string[]): readonly EvidenceLine[] {
  const lines = new Map<string, EvidenceLine>();
  for (const { part, start } of spans.toSorted((a, b) => a.part - b.part || a.start - b.start)) {
    if (lines.size === MAX_EVIDENCE) break;
    const text = parts[part] ?? '';
    const line = text.slice(0, start).split('\n').length;
    const from = text.lastIndexOf('\n', start - 1) + 1;
    const end = text.indexOf('\n', start);
    const shown = text.slice(from, end === -1 ? text.length : end).trim();
    lines.set(`${part}:${line}`, { line, text: shown.slice(0, MAX_LINE) });
  }
  return [...lines.values()];
}

class Evaluation {
  readonly #text: MatchText;
  readonly #world: MatchWorld;
  readonly #extension: string | undefined;
  readonly #regions = new Map<number, Regions | undefined>();

  constructor(text: MatchText, world: MatchWorld) {
    this.#text = text;
    this.#world = world;
    this.#extension = text.paths
      .map(({ shown }) => extensionOf(shown))
      .find((extension) => extension !== undefined);
  }

  async node(node: Node): Promise<Verdict> {
    switch (node.kind) {
      case 'all':
        return await this.#all(node.of);
      case 'any':
        return await this.#any(node.of);
      case 'not': {
        const { holds } = await this.node(node.of);
        return holds === undefined ? UNKNOWN : holds ? NO : YES;
      }
      case 'if':
        return await this.#choice(node);
      case 'lang':
        return this.#extension !== undefined && node.extensions.has(this.#extension) ? YES : NO;
      case 'path':
        return { holds: await this.#somePath(node.test, this.#text.paths), spans: [] };
      case 'did':
        return { holds: await this.#did(node), spans: [] };
      case 'llm':
        return { holds: await this.#world.judge(node, this.#text), spans: [] };
      case 'regex':
        return await this.#tested(node, await this.#regex(node));
      case 'ast':
        return await this.#tested(node, await this.#ast(node));
    }
  }

  async #all(nodes: readonly Node[]): Promise<Verdict> {
    const spans: Span[] = [];
    let holds: true | undefined = true;
    for (const node of byCost(nodes)) {
      // what is unknown stays unknown, at no further cost
      if (holds === undefined && costOf(node) === JUDGE_COST) break;
      const verdict = await this.node(node);
      if (verdict.holds === false) return NO;
      if (verdict.holds === undefined) holds = undefined;
      spans.push(...verdict.spans);
    }
    return { holds, spans };
  }

  async #any(nodes: readonly Node[]): Promise<Verdict> {
    let none: Verdict = NO;
    for (const node of byCost(nodes)) {
      const verdict = await this.node(node);
      if (verdict.holds === true) return verdict;
      if (verdict.holds === undefined) none = UNKNOWN;
    }
    return none;
  }

  async #choice(node: Extract<Node, { kind: 'if' }>): Promise<Verdict> {
    const { holds } = await this.node(node.test);
    if (holds === undefined) return UNKNOWN;
    if (holds) return await this.node(node.yes);
    return node.no ? await this.node(node.no) : NO;
  }

  /** Applies the tests of places to those that a condition found. */
  async #tested(node: RegexNode | AstNode, found: readonly Span[] | undefined): Promise<Verdict> {
    if (found === undefined) return UNKNOWN;
    let spans: readonly Span[] | undefined = found;
    for (const [name, keeps] of SPAN_TESTS) {
      const other = node[name];
      if (!other || spans === undefined) continue;
      const { holds, spans: others } = await this.node(other);
      spans =
        holds === undefined
          ? undefined
          : spans.filter((span) => keeps((test) => others.some((one) => test(span, one))));
    }
    if (spans === undefined) return UNKNOWN;
    return { holds: spans.length >= node.min && spans.length <= node.max, spans };
  }

  async #regex({ patterns, regions }: RegexNode): Promise<readonly Span[] | undefined> {
    const found = new Map<string, Span>();
    for (const pattern of patterns) {
      for (const [part, text] of this.#text.parts.entries()) {
        const places = await this.#places(pattern, text);
        if (places === undefined) return undefined;
        for (const { start, end } of places) found.set(`${part}:${start}`, { part, start, end });
      }
    }
    const spans = [...found.values()];
    if (!regions || spans.length === 0) return spans;
    return this.#inRegions(spans, regions);
  }

  #inRegions(spans: readonly Span[], kinds: ReadonlySet<Region>): readonly Span[] | undefined {
    const kept: Span[] = [];
    for (const span of spans) {
      const regions = this.#regionsOf(span.part);
      if (!regions) {
        const files = this.#extension === undefined ? 'unnamed files' : `.${this.#extension} files`;
        this.#world.note(
          `a rule was not checked: code and comments of ${files} are not told apart`,
        );
        return undefined;
      }
      if (regions.covers(span.start, span.end, kinds)) kept.push(span);
    }
    return kept;
  }

  #regionsOf(part: number): Regions | undefined {
    if (!this.#regions.has(part)) this.#regions.set(part, this.#makeRegions(part));
    return this.#regions.get(part);
  }

  #makeRegions(part: number): Regions | undefined {
    const text = this.#text.parts[part] ?? '';
    if (this.#text.source !== 'tool') return proseRegions(text);
    if (this.#extension === undefined) return undefined;
    if (isProse(this.#extension)) return proseRegions(text);
    const profile = profileOf(this.#extension);
    return profile && codeRegions(text, profile);
  }

  async #places({ source, isSlow }: Pattern, text: string): Promise<readonly Place[] | undefined> {
    return isSlow ? await this.#world.places(source, text) : regexSpans(source, text, MAX_SPANS);
  }

  async #finds(patterns: readonly Pattern[], text: string): Promise<boolean | undefined> {
    let result: false | undefined = false;
    for (const { source, isSlow } of patterns) {
      if (!isSlow && regexFinds(source, text)) return true;
      if (!isSlow) continue;
      const places = await this.#world.places(source, text);
      if (places === undefined) result = undefined;
      else if (places.length > 0) return true;
    }
    return result;
  }

  async #ast(node: AstNode): Promise<readonly Span[] | undefined> {
    if (this.#extension === undefined) return undefined;
    const { ast, note } = this.#world;
    const spans: Span[] = [];
    for (const [part, text] of this.#text.parts.entries()) {
      const places = await ast(node, text, this.#extension, note);
      if (places === undefined) return undefined;
      for (const place of places) {
        const fits = await this.#fits(node, place);
        if (fits === undefined) return undefined;
        if (fits) spans.push({ part, start: place.start, end: place.end });
      }
    }
    return spans;
  }

  async #fits({ where }: AstNode, { text }: AstPlace): Promise<boolean | undefined> {
    for (const { name, regex, notRegex } of where) {
      const value = text(name);
      if (value === undefined) return false;
      const wanted = regex ? await this.#finds([regex], value) : true;
      const refused = notRegex ? await this.#finds([notRegex], value) : false;
      if (wanted === undefined || refused === undefined) return undefined;
      if (!wanted || refused) return false;
    }
    return true;
  }

  /** True if one of the paths satisfies all members of the test. */
  async #somePath(test: PathTest, paths: readonly CallPath[]): Promise<boolean | undefined> {
    let result: false | undefined = false;
    for (const path of paths) {
      const holds = await this.#path(test, path);
      if (holds === true) return true;
      if (holds === undefined) result = undefined;
    }
    return result;
  }

  async #path(test: PathTest, path: CallPath): Promise<boolean | undefined> {
    const { candidates, absolute } = path;
    const { globs, patterns, under, outside } = test;
    const names = [...candidates, posix.basename(candidates[0] ?? '')];
    if (globs && !globs.some((matches) => names.some(matches))) return false;
    const isIn = (folders: readonly string[]): boolean =>
      folders.some((folder) => isUnder(absolute ?? '', this.#folder(folder)));
    if (under && (absolute === undefined || !isIn(under))) return false;
    if (outside && (absolute === undefined || isIn(outside))) return false;
    if (!patterns) return true;
    let result: false | undefined = false;
    for (const name of new Set([...candidates, ...(absolute === undefined ? [] : [absolute])])) {
      const found = await this.#finds(patterns, name);
      if (found === true) return true;
      if (found === undefined) result = undefined;
    }
    return result;
  }

  /** `cwd` is the project, `~` the home folder; other folders are relative to the project. */
  #folder(written: string): string {
    const { projectPath, homePath } = this.#world;
    const project = projectPath.replaceAll('\\', '/');
    const folder = written.replaceAll('\\', '/');
    if (folder === 'cwd' || folder === 'project') return project;
    if (folder === '~' || folder.startsWith('~/')) {
      return posix.normalize(`${homePath.replaceAll('\\', '/')}${folder.slice(1)}`);
    }
    const isAbsolute = folder.startsWith('/') || /^[A-Za-z]:\//.test(folder);
    return posix.normalize(isAbsolute ? folder : `${project}/${folder}`);
  }

  async #did(node: DidNode): Promise<boolean | undefined> {
    const { within } = node;
    const all = this.#world.calls();
    const run = within === 'run' ? all.filter(({ isOfRun }) => isOfRun) : all;
    const calls = typeof within === 'number' ? run.slice(-within) : run;
    let result: false | undefined = false;
    for (const call of calls) {
      const holds = await this.#isCall(node, call);
      if (holds === true) return true;
      if (holds === undefined) result = undefined;
    }
    return result;
  }

  async #isCall(node: DidNode, call: PastCall): Promise<boolean | undefined> {
    const { tools, status, named = [], path, args } = node;
    if (call.status !== (status ?? call.status) || call.status === 'refused') return false;
    const isTool = (tool: string): boolean => call.names.some((name) => globMatches(tool, name));
    if (tools && !tools.some(isTool)) return false;
    const isNamed = named.every(([name, globs]) =>
      call.argument(name).some((text) => globs.some((glob) => globMatches(glob, text))),
    );
    if (!isNamed) return false;
    const holds = path ? await this.#somePath(path, call.paths) : true;
    if (holds !== true || !args) return holds;
    return await this.#finds(args, call.json);
  }
}

/** True for a place that is kept; `some` finds another place with a relation to it. */
type Keeps = (some: (test: (span: Span, other: Span) => boolean) => boolean) => boolean;

const SPAN_TESTS: readonly (readonly [
  keyof Pick<SpanTests, 'inside' | 'notInside' | 'has' | 'notHas'>,
  Keeps,
])[] = [
  ['inside', (some) => some((span, other) => contains(other, span))],
  ['notInside', (some) => !some((span, other) => contains(other, span))],
  ['has', (some) => some(contains)],
  ['notHas', (some) => !some(contains)],
];

function contains(outer: Span, inner: Span): boolean {
  return outer.part === inner.part && outer.start <= inner.start && inner.end <= outer.end;
}

function isUnder(path: string, folder: string): boolean {
  const base = folder.replace(/\/+$/, '');
  return path === base || path.startsWith(`${base}/`);
}

/** Asks first what costs least: a parse can cost a thousand times as much as a look at a path. */
function byCost(nodes: readonly Node[]): readonly Node[] {
  return nodes.toSorted((a, b) => costOf(a) - costOf(b));
}

const JUDGE_COST = 3;

function costOf(node: Node): number {
  switch (node.kind) {
    case 'lang':
    case 'path':
    case 'did':
      return 0;
    case 'regex':
      return 1;
    case 'ast':
      return 2;
    case 'llm':
      return JUDGE_COST;
    case 'not':
      return costOf(node.of);
    case 'if':
      return Math.max(...[node.test, node.yes, ...(node.no ? [node.no] : [])].map(costOf));
    case 'all':
    case 'any':
      return Math.max(...node.of.map(costOf));
  }
}
