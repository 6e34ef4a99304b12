import type { InterruptMode, PlannedRule, RepeatMode, RuleSettings } from '../../core/rules.ts';
import { streamRegexProblem } from '../../policy/regex-program.ts';
import { compileStreamRegex, type StreamRegex } from '../../policy/regex-stream.ts';
import {
  compilePathGlob,
  type GlobCompiler,
  isFileGlob,
  parseScope,
  type Scope,
  splitTokens,
} from './scope.ts';

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
  /** JavaScript expressions for the worker; empty for rules of the linear engine. */
  readonly slow: readonly string[];
}

/** The stream rules of a thread, compiled together. */
export interface RuleSet {
  readonly rules: readonly StreamRule[];
  readonly regex: StreamRegex;
}

interface Draft extends Pick<StreamRule, 'scope' | 'globs'> {
  readonly conditions: readonly string[];
}

/**
 * Rules ready to watch. What {@link checkRule} objects to is left out; so is a rule that is left with nothing to watch.
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
    const { draft } = draftOf(rule, compileGlob);
    if (draft === undefined) continue;
    patterns.push(rule.engine === 'js' ? [] : draft.conditions);
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
      slow: rule.engine === 'js' ? draft.conditions.filter(isExpression) : [],
    });
  }
  return { rules, regex: compileStreamRegex(patterns) };
}

/** Whether a rule can watch anything, and what is wrong with it. */
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
  const isUsable = objections.length < draft.conditions.length;
  return { isUsable, problems: [...problems, ...objections, ...(isUsable ? [] : [NO_CONDITION])] };
}

const NO_CONDITION = 'it has no condition that can be used, so it never matches';

/** What a rule watches; its conditions as they stand. Undefined where that is nothing. */
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
  if (conditions.length === 0) return { problems: [...problems, NO_CONDITION] };
  if (!isReachable(scope, declaredGlobs.length, globs.length)) {
    const nothing = 'its scope and globs leave nothing to watch, so it never matches';
    return { problems: [...problems, nothing] };
  }
  // prose touches no path
  const isOfFiles = globs.length > 0;
  const watched = isOfFiles ? { ...scope, text: false, thinking: false } : scope;
  return { problems, draft: { conditions, scope: watched, globs } };
}

/** A gate that can't be compiled must not open. */
function isReachable(scope: Scope, declaredGlobs: number, globs: number): boolean {
  if (declaredGlobs > 0 && globs === 0) return false;
  const hasTools = scope.tools.length > 0;
  return globs > 0 ? hasTools : scope.text || scope.thinking || hasTools;
}

function conditionProblem(condition: string, engine: PlannedRule['engine']): string | undefined {
  if (engine === 're2') {
    const problem = streamRegexProblem(condition);
    if (problem === undefined) return undefined;
    const hint = /\(\?<?[=!]|\\[1-9]/.test(condition)
      ? '; look-around and back-references need engine: js'
      : '';
    return `${problem}${hint}`;
  }
  try {
    return new RegExp(condition, 'u').source === '' ? 'it is empty' : undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}

function isExpression(condition: string): boolean {
  return conditionProblem(condition, 'js') === undefined;
}
