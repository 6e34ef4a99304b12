import type {
  InterruptMode,
  ListedRule,
  PlannedRule,
  PlannedRules,
  RepeatMode,
  RuleSettings,
} from '../../../kernel/core/plan.ts';
import { globMatches } from '../../../kernel/policy/glob.ts';
import { isPlain, streamRegexProblem } from '../../../kernel/policy/regex.ts';
import { compileStreamRegex, type StreamRegex } from '../../../kernel/policy/regex-stream.ts';
import { MatchError, type Node, parseMatch, triggersOf } from '../match/parse.ts';
import { expressionProblem, isExpression, javaScriptOf } from './expression.ts';

/** Compiles a glob to a test over relative paths with forward slashes. May throw. */
export type GlobCompiler = (pattern: string) => (path: string) => boolean;

/** A tool whose calls a rule watches: any tool without a name, any path without a test. */
export interface ToolScope {
  /** Lower case. */
  readonly name?: string;
  readonly matchesPath?: (path: string) => boolean;
}

/** Streams that a rule watches. */
export interface Scope {
  readonly text: boolean;
  readonly thinking: boolean;
  readonly tools: readonly ToolScope[];
}

export interface ParsedScope {
  readonly scope: Scope;
  /** Reasons why tokens are skipped. */
  readonly problems: readonly string[];
}

const OPENING = '([{';
const CLOSING = ')]}';
const TOOL = /^(?:(tool|toolcall)(?::([\w./-]+))?|([\w./-]+))(?:\(([^)]*)\))?$/i;

/**
 * Reads scope tokens: `text`, `thinking`, `tool`, `tool:<name>` or a bare tool name, the last three optionally with
 * `(<glob>)`. Without any token: text and every tool.
 */
export function parseScope(tokens: readonly string[], compileGlob: GlobCompiler): ParsedScope {
  const parts = tokens.flatMap(splitTokens);
  if (parts.length === 0) {
    return { scope: { text: true, thinking: false, tools: [{}] }, problems: [] };
  }
  const problems: string[] = [];
  const tools: ToolScope[] = [];
  let text = false;
  let thinking = false;
  for (const part of parts) {
    const keyword = part.toLowerCase();
    if (keyword === 'text') text = true;
    else if (keyword === 'thinking') thinking = true;
    else {
      const tool = parseTool(part, compileGlob);
      if (typeof tool === 'string') problems.push(tool);
      else tools.push(tool);
    }
  }
  return { scope: { text, thinking, tools }, problems };
}

function parseTool(token: string, compileGlob: GlobCompiler): ToolScope | string {
  const match = TOOL.exec(token);
  if (!match)
    return `scope "${token}" is not text, thinking, tool, tool:<name> or tool:<name>(<glob>)`;
  const [, , named, bare, glob] = match;
  const name = (named ?? bare)?.toLowerCase();
  try {
    return {
      ...(name === undefined ? {} : { name }),
      ...(glob === undefined ? {} : { matchesPath: compilePathGlob(glob, compileGlob) }),
    };
  } catch (error) {
    return `scope "${token}": ${error instanceof Error ? error.message : String(error)}`;
  }
}

/** A glob over paths that a pattern without a slash matches by their last part too. */
function compilePathGlob(pattern: string, compileGlob: GlobCompiler): (path: string) => boolean {
  const matches = compileGlob(pattern.trim());
  return (path) => matches(path) || matches(path.slice(path.lastIndexOf('/') + 1));
}

/** Splits at commas outside of brackets, and takes quotes off: `"text", "tool:edit(*.{ts,tsx})"`. */
export function splitTokens(list: string): readonly string[] {
  const tokens: string[] = [];
  let depth = 0;
  let token = '';
  for (const character of list) {
    if (OPENING.includes(character)) depth += 1;
    if (CLOSING.includes(character)) depth -= 1;
    if (character === ',' && depth <= 0) {
      tokens.push(token);
      token = '';
    } else if (character !== '"' && character !== "'") {
      token += character;
    }
  }
  return [...tokens, token].map((one) => one.trim()).filter((one) => one !== '');
}

const REGEX_ONLY = /[\\^$+|()]|\.\*|:\/\//;

/** True if a condition is shorthand for writing files of that name: `*.rs` or `src/**` rather than a regex. */
export function isFileGlob(condition: string): boolean {
  if (REGEX_ONLY.test(condition) || !condition.includes('*')) return false;
  return condition.includes('/') || /^\*\.[\w{},*?-]+$/.test(condition);
}

/** A rule ready to watch. */
export interface StreamRule {
  /** Position in {@link RuleSet.rules}: what the matcher calls it. */
  readonly index: number;
  readonly name: string;
  readonly sha256: string;
  readonly body: string;
  readonly scope: Scope;
  /** Each call must touch a path that one of them matches; none: any. */
  readonly globs: readonly ((path: string) => boolean)[];
  readonly interrupt: InterruptMode;
  readonly repeat: RepeatMode;
  readonly gap: number;
  /** JavaScript expressions for the worker: all of a rule with `engine: js`, else those that the linear engine can't express. */
  readonly slow: readonly string[];
  /** Judged when a text is complete, beside the conditions; absent: nothing is. */
  readonly match?: Node;
  /** True if what the matcher finds only shows that `match` may hold by then. */
  readonly isEarly: boolean;
}

