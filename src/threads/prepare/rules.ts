import type { ContextBlock, PlannedModel } from '../../core/plan.ts';
import type { ListedRule, PlannedRules } from '../../core/rules.ts';
import { covers } from '../../policy/capability.ts';
import type { ThreadEnv } from '../ports.ts';

export interface RulesOfPlan {
  readonly rules: PlannedRules | undefined;
  /** For the system text: rules that always apply, then those that can be fetched. */
  readonly blocks: readonly ContextBlock[];
  readonly warnings: readonly string[];
}

/** The rules of a thread and what of them its model is told from the start. Without a model there are none. */
export async function planRules(
  env: ThreadEnv,
  facts: {
    readonly directive: string;
    readonly model: PlannedModel;
    readonly capabilities: readonly string[];
  },
): Promise<RulesOfPlan> {
  if (facts.model.kind === 'literal') return { rules: undefined, blocks: [], warnings: [] };
  const { rules, warnings } = await env.rules.plan(facts.directive);
  const always = rules.always.map(
    ({ name, path, body }): ContextBlock => ({
      position: 'system',
      id: `rule:${name}`,
      source: path,
      content: body,
    }),
  );
  const rulebook = rules.rulebook.filter(({ id }) =>
    covers(facts.capabilities, { verb: 'fetch', item_type: 'rule', item_id: id }),
  );
  return {
    rules: { ...rules, rulebook },
    blocks: [...always, ...rulebookBlock(rulebook)],
    warnings,
  };
}

function rulebookBlock(rulebook: readonly ListedRule[]): readonly ContextBlock[] {
  if (rulebook.length === 0) return [];
  const lines = rulebook.map(({ id, description }) => `- ${id}: ${description}`);
  const content = `Rules of this project, to read with rye_fetch {"item_type": "rule", "item_id": …} when they concern what you do:\n${lines.join('\n')}`;
  return [{ position: 'system', id: 'rulebook', source: 'rules', content }];
}
