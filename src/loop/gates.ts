import { type CapabilityNeed, capabilityOf } from '../core/capability.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { ControlAction } from '../core/hook.ts';
import { jsonEquals } from '../core/json.ts';
import { covers } from '../policy/capability.ts';
import type { Resolution, ResolvedCall } from '../tools/tool.ts';
import type { Run } from './run.ts';
import { isStopped, orStopped, type Stopped } from './stop.ts';
import {
  type Admitted,
  type Requested,
  type Settled,
  settleUnrun,
  stopReason,
  type Validated,
  validate,
} from './tool-call.ts';

/**
 * Takes a call as far as it can go without an effect: resolve, policy gates, hook gates, substitution, validation. A
 * refusal is final: nothing behind it is asked, and nothing can undo it.
 */
export async function admit(run: Run, requested: Requested): Promise<Validated | Settled> {
  const resolved = await resolve(run, requested);
  if ('stage' in resolved) return resolved;
  const admitted = policyGates(run, requested, resolved);
  if (admitted.stage === 'settled') return admitted;
  const gated = await hookGates(run, admitted);
  if (gated.stage === 'settled') return gated;
  const validated = await validate(run, gated);
  return validated.stage === 'settled' ? validated : recheck(run, gated, validated);
}

async function resolve(run: Run, requested: Requested): Promise<ResolvedCall | Settled> {
  const { call } = requested;
  if (run.stop.signal.aborted) return notStarted(run, requested, call.name);
  if (call.malformed !== undefined) {
    const reason = `the arguments of ${call.name} are not a JSON object. Send them again, complete.`;
    return settleUnrun(requested, call.name, { outcome: 'invalid', reason });
  }
  let resolution: Resolution | Stopped;
  try {
    resolution = await orStopped(run.ports.tools.resolve(call.name, call.input), run.stop.signal);
  } catch (error) {
    const code = error instanceof RyeError ? error.code : 'tool_failed';
    return settleUnrun(requested, call.name, {
      outcome: 'invalid',
      reason: messageOf(error),
      code,
    });
  }
  if (isStopped(resolution)) return notStarted(run, requested, call.name);
  if (resolution.kind === 'resolved') return resolution.call;
  const near = resolution.near.length === 0 ? '' : ` Did you mean ${resolution.near.join(' or ')}?`;
  return settleUnrun(requested, call.name, { outcome: 'unknown', reason: `${call.name}.${near}` });
}

/** A call that no tool has seen, because the run stopped first. */
export function notStarted(run: Run, requested: Requested, tool: string): Settled {
  const reason = `${stopReason(run)}; the call was not started`;
  return settleUnrun(requested, tool, { outcome: 'aborted', reason });
}

/** Fixed order, first refusal wins: capability, then what the integrator adds. */
function policyGates(run: Run, requested: Requested, resolved: ResolvedCall): Admitted | Settled {
  const { tool, need } = resolved;
  if (!covers(run.plan.capabilities, need)) return denied(requested, tool.id, need);
  for (const gate of run.ports.gates ?? []) {
    const reason = gate(resolved);
    if (reason !== undefined)
      return settleUnrun(requested, tool.id, { outcome: 'blocked', reason });
  }
  return { stage: 'admitted', requested, resolved };
}

function denied(requested: Requested, tool: string, need: CapabilityNeed): Settled {
  const reason = `this thread does not hold the capability ${capabilityOf(need)}`;
  return settleUnrun(requested, tool, { outcome: 'blocked', reason, code: 'capability_denied' });
}

async function hookGates(run: Run, admitted: Admitted): Promise<Admitted | Settled> {
  const { requested, resolved } = admitted;
  const { tool, input, need } = resolved;
  const { decision, substitute } = await run.gate({
    call_id: requested.call.call_id,
    tool: tool.id,
    name: requested.call.name,
    input,
    primary: need.verb,
    item_type: need.item_type,
    ...(need.item_id === undefined ? {} : { item_id: need.item_id }),
    reads_only: tool.traits.reads_only,
  });
  if (run.stop.signal.aborted) return notStarted(run, requested, tool.id);
  const reason = refusalOf(decision);
  if (decision?.control === 'abort' || decision?.control === 'suspend') run.verdict ??= decision;
  if (reason !== undefined) {
    return settleUnrun(requested, tool.id, { outcome: 'blocked', reason, code: 'hook_failed' });
  }
  if (!substitute) return admitted;
  return {
    stage: 'settled',
    requested,
    tool: tool.id,
    outcome: 'substituted',
    content: substitute.content,
    durationMs: 0,
  };
}

/** Only silence or `continue` lets a call through. */
function refusalOf(decision: ControlAction | undefined): string | undefined {
  switch (decision?.control) {
    case undefined:
    case 'continue':
      return undefined;
    case 'fail':
      return decision.error ?? 'a hook refused the call';
    case 'abort':
      return 'a hook ended the thread';
    case 'suspend':
      return decision.reason ?? 'a hook suspended the thread';
    case 'retry':
    case 'escalate':
    case 'handoff':
    case 'compact':
      break;
  }
  return `a hook decided ${decision.control}, which a gate cannot do`;
}

/** Coercion may have changed what the call is about, so the need of what will really run is checked again. */
function recheck(run: Run, { resolved }: Admitted, validated: Validated): Validated | Settled {
  const { tool, requested, input } = validated;
  const need = tool.need?.(input);
  if (!need || jsonEquals(need, resolved.need)) return validated;
  return covers(run.plan.capabilities, need) ? validated : denied(requested, tool.id, need);
}
