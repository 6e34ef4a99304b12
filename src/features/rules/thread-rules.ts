import { homedir } from 'node:os';
import { basename } from 'node:path';
import { filled, readSettings } from '../../kernel/app/settings.ts';
import type { Workspace } from '../../kernel/app/workspace.ts';
import { EXIT, RyeError, toRyeError } from '../../kernel/core/errors.ts';
import { SPACES } from '../../kernel/core/ids.ts';
import { compact } from '../../kernel/core/json.ts';
import type { RuleSettings, ThreadPlan } from '../../kernel/core/plan.ts';
import type { Config } from '../../kernel/items/config-fs.ts';
import { shippedMeaning } from '../../kernel/items/meanings.ts';
import { parseRule, type Rule, ruleName } from '../../kernel/items/rule.ts';
import type { ListedItem } from '../../kernel/items/spaces-fs.ts';
import type { VerifiedItems } from '../../kernel/items/verified-fs.ts';
import type { LoopPorts } from '../../kernel/loop/ports.ts';
import type { ContinuedPath, RulePlan, RuleSource } from '../../kernel/threads/ports.ts';
import { compileGlob } from '../../kernel/tools/glob-pattern.ts';
import { sha256Hex } from '../../kernel/trust/keys.ts';
import { findAst } from './match/ast-grep.ts';
import { PastCalls } from './match/calls.ts';
import { matchProblem } from './match/problem.ts';
import { regexWorkerOf } from './regex-worker.ts';
import { AnswerWatch } from './stream/answer-watch.ts';
import { compileRules, type DeclaredRule, rulesOf, sortRules } from './stream/rules.ts';
import { type MatchParts, RuleSession, restoreHistory } from './stream/session.ts';

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

