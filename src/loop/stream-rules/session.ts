import type { EventDraft } from '../../core/events.ts';
import { wireName } from '../../core/ids.ts';
import type { JsonValue } from '../../core/json.ts';
import type { ToolCallBlock } from '../../core/message.ts';
import type { RuleSettings } from '../../core/rules.ts';
import type { StreamWatcher } from '../ports.ts';
import { AnswerWatch, type RunRules } from './answer-watch.ts';
import type { RuleSet, StreamRule } from './compile.ts';
import { InjectionHistory } from './history.ts';
import { SlowChecks, type SlowMatcher } from './slow.ts';

const EXECUTE_ID = 'rye/execute';

/** A rule cuts so many answers of a run at most: one that the model can't follow must not use up all turns. */
const MAX_INTERRUPTS_PER_RULE = 3;

export interface RuleSessionOptions {
  readonly rules: RuleSet;
  readonly settings: RuleSettings;
  readonly projectPath: string;
  /** Canonical ids of tools by the names that a model uses. */
  readonly toolIds: ReadonlyMap<string, string>;
  readonly history?: InjectionHistory | undefined;
  readonly slow?: SlowMatcher | undefined;
}

/** What stream rules remember through a run: what was told, and how often an answer was cut. */
export class RuleSession implements RunRules {
  readonly rules: RuleSet;
  readonly settings: RuleSettings;
  readonly projectPath: string;
  readonly history: InjectionHistory;
  readonly slow: SlowChecks | undefined;
  readonly #toolIds: ReadonlyMap<string, string>;
  readonly #interrupts = new Map<StreamRule, number>();
  #total = 0;
  #notes: EventDraft[] = [];

  constructor(options: RuleSessionOptions) {
    this.rules = options.rules;
    this.settings = options.settings;
    this.projectPath = options.projectPath;
    this.history = options.history ?? new InjectionHistory();
    this.#toolIds = options.toolIds;
    this.slow =
      options.slow &&
      new SlowChecks(options.slow, (rule) => {
        const text = `rule ${rule} took too long twice and is not checked again in this run`;
        this.#notes.push({ event_type: 'note', payload: { text } });
      });
  }

  /** Watches one answer. What an earlier answer left undelivered is forgotten: its rules may match again. */
  watch(turn: number): StreamWatcher {
    return new AnswerWatch(this, turn);
  }

  mayInterrupt(rule: StreamRule): boolean {
    const count = this.#interrupts.get(rule) ?? 0;
    return count < MAX_INTERRUPTS_PER_RULE && this.#total < this.settings.max_interrupts_per_run;
  }

  countInterrupt(rules: Iterable<StreamRule>): void {
    this.#total += 1;
    for (const rule of rules) this.#interrupts.set(rule, (this.#interrupts.get(rule) ?? 0) + 1);
  }

  namesOf(tool: string): readonly string[] {
    const id = this.#toolIds.get(tool) ?? this.#toolIds.get(wireName(tool)) ?? tool;
    const last = id.slice(id.lastIndexOf('/') + 1);
    return [...new Set([id, tool, last].map((name) => name.toLowerCase()))];
  }

  isPlain({ name, input }: ToolCallBlock): boolean {
    const id = this.#toolIds.get(name);
    return id !== undefined && id !== EXECUTE_ID && !Object.values(input).some(isMaybeJson);
  }

  takeNotes(): readonly EventDraft[] {
    const notes = this.#notes;
    if (notes.length > 0) this.#notes = [];
    return notes;
  }
}

/** Where a tool wants a list or an object, a text that holds one is read as it. */
function isMaybeJson(value: JsonValue | undefined): boolean {
  return typeof value === 'string' && /^\s*[[{]/.test(value);
}
