import { capabilityOf } from '../core/capability.ts';
import type { ThreadPlan } from '../core/plan.ts';
import { assessRisks, type RiskTable } from '../policy/risk.ts';
import type { Tool } from '../tools/tool.ts';

/**
 * Judges a tool when it is loaded while the thread runs. The plan judged what was there then; a tool that was added,
 * or that declares more since, needs what it would have needed then. Throws `acknowledge_required` or `risk_blocked`.
 */
export function lateRiskCheck(
  { acknowledged }: Pick<ThreadPlan, 'acknowledged'>,
  table: RiskTable,
): (tool: Tool) => void {
  return ({ id, traits }) => {
    const { refusals } = assessRisks({
      capabilities: [capabilityOf({ verb: 'execute', item_type: 'tool', item_id: id })],
      table,
      acknowledged,
      toolRisks: new Map([[id, traits.risk]]),
    });
    const [refusal] = refusals;
    if (refusal) throw refusal;
  };
}
