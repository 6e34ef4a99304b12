import { wireName } from '../../../kernel/core/ids.ts';
import type { JsonValue } from '../../../kernel/core/json.ts';
import type { ToolCallBlock } from '../../../kernel/core/message.ts';
import type { RuleSettings } from '../../../kernel/core/plan.ts';
import { isKnown, pathTo, type SessionTree } from '../../../kernel/log/tree.ts';
import type { PastCalls } from '../match/calls.ts';
import type { MatchWorld, Place } from '../match/evaluate.ts';
import type { RuleSet, StreamRule } from './rules.ts';

const EXECUTE_ID = 'rye/execute';

/** A rule cuts so many answers of a run at most: one that the model can't follow must not use up all turns. */
const MAX_INTERRUPTS_PER_RULE = 3;

/** A run asks models so often at most. */
export const MAX_JUDGMENTS_PER_RUN = 20;

export interface RuleSessionOptions {
  readonly rules: RuleSet;
  readonly settings: RuleSettings;
  readonly projectPath: string;
  /** Canonical ids of tools by the names that a model uses. */
  readonly toolIds: ReadonlyMap<string, string>;
  readonly history?: InjectionHistory | undefined;
  readonly slow?: SlowMatcher | undefined;
  /** Needed by rules with `match`. */
  readonly match?: MatchParts | undefined;
}

/** The engines of `match`, and what the thread did. */
export interface MatchParts extends Pick<MatchWorld, 'homePath' | 'ast'> {
  readonly calls: PastCalls;
  readonly places: (expression: string, text: string) => Promise<readonly Place[] | 'timeout'>;
}

/** Remembers the stream rules of a run: what the model was told, and how often an answer was cut. */
export class RuleSession {
  readonly rules: RuleSet;
  readonly settings: RuleSettings;
  readonly projectPath: string;
  readonly history: InjectionHistory;
  readonly slow: SlowChecks | undefined;
  /** Answers what a `match` asks; undefined where no rule has one. */
  readonly world: Omit<MatchWorld, 'judge'> | undefined;
  readonly #notes = new Map<string, boolean>();
  readonly #toolIds: ReadonlyMap<string, string>;
  readonly #interrupts = new Map<StreamRule, number>();
  #injections = 0;
  #judgments = 0;

  constructor(options: RuleSessionOptions) {
    this.rules = options.rules;
    this.settings = options.settings;
    this.projectPath = options.projectPath;
    this.history = options.history ?? new InjectionHistory();
    this.#toolIds = options.toolIds;
    this.slow = options.slow && new SlowChecks(options.slow);
    this.world = options.match && this.#worldOf(options.match);
  }

  #worldOf({ homePath, ast, calls, places }: MatchParts): Omit<MatchWorld, 'judge'> {
    const timeouts = new Map<string, number>();
    const note = (text: string): void => {
      if (!this.#notes.has(text)) this.#notes.set(text, false);
    };
    return {
      projectPath: this.projectPath,
      homePath,
      ast,
      note,
      calls: () => calls.views((tool) => this.namesOf(tool), this.projectPath),
      places: async (expression, text) => {
        const count = timeouts.get(expression) ?? 0;
        if (count >= MAX_TIMEOUTS) return undefined;
        const found = await places(expression, text);
        if (found !== 'timeout') return found;
        timeouts.set(expression, count + 1);
        if (count + 1 === MAX_TIMEOUTS) {
          note(`the expression ${expression} took too long twice and is not checked again`);
        }
        return undefined;
      },
    };
  }

