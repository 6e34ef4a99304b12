import type { Space } from '../../core/ids.ts';
import type { InterruptMode, RepeatMode, RuleEngine } from '../../core/plan.ts';

/** One rule as `rye rules list` shows it. */
export interface RuleRow {
  readonly name: string;
  readonly id: string;
  /** `stream`, `always` or `rulebook`; `unused` without a condition and a description, `disabled` if switched off. */
  readonly bucket: 'stream' | 'always' | 'rulebook' | 'unused' | 'disabled';
  readonly space: Space;
  readonly path: string;
  readonly description: string;
  readonly scope: readonly string[];
  readonly globs: readonly string[];
  readonly interrupt: InterruptMode;
  readonly repeat: RepeatMode;
  readonly gap: number;
  readonly engine: RuleEngine;
  /** Why parts of it, or all of it, are not used. */
  readonly problems: readonly string[];
}

/** A file that no thread may use as a rule, with the reason. */
export interface RefusedRuleFile {
  readonly path: string;
  readonly message: string;
}

export interface RuleListing {
  readonly rules: readonly RuleRow[];
  readonly refused: readonly RefusedRuleFile[];
}

export interface RuleTrial {
  readonly checked: number;
  readonly hits: readonly RuleHit[];
  /** Why rules could not be checked: a question that only threads ask, a missing grammar. */
  readonly notes: readonly string[];
  /** Rules among the checked ones that no thread uses yet, because they are not signed. */
  readonly unsigned: readonly RefusedRuleFile[];
}

/** A text to check, and the part of an answer that it represents. */
export interface RuleSample {
  readonly text: string;
  readonly source: 'text' | 'thinking' | 'tool';
  /** Name of the tool, such as `write`; for `tool` only. */
  readonly tool?: string;
  /** Path that the call names. */
  readonly path?: string;
  /** Check this rule alone. */
  readonly rule?: string;
}

/** A rule that a text breaks. */
export interface RuleHit {
  readonly rule: string;
  /** True if the rule would interrupt the answer. */
  readonly interrupts: boolean;
  /** Line of the first match's end, from 1; absent for rules with `engine: js`. */
  readonly line?: number;
}

export interface RuleScan {
  readonly files: number;
  /** Files that were not looked at: binary ones and those above the size limit. */
  readonly skipped: number;
  readonly hits: readonly (RuleHit & { readonly path: string })[];
  /** Why rules could not be checked: a question that only threads ask, a missing grammar. */
  readonly notes: readonly string[];
  /** Rules among the checked ones that no thread uses yet, because they are not signed. */
  readonly unsigned: readonly RefusedRuleFile[];
}

export interface RulesService {
  list(options?: { readonly directive?: string }): Promise<RuleListing>;
  /**
   * Rules that a text would break; they need not be signed yet. `item_not_found` where the named one is no stream rule.
   */
  test(sample: RuleSample): Promise<RuleTrial>;
  /** Checks files as if each were being written. Skips ignored files if the folder is in a git repository. */
  scan(options: {
    readonly folder: string;
    readonly rule?: string;
    readonly gitignore?: boolean;
    readonly maxBytes?: number;
  }): Promise<RuleScan>;
}
