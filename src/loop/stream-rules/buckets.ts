import type { ListedRule, PlannedRule, PlannedRules, RuleSettings } from '../../core/rules.ts';
import { globMatches } from '../../policy/glob.ts';
import { checkRule } from './compile.ts';
import type { GlobCompiler } from './scope.ts';

/** A rule that was found, with what decides which bucket it goes to. */
export interface DeclaredRule {
  readonly rule: PlannedRule;
  readonly id: string;
  readonly description: string;
  readonly alwaysApply: boolean;
  readonly enabled: boolean;
  /** Globs of directive ids; empty is every directive. */
  readonly directives: readonly string[];
  /** Whether it is known beforehand that it can watch and that nothing is wrong with it. */
  readonly isChecked?: boolean;
}

export type Bucket = 'stream' | 'always' | 'rulebook' | 'unused' | 'disabled';

/** Where a rule went, and what is wrong with it. */
export interface SortedRule {
  readonly declared: DeclaredRule;
  readonly bucket: Bucket;
  readonly problems: readonly string[];
}

/**
 * Sorts rules, the first of each name: disabled ones and those of other directives drop out; a rule with a condition
 * watches streams; else it is always part of the context, or can be fetched when it says what it is about. A rule that
 * cannot watch is reported and goes on to the other buckets. Without a directive no rule drops out for its sake.
 */
export function sortRules(
  rules: readonly DeclaredRule[],
  settings: RuleSettings,
  options: { readonly directive?: string | undefined; readonly compileGlob: GlobCompiler },
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
        !appliesTo(declared, options.directive);
      return isOff
        ? { declared, bucket: 'disabled', problems: [] }
        : sortRule(declared, settings, options.compileGlob);
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
  const { rule, alwaysApply, description, isChecked = false } = declared;
  let problems: readonly string[] = [];
  if (rule.conditions.length > 0 && settings.enabled) {
    const checked = isChecked ? GOOD : checkRule(rule, compileGlob);
    problems = checked.problems;
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
