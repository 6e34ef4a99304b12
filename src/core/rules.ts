import type { Space } from './ids.ts';

export const INTERRUPT_MODES = ['never', 'prose-only', 'tool-only', 'always'] as const;
/** In which streams a match cuts the answer; in the others it leads to a reminder. */
export type InterruptMode = (typeof INTERRUPT_MODES)[number];

export const REPEAT_MODES = ['once', 'after-gap'] as const;
export type RepeatMode = (typeof REPEAT_MODES)[number];

export const RULE_ENGINES = ['re2', 'js'] as const;
export type RuleEngine = (typeof RULE_ENGINES)[number];

/** The group `agent/rules` of the configuration. */
export interface RuleSettings {
  readonly enabled: boolean;
  /** Whether a cut answer stays in the model's view. */
  readonly context_mode: 'discard' | 'keep';
  readonly interrupt_mode: InterruptMode;
  readonly repeat_mode: RepeatMode;
  /** Completed turns between two injections of a rule. */
  readonly repeat_gap: number;
  readonly builtin_rules: boolean;
  readonly disabled_rules: readonly string[];
  /** After this many, matches of a run lead to reminders only. */
  readonly max_interrupts_per_run: number;
  /** Characters of one stream that rules with `engine: js` are given at once. */
  readonly buffer_limit: number;
}

/** One rule that applies to a thread, as its file declares it. */
export interface PlannedRule {
  /** File name without extension. */
  readonly name: string;
  readonly space: Space;
  readonly path: string;
  /** SHA-256 hex of what the rule says and watches: what injections are remembered by. */
  readonly sha256: string;
  readonly conditions: readonly string[];
  readonly scope: readonly string[];
  readonly globs: readonly string[];
  readonly interrupt?: InterruptMode;
  readonly repeat?: RepeatMode;
  readonly gap?: number;
  readonly engine: RuleEngine;
  /** What the model is told. */
  readonly body: string;
}

/** A rule that the model can fetch. */
export interface ListedRule {
  readonly id: string;
  readonly name: string;
  readonly description: string;
}

/** The rules of one thread, by what they are for. */
export interface PlannedRules {
  readonly settings: RuleSettings;
  /** Watched while the model speaks. */
  readonly stream: readonly PlannedRule[];
  /** Part of the system text. */
  readonly always: readonly PlannedRule[];
  /** Listed in the system text, and fetched when the model wants them. */
  readonly rulebook: readonly ListedRule[];
}
