import { capabilityOf, RISKS } from '../core/capability.ts';
import type { RyeError } from '../core/errors.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { covers } from '../policy/capability.ts';
import { assessRisks, type RiskTable } from '../policy/risk.ts';
import type { Tool } from '../tools/tool.ts';

/**
 * Judges a tool when it is loaded while the thread runs. The plan judged what was there then; a tool that was added,
 * or that declares more since, needs what it would have needed then. Throws `acknowledge_required` or `risk_blocked`.
 */
export function lateRiskCheck(
  {
    acknowledged,
    capabilities,
    tools,
  }: Pick<ThreadPlan, 'acknowledged' | 'capabilities' | 'tools'>,
  table: RiskTable,
): (tool: Tool) => void {
  const refusalOf = (capability: string, { id, traits }: Tool): RyeError | undefined =>
    assessRisks({
      capabilities: [capability],
      table,
      acknowledged,
      toolRisks: new Map([[id, traits.risk]]),
    }).refusals[0];
  return (tool) => {
    const need = { verb: 'execute', item_type: 'tool', item_id: tool.id } as const;
    const refusal = refusalOf(capabilityOf(need), tool);
    if (refusal) throw refusal;
    const planned = tools.find(({ id }) => id === tool.id);
    const declared = tool.traits.risk ?? 'elevated';
    // the plan judged its wildcards by this tool, which declares no more now
    if (planned && RISKS.indexOf(declared) <= RISKS.indexOf(planned.risk)) return;
    // the plan may have judged a wildcard by the program's own tools alone: a file that it reaches too needs more
    const refused = capabilities
      .filter((grant) => covers([grant], need))
      .map((grant) => refusalOf(grant, tool));
    const [first] = refused;
    if (first && refused.every((one) => one !== undefined)) throw first;
  };
}