/** The stream rules of a thread, compiled together. */
export interface RuleSet {
  readonly rules: readonly StreamRule[];
  readonly regex: StreamRegex;
}

interface Draft extends Pick<StreamRule, 'scope' | 'globs' | 'match'> {
  readonly conditions: readonly string[];
}

/**
 * Compiles rules to watch. Skips what {@link checkRule} rejects, and a rule with nothing left to watch.
 * Conditions are compiled by the first text that they are to watch.
 */
export function compileRules(
  planned: readonly PlannedRule[],
  settings: RuleSettings,
  compileGlob: GlobCompiler,
): RuleSet {
  const rules: StreamRule[] = [];
  const patterns: (readonly string[])[] = [];
  for (const rule of planned) {
    const { draft } = draftOnce(rule, compileGlob);
    if (draft === undefined) continue;
    const slow = draft.conditions.filter((condition) => needsWorker(condition, rule.engine));
    const isEarly = draft.match !== undefined && draft.conditions.length === 0;
    patterns.push(
      isEarly
        ? ((draft.match && triggersOf(draft.match)) ?? [])
        : draft.conditions.filter((condition) => !slow.includes(condition)),
    );
    rules.push({
      index: rules.length,
      name: rule.name,
      sha256: rule.sha256,
      body: rule.body,
      scope: draft.scope,
      globs: draft.globs,
      interrupt: rule.interrupt ?? settings.interrupt_mode,
      repeat: rule.repeat ?? settings.repeat_mode,
      gap: rule.gap ?? settings.repeat_gap,
      slow: slow.filter(isExpression),
      ...(draft.match ? { match: draft.match } : {}),
      isEarly,
    });
  }
  return { rules, regex: compileStreamRegex(patterns) };
}

/** Returns the problems of a rule, and true if it can watch anything. */
export function checkRule(
  rule: PlannedRule,
  compileGlob: GlobCompiler,
): { readonly isUsable: boolean; readonly problems: readonly string[] } {
  const { draft, problems } = draftOf(rule, compileGlob);
  if (draft === undefined) return { isUsable: false, problems };
  const objections = draft.conditions.flatMap((condition) => {
    const problem = conditionProblem(condition, rule.engine);
    return problem === undefined ? [] : [`condition ${condition}: ${problem}`];
  });
  const isUsable = draft.match !== undefined || objections.length < draft.conditions.length;
  return { isUsable, problems: [...problems, ...objections, ...(isUsable ? [] : [NO_CONDITION])] };
}

const NO_CONDITION = 'it has no condition that can be used, so it never matches';

/** As {@link draftOf}, made once for a rule that threads have in common. */
function draftOnce(rule: PlannedRule, compileGlob: GlobCompiler): ReturnType<typeof draftOf> {
  const known = drafts.get(rule);
  if (known?.compileGlob === compileGlob) return known.made;
  const made = draftOf(rule, compileGlob);
  drafts.set(rule, { compileGlob, made });
  return made;
}

const drafts = new WeakMap<
  PlannedRule,
  { readonly compileGlob: GlobCompiler; readonly made: ReturnType<typeof draftOf> }
>();