  /** Returns why conditions could not be decided, each reason once in a run. */
  takeNotes(): readonly string[] {
    const due = [...this.#notes].filter(([, isTold]) => !isTold).map(([text]) => text);
    for (const text of due) this.#notes.set(text, true);
    return due;
  }

  /** True if one more answer may be cut for the rule. */
  mayInterrupt(rule: StreamRule): boolean {
    return (this.#interrupts.get(rule) ?? 0) < MAX_INTERRUPTS_PER_RULE && this.mayInject(0);
  }

  /** True if the model may be told once more after so many injections that are already due. */
  mayInject(due: number): boolean {
    return this.#injections + due < this.settings.max_interrupts_per_run;
  }

  /** Counts a question to a model; false if the run asks no more. */
  countJudgment(): boolean {
    this.#judgments += 1;
    return this.#judgments <= MAX_JUDGMENTS_PER_RUN;
  }

  /** Counts an interrupt or a reminder toward the cap of the run. */
  countInjection(): void {
    this.#injections += 1;
  }

  countInterrupt(rules: Iterable<StreamRule>): void {
    for (const rule of rules) this.#interrupts.set(rule, (this.#interrupts.get(rule) ?? 0) + 1);
  }

  /** Returns the names by which rules may call a tool, lower case, its id first. */
  namesOf(tool: string): readonly string[] {
    const id = this.#toolIds.get(tool) ?? this.#toolIds.get(wireName(tool)) ?? tool;
    const last = id.slice(id.lastIndexOf('/') + 1);
    return [...new Set([id, tool, last].map((name) => name.toLowerCase()))];
  }

  /** True if the name of a call alone tells what runs: it is offered under that name, and no argument can change it. */
  isPlain({ name, input }: ToolCallBlock): boolean {
    const id = this.#toolIds.get(name);
    return id !== undefined && id !== EXECUTE_ID && !Object.values(input).some(isMaybeJson);
  }
}

/** True for a text that a tool may read as a list or an object. */
function isMaybeJson(value: JsonValue | undefined): boolean {
  return typeof value === 'string' && /^\s*[[{]/.test(value);
}

/**
 * Remembers the rules that the model was told, and the turns it has completed since. A rule is known by its content: an edited
 * one counts as new and a renamed one does not.
 */
export class InjectionHistory {
  /** Answers that came whole; a cut one counts with the answer that replaces it. */
  completedTurns = 0;
  readonly #toldAt = new Map<string, number>();

  /** True if the model may be told a rule now. */
  isDue({ sha256, repeat, gap }: StreamRule): boolean {
    const at = this.#toldAt.get(sha256);
    if (at === undefined) return true;
    return repeat === 'after-gap' && this.completedTurns - at >= gap;
  }

  /** Notes that the model is told, about an answer before which it had completed so many turns. */
  mark(sha256: string, completedTurns: number): void {
    this.#toldAt.set(sha256, completedTurns);
  }
}

/** Restores the history from the path to the leaf: injections on other branches do not count. */
export function restoreHistory(
  tree: SessionTree,
  leafId: string | null = tree.leafId,
): InjectionHistory {
  const history = new InjectionHistory();
  const turns: number[] = [];
  for (const entry of pathTo(tree, leafId)) {
    if (isKnown(entry, 'message') && entry.payload.message.role === 'assistant') {
      if (entry.payload.message.stop_reason === 'aborted') continue;
      turns.push(entry.payload.turn ?? 0);
      history.completedTurns += 1;
    }
    if (!isKnown(entry, 'rule_injection')) continue;
    const { turn, rules } = entry.payload;
    const before = turns.filter((completed) => completed < turn).length;
    for (const { sha256 } of rules) history.mark(sha256, before);
  }
  return history;
}

/** Runs a JavaScript expression outside of the program's own thread, under a time limit. */
export interface SlowMatcher {
  /** Resolves to true if the expression is found in the text. Never rejects; `timeout` past the limit. */
  find(expression: string, text: string): Promise<boolean | 'timeout'>;
}

/** A rule whose check took too long this often is not checked again in the run. */
const MAX_TIMEOUTS = 2;

/** Checks rules with `engine: js`. A check takes time, and its result counts only while its answer is not over. */
export class SlowChecks {
  readonly #matcher: SlowMatcher;
  readonly #timeouts = new Map<string, number>();

  constructor(matcher: SlowMatcher) {
    this.#matcher = matcher;
  }

  /**
   * Returns true if one of a rule's expressions is found. An expression that takes too long is not found; the last
   * timeout that is allowed returns `switched_off`.
   */
  async matches(
    rule: { readonly name: string; readonly slow: readonly string[] },
    text: string,
  ): Promise<boolean | 'switched_off'> {
    let result: false | 'switched_off' = false;
    for (const expression of rule.slow) {
      if ((this.#timeouts.get(rule.name) ?? 0) >= MAX_TIMEOUTS) return result;
      const found = await this.#matcher.find(expression, text);
      if (found === true) return true;
      if (found === 'timeout' && this.#countTimeout(rule.name) === MAX_TIMEOUTS) {
        result = 'switched_off';
      }
    }
    return result;
  }

  #countTimeout(rule: string): number {
    const count = (this.#timeouts.get(rule) ?? 0) + 1;
    this.#timeouts.set(rule, count);
    return count;
  }
}