/** Reads the rules of all spaces and verifies their signatures; `as-they-are` does not, for a trial outside of threads. */
export async function loadRules(
  workspace: Workspace,
  allowUnsigned: boolean | 'as-they-are',
): Promise<RuleCatalog> {
  const settings = await readRuleSettings(await workspace.config());
  const items = allowUnsigned === 'as-they-are' ? undefined : await workspace.items(allowUnsigned);
  const rules: DeclaredRule[] = [];
  const refused: RefusedRule[] = [];
  const listed = SPACES.flatMap((space) => workspace.spaces.list('rule', { space }));
  for (const item of listed) {
    try {
      rules.push(declaredRule(workspace, items, item));
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
  workspace: Workspace,
  items: VerifiedItems | undefined,
  { id, space, path }: ListedItem,
): DeclaredRule {
  const isShipped = space === 'system';
  const checked = isShipped ? shippedRules.get(path) : undefined;
  if (checked) return checked;
  const found = workspace.spaces.find('rule', id, { space });
  if (!found) throw new Error(`${path} is gone`);
  const { text, bytes } = found;
  const verdict = items?.admit(found, 'context').verdict;
  const rule = parsedRules.get(bytes) ?? parsedRule(text, { id, space, path });
  parsedRules.set(bytes, rule);
  if (isShipped && verdict?.ok === true) shippedRules.set(path, rule);
  return rule;
}

/** The members of a rule that do not depend on its location. */
export type RuleContent = Pick<
  Rule,
  | 'description'
  | 'alwaysApply'
  | 'enabled'
  | 'directives'
  | 'conditions'
  | 'match'
  | 'scope'
  | 'globs'
  | 'interrupt'
  | 'repeat'
  | 'gap'
  | 'engine'
  | 'body'
>;

/** Rules of this release by their path, as the manifest confirmed them: like the program, they are read once. */
const shippedRules = new Map<string, DeclaredRule>();

/** Rules by the bytes of their file: an unchanged file gives the same bytes each time. */
const parsedRules = new WeakMap<Uint8Array, DeclaredRule>();

/** Reads a rule as threads get it. */
export function parsedRule(
  text: string,
  { id, space, path }: Pick<ListedItem, 'id' | 'space' | 'path'>,
): DeclaredRule {
  // the build has compiled its conditions and globs
  const baked = shippedMeaning('rule', text) as RuleContent | undefined;
  const content: RuleContent = baked ?? checkedRule(text, path);
  const { conditions, match, scope, globs, body, engine, interrupt, repeat, gap } = content;
  const identity = [conditions, scope, globs, body, ...(match ? [match] : [])];
  return {
    id,
    description: content.description,
    alwaysApply: content.alwaysApply,
    enabled: content.enabled,
    directives: content.directives,
    ...ignoredIn(content),
    isChecked: baked !== undefined,
    rule: compact({
      name: ruleName(path),
      space,
      path,
      sha256: sha256Hex(JSON.stringify(identity)),
      conditions,
      match,
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

/** Reads a rule and its condition. Throws `rule_malformed` with the location. */
function checkedRule(text: string, path: string): Rule {
  const rule = parseRule(text, path);
  const problem = matchProblem(rule);
  if (problem) throw new RyeError(problem.code, problem.message, problem);
  return rule;
}

/** The members of a rule file that have no effect. A rule that rye ships has none. */
function ignoredIn(content: RuleContent): Pick<DeclaredRule, 'ignored'> {
  const warnings = 'warnings' in content ? (content.warnings as Rule['warnings']) : [];
  return warnings.length === 0 ? {} : { ignored: warnings.map(({ message }) => message) };
}

/** ThreadRules for threads. */
export class ThreadRules implements RuleSource {
  readonly #workspace: Workspace;
  readonly #allowUnsigned: boolean;

  constructor(workspace: Workspace, options: { readonly allowUnsigned: boolean }) {
    this.#workspace = workspace;
    this.#allowUnsigned = options.allowUnsigned;
  }

  async plan(directive: string): Promise<RulePlan> {
    const { settings, rules, refused } = await loadRules(this.#workspace, this.#allowUnsigned);
    const sorted = sortRules(rules, settings, compileGlob, directive);
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

  watch(
    plan: ThreadPlan,
    { tree, leafId }: ContinuedPath,
  ): Pick<LoopPorts, 'watchStream' | 'noteMessage'> {
    const { rules } = plan;
    if (!rules || rules.stream.length === 0) return {};
    const set = compileRules(rules.stream, rules.settings, compileGlob);
    const isSlow = set.rules.some(({ slow }) => slow.length > 0);
    const match = set.rules.some((rule) => rule.match) ? matchParts(this.#workspace) : undefined;
    if (tree) match?.calls.restore(tree, leafId);
    match?.calls.begin();
    const session = new RuleSession({
      rules: set,
      settings: rules.settings,
      projectPath: this.#workspace.options.projectPath,
      toolIds: new Map(plan.tools.map(({ name, id }) => [name, id])),
      history: tree && restoreHistory(tree, leafId),
      slow: isSlow ? regexWorkerOf(this.#workspace) : undefined,
      match,
    });
    return {
      watchStream: (turn, record) => new AnswerWatch(session, turn, record),
      ...(match ? { noteMessage: (message) => match.calls.note(message) } : {}),
    };
  }
}

/** The engines for rules with `match`, and a thread that has done nothing. */
export function matchParts(workspace: Workspace): MatchParts {
  return {
    homePath: workspace.options.env?.['HOME'] ?? homedir(),
    calls: new PastCalls(),
    places: async (expression, text) =>
      await regexWorkerOf(workspace).places(expression, text, MAX_PLACES),
    ast: findAst,
  };
}

const MAX_PLACES = 1000;

/** The group of stream rules over all spaces. Errors: `config_invalid` with the place. */
async function readRuleSettings(config: Config): Promise<RuleSettings> {
  const rules = filled(await readSettings(config, 'agent/rules'), {
    enabled: true,
    context_mode: 'discard',
    interrupt_mode: 'always',
    repeat_mode: 'once',
    repeat_gap: 10,
    builtin_rules: true,
    disabled_rules: [],
    max_interrupts_per_run: 5,
    buffer_limit: 65_536,
  });
  return {
    ...rules,
    repeat_gap: Math.floor(rules.repeat_gap),
    max_interrupts_per_run: Math.floor(rules.max_interrupts_per_run),
    buffer_limit: Math.max(1024, Math.floor(rules.buffer_limit)),
  };
}