/** Reads what a rule watches, with its conditions as written. Undefined if that is nothing. */
function draftOf(
  rule: PlannedRule,
  compileGlob: GlobCompiler,
): { readonly draft?: Draft; readonly problems: readonly string[] } {
  const files = rule.conditions.filter(isFileGlob);
  const conditions = rule.conditions.filter((condition) => !isFileGlob(condition));
  const shorthand = files.flatMap((glob) =>
    ['write', 'edit', 'multi_edit'].map((tool) => `tool:${tool}(${glob})`),
  );
  const { scope, problems: scopeProblems } = parseScope([...rule.scope, ...shorthand], compileGlob);
  const problems = [...scopeProblems];
  const globs: ((path: string) => boolean)[] = [];
  const declaredGlobs = rule.globs.flatMap(splitTokens);
  for (const glob of declaredGlobs) {
    try {
      globs.push(compilePathGlob(glob, compileGlob));
    } catch (error) {
      problems.push(`globs: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (conditions.length === 0 && files.length > 0) conditions.push('(?s).');
  const match = matchOf(rule, problems);
  if (conditions.length === 0 && !match) return { problems: [...problems, NO_CONDITION] };
  if (!isReachable(scope, declaredGlobs.length, globs.length)) {
    const nothing = 'its scope and globs leave nothing to watch, so it never matches';
    return { problems: [...problems, nothing] };
  }
  // prose touches no path
  const isOfFiles = globs.length > 0;
  const watched = isOfFiles ? { ...scope, text: false, thinking: false } : scope;
  return {
    problems,
    draft: { conditions, scope: watched, globs, ...(match ? { match } : {}) },
  };
}

/** Reads a condition that was checked when the rule was found; another version of rye may have planned it. */
function matchOf({ match, engine }: PlannedRule, problems: string[]): Node | undefined {
  if (match === undefined) return undefined;
  try {
    return parseMatch(match, { isSlow: engine === 'js' });
  } catch (error) {
    if (!(error instanceof MatchError)) throw error;
    problems.push(error.message);
    return undefined;
  }
}

/** A gate that can't be compiled must not open. */
function isReachable(scope: Scope, declaredGlobs: number, globs: number): boolean {
  if (declaredGlobs > 0 && globs === 0) return false;
  const hasTools = scope.tools.length > 0;
  return globs > 0 ? hasTools : scope.text || scope.thinking || hasTools;
}

/** True for a condition that runs in the bounded worker: look-around, back-references and others are not RE2 syntax. */
function needsWorker(condition: string, engine: PlannedRule['engine']): boolean {
  if (engine === 'js') return true;
  return (
    isExpression(condition) &&
    !isPlain(javaScriptOf(condition).source) &&
    streamRegexProblem(condition) !== undefined
  );
}

function conditionProblem(condition: string, engine: PlannedRule['engine']): string | undefined {
  const problem = engine === 'js' ? undefined : streamRegexProblem(condition);
  if (engine !== 'js' && problem === undefined) return undefined;
  const inJs = expressionProblem(condition);
  return inJs === undefined ? undefined : (problem ?? inJs);
}

/** A rule that was found, with what decides which bucket it goes to. */
export interface DeclaredRule {
  readonly rule: PlannedRule;
  readonly id: string;
  readonly description: string;
  readonly alwaysApply: boolean;
  readonly enabled: boolean;
  /** Globs of directive ids; empty is every directive. */
  readonly directives: readonly string[];
  /** Members of the file that have no effect, one sentence each. */
  readonly ignored?: readonly string[];
  /** True if the rule was already checked: it can watch and has no problems. */
  readonly isChecked?: boolean;
}

export type Bucket = 'stream' | 'always' | 'rulebook' | 'unused' | 'disabled';

/** The bucket of a rule, and its problems. */
export interface SortedRule {
  readonly declared: DeclaredRule;
  readonly bucket: Bucket;
  readonly problems: readonly string[];
}

/**
 * Sorts rules, the first of each name: disabled rules and rules of other directives drop out; a rule with a condition
 * watches streams; else it is always part of the context, or can be fetched if it has a description. A rule that
 * cannot watch is reported and moves to the other buckets. Without a directive none drops out for its directives.
 */
export function sortRules(
  rules: readonly DeclaredRule[],
  settings: RuleSettings,
  compileGlob: GlobCompiler,
  directive?: string,
): readonly SortedRule[] {
  const disabled = new Set(settings.disabled_rules.map((name) => name.trim()).filter(Boolean));
  const seen = new Set<string>();
  return rules
    .filter(({ rule: { name } }) => {
      const isFirst = !seen.has(name);
      seen.add(name);
      return isFirst;
    })
    .map((declared) => {
      const { rule, enabled } = declared;
      const isOff =
        !enabled ||
        disabled.has(rule.name) ||
        (rule.space === 'system' && !settings.builtin_rules) ||
        !appliesTo(declared, directive);
      return isOff
        ? { declared, bucket: 'disabled', problems: [] }
        : sortRule(declared, settings, compileGlob);
    });
}

function appliesTo({ directives }: DeclaredRule, directive: string | undefined): boolean {
  if (directives.length === 0 || directive === undefined) return true;
  const id = directive.toLowerCase();
  return directives.some((glob) => globMatches(glob.trim().toLowerCase(), id));
}

function sortRule(
  declared: DeclaredRule,
  settings: RuleSettings,
  compileGlob: GlobCompiler,
): SortedRule {
  const { rule, alwaysApply, description, ignored = [], isChecked = false } = declared;
  let problems = ignored;
  if ((rule.conditions.length > 0 || rule.match !== undefined) && settings.enabled) {
    const checked = isChecked ? GOOD : checkRule(rule, compileGlob);
    problems = [...ignored, ...checked.problems];
    if (checked.isUsable) return { declared, bucket: 'stream', problems };
  }
  if (alwaysApply) return { declared, bucket: 'always', problems };
  return { declared, bucket: description === '' ? 'unused' : 'rulebook', problems };
}

const GOOD = { isUsable: true, problems: [] };

/** The rules of a thread: what of the sorted ones has an effect. */
export function rulesOf(sorted: readonly SortedRule[], settings: RuleSettings): PlannedRules {
  const inBucket = (wanted: Bucket): readonly DeclaredRule[] =>
    sorted.filter(({ bucket }) => bucket === wanted).map(({ declared }) => declared);
  return {
    settings,
    stream: inBucket('stream').map(({ rule }) => rule),
    always: inBucket('always').map(({ rule }) => rule),
    rulebook: inBucket('rulebook').map(
      ({ id, rule: { name }, description }): ListedRule => ({ id, name, description }),
    ),
  };
}
