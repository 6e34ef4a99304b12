import { isJsonObject, type JsonObject } from '../core/json.ts';
import type { ToolCallBlock } from '../core/message.ts';
import { notStarted } from './gates.ts';
import type { Run } from './run.ts';
import { type Requested, type Settled, settleUnrun } from './tool-call.ts';

const RETURN_NAMES: ReadonlySet<string> = new Set(['rye_directive_return', 'directive_return']);
/** The id under which `rye_execute` reaches the return. */
const RETURN_ID = 'rye/agent/threads/directive_return';

/** True for a call that returns from the directive: the loop answers it, no tool does, and no capability is needed. */
export function isReturn({ name, input }: ToolCallBlock): boolean {
  return RETURN_NAMES.has(name) || (name === 'rye_execute' && input['item_id'] === RETURN_ID);
}

export function isReturnName(name: string): boolean {
  return RETURN_NAMES.has(name);
}

/** The outputs that a return carries, unchecked; undefined for other calls and for malformed arguments. */
export function returnInput(call: ToolCallBlock): JsonObject | undefined {
  if (!isReturn(call) || call.malformed !== undefined) return undefined;
  if (RETURN_NAMES.has(call.name)) return call.input;
  const parameters = call.input['parameters'];
  return isJsonObject(parameters) ? parameters : {};
}

export interface Returning {
  readonly request: Requested;
  readonly outputs: JsonObject;
  /** A call before it in the same answer failed. */
  readonly failed: boolean;
}

/**
 * Decides about a return with valid outputs, after the calls before it. The model wrote it before it knew their
 * results, so when one failed it has to look first and return again.
 */
export function judgeReturn(
  run: Run,
  { request, outputs, failed }: Returning,
): { readonly settled: Settled; readonly outputs?: JsonObject } {
  const { name } = request.call;
  if (run.stop.signal.aborted) return { settled: notStarted(run, request, name) };
  if (failed || run.verdict) {
    const reason = 'another call of the same answer failed. Look at its result, then return again.';
    return { settled: settleUnrun(request, name, { outcome: 'skipped', reason }) };
  }
  const settled: Settled = {
    stage: 'settled',
    requested: request,
    tool: name,
    outcome: 'ok',
    content: [{ type: 'text', text: 'Returned.' }],
    durationMs: 0,
  };
  return { settled, outputs };
}
