import type { InterruptMode, PlannedRule, RepeatMode, RuleSettings } from '../../core/rules.ts';
import {
  compileStreamRegex,
  type StreamRegex,
  streamRegexProblem,
} from '../../policy/regex-stream.ts';
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

export interface RuleProblem {
  readonly rule: string;
  readonly path: string;
  readonly message: string;
}

/** The stream rules of a thread, compiled together. */
export interface RuleSet {
  readonly rules: readonly StreamRule[];
  readonly regex: StreamRegex;
  readonly problems: readonly RuleProblem[];
}

interface Draft {
  readonly rule: Omit<StreamRule, 'index'>;
  readonly patterns: readonly string[];
}

/**
 * Compiles rules. A condition or scope that can't be used is reported and left out; so is a rule that is left with
 * nothing to watch, which never matches.
 */
export function compileRules(
  planned: readonly PlannedRule[],
  settings: RuleSettings,
  compileGlob: GlobCompiler,
): RuleSet {
  const problems: RuleProblem[] = [];
  const drafts: Draft[] = [];
  for (const rule of planned) {
    const { draft, messages } = compileRule(rule, settings, compileGlob);
    problems.push(...messages.map((message) => ({ rule: rule.name, path: rule.path, message })));
    if (draft) drafts.push(draft);
  }
  return {
    rules: drafts.map(({ rule }, index) => ({ ...rule, index })),
    regex: compileStreamRegex(drafts.map(({ patterns }) => patterns)),
    problems,
  };
}

/** Whether a rule can watch anything, and what is wrong with it. */
export function checkRule(
  rule: PlannedRule,
  settings: RuleSettings,
  compileGlob: GlobCompiler,
): { readonly isUsable: boolean; readonly problems: readonly string[] } {
  const { draft, messages } = compileRule(rule, settings, compileGlob);
  return { isUsable: draft !== undefined, problems: messages };
}

function compileRule(
  rule: PlannedRule,
  settings: RuleSettings,
  compileGlob: GlobCompiler,
): { readonly draft?: Draft; readonly messages: readonly string[] } {
  const files = rule.conditions.filter(isFileGlob);
  const conditions = rule.conditions.filter((condition) => !isFileGlob(condition));
  const shorthand = files.flatMap((glob) =>
    ['write', 'edit', 'multi_edit'].map((tool) => `tool:${tool}(${glob})`),
  );
  const { scope, problems } = parseScope([...rule.scope, ...shorthand], compileGlob);
  const messages = [...problems];
  const globs: ((path: string) => boolean)[] = [];
  const declaredGlobs = rule.globs.flatMap(splitTokens);
  for (const glob of declaredGlobs) {
    try {
      globs.push(compilePathGlob(glob, compileGlob));
    } catch (error) {
      messages.push(`globs: ${error instanceof Error ? error.message : String(error)}`);
    }
  }
  if (conditions.length === 0 && files.length > 0) conditions.push('(?s).');
  const usable = conditions.filter((condition) => {
    const problem = conditionProblem(condition, rule.engine);
    if (problem !== undefined) messages.push(`condition ${condition}: ${problem}`);
    return problem === undefined;
  });
  if (usable.length === 0) {
    return { messages: [...messages, 'it has no condition that can be used, so it never matches'] };
  }
  if (!isReachable(scope, declaredGlobs.length, globs.length)) {
    return {
      messages: [...messages, 'its scope and globs leave nothing to watch, so it never matches'],
    };
  }
  const hasPaths = globs.length > 0;
  const isSlow = rule.engine === 'js';
  return {
    messages,
    draft: {
      patterns: isSlow ? [] : usable,
      rule: {
        name: rule.name,
        sha256: rule.sha256,
        body: rule.body,
        // prose touches no path
        scope: hasPaths ? { ...scope, text: false, thinking: false } : scope,
        globs,
        interrupt: rule.interrupt ?? settings.interrupt_mode,
        repeat: rule.repeat ?? settings.repeat_mode,
        gap: rule.gap ?? settings.repeat_gap,
        slow: isSlow ? usable : [],
      },
    },
  };
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
