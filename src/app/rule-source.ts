import { basename } from 'node:path';
import { EXIT, toRyeError } from '../core/errors.ts';
import { SPACES } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import type { RuleSettings, ThreadPlan } from '../core/plan.ts';
import { parseRule, ruleName } from '../items/rule.ts';
import type { ListedItem } from '../items/spaces-fs.ts';
import type { VerifiedItems } from '../items/verified-fs.ts';
import { compileRules, type DeclaredRule, rulesOf, sortRules } from '../loop/stream-rules/rules.ts';
import { type InjectionHistory, RuleSession } from '../loop/stream-rules/session.ts';
import type { RulePlan, RuleSource } from '../threads/ports.ts';
import { compileGlob } from '../tools/glob-pattern.ts';
import { sha256Hex } from '../trust/keys.ts';
import { bakedRule, type RuleContent } from './baked-rules.ts';
import type { Foundation } from './foundation.ts';
import { readRuleSettings } from './rule-settings.ts';

export interface RuleCatalog {
  readonly settings: RuleSettings;
  /** Verified and well-formed, in the order of the spaces. */
  readonly rules: readonly DeclaredRule[];
  /** Files that are no rule that may be used. They hide no rule of the same name in a later space. */
  readonly refused: readonly RefusedRule[];
}

export interface RefusedRule {
  readonly path: string;
  readonly message: string;
  /** True if the guards of the project report it: a file of the project whose signature does not count. */
  readonly isGuarded: boolean;
}

/** Reads the rules of all spaces, each behind its signature. */
export async function loadRules(base: Foundation, allowUnsigned: boolean): Promise<RuleCatalog> {
  const settings = await readRuleSettings(await base.config());
  const items = await base.items(allowUnsigned);
  const rules: DeclaredRule[] = [];
  const refused: RefusedRule[] = [];
  const listed = SPACES.flatMap((space) => base.spaces.list('rule', { space }));
  for (const item of listed) {
    try {
      rules.push(declaredRule(base, items, item));
    } catch (error) {
      const { message, hint, exitCode } = toRyeError(error);
      refused.push({
        path: item.path,
        isGuarded: item.space === 'project' && exitCode === EXIT.integrity,
        message: `${message}${hint === undefined ? '' : `. ${hint}`}`,
      });
    }
  }
  return { settings, rules, refused };
}

function declaredRule(
  base: Foundation,
  items: VerifiedItems,
  { id, space, path }: ListedItem,
): DeclaredRule {
  const found = base.spaces.find('rule', id, { space });
  if (!found) throw new Error(`${path} is gone`);
  const { text } = items.admit(found, 'context');
  const baked = bakedRule(sha256Hex(text));
  const content: RuleContent = baked ?? parseRule(text, path);
  const { conditions, scope, globs, body, engine, interrupt, repeat, gap } = content;
  return {
    id,
    description: content.description,
    alwaysApply: content.alwaysApply,
    enabled: content.enabled,
    directives: content.directives,
    isChecked: baked !== undefined,
    rule: compact({
      name: ruleName(path),
      space,
      path,
      sha256: sha256Hex(JSON.stringify([conditions, scope, globs, body])),
      conditions,
      scope,
      globs,
      interrupt,
      repeat,
      gap,
      engine,
      body,
    }),
  };
}

/** Rules for threads. */
export class Rules implements RuleSource {
  readonly #base: Foundation;
  readonly #allowUnsigned: boolean;

  constructor(base: Foundation, options: { readonly allowUnsigned: boolean }) {
    this.#base = base;
    this.#allowUnsigned = options.allowUnsigned;
  }

  async plan(directive: string): Promise<RulePlan> {
    const { settings, rules, refused } = await loadRules(this.#base, this.#allowUnsigned);
    const sorted = sortRules(rules, settings, { directive, compileGlob });
    return {
      rules: rulesOf(sorted, settings),
      warnings: [
        ...refused
          .filter(({ isGuarded }) => !isGuarded)
          .map(({ path, message }) => `the rule ${basename(path)} is not used: ${message}`),
        ...sorted.flatMap(({ declared, problems }) =>
          problems.map((problem) => `rule ${declared.rule.name}: ${problem}`),
        ),
      ],
    };
  }

  watch(plan: ThreadPlan, history: InjectionHistory | undefined): RuleSession | undefined {
    const { rules } = plan;
    if (!rules || rules.stream.length === 0) return undefined;
    const set = compileRules(rules.stream, rules.settings, compileGlob);
    const isSlow = set.rules.some(({ slow }) => slow.length > 0);
    return new RuleSession({
      rules: set,
      settings: rules.settings,
      projectPath: this.#base.options.projectPath,
      toolIds: new Map(plan.tools.map(({ name, id }) => [name, id])),
      history,
      slow: isSlow ? this.#base.regexWorker : undefined,
    });
  }
}
