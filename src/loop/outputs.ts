import { type ErrorInfo, RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson, toText } from '../core/json.ts';
import { type AssistantMessage, type ToolCallBlock, toolCallsOf } from '../core/message.ts';
import { headBytes } from '../core/text.ts';
import { OUTPUT_TOOL } from '../providers/provider.ts';
import { hiddenMessage } from './conversation.ts';
import { notStarted } from './gates.ts';
import { hookError } from './hooks.ts';
import type { Ending, Validation } from './ports.ts';
import { boundResult, resultDraft, settledDraft } from './results.ts';
import type { Run } from './run.ts';
import { type Requested, type Settled, settleUnrun } from './tool-call.ts';

/** The id under which `rye_execute` and steps reach the return. */
const RETURN_ID = 'rye/agent/threads/directive_return';
const RETURN_NAMES: ReadonlySet<string> = new Set([
  'rye_directive_return',
  'directive_return',
  wireName(RETURN_ID),
]);

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

/** Result of a directive: its outputs, or the reason why the model could not finish. */
export type Returned =
  | { readonly kind: 'outputs'; readonly outputs: JsonObject }
  | { readonly kind: 'error'; readonly detail: string };

/** The longest `error_detail` that becomes the error of a thread; the log keeps all of it. */
const MAX_DETAIL_BYTES = 4096;

/**
 * Returns the error of a call with `"status": "error"`; undefined for any other return. A directive that declares an output
 * `status` returns one with it: there, only an undeclared `error_detail` makes an error of the value.
 */
export function returnedError(run: Run, call: ToolCallBlock): Returned | undefined {
  const input = returnInput(call);
  const { status, error_detail: detail = null } = input ?? {};
  if (typeof status !== 'string' || status.trim().toLowerCase() !== 'error') return undefined;
  const declares = (name: string): boolean =>
    run.plan.outputs.some((output) => output.name === name);
  if (declares('status') && (detail === null || declares('error_detail'))) return undefined;
  return { kind: 'error', detail: detailText(detail) };
}

function detailText(detail: JsonValue): string {
  const text = detail === null ? '' : toText(detail).trim();
  if (text === '') return 'the model returned an error and gave no error_detail';
  const head = headBytes(text, MAX_DETAIL_BYTES);
  return head.length < text.length ? `${head}…` : text;
}

/** The end of a thread whose model could not finish, unless an `error` hook decides otherwise. */
export async function endReturned(run: Run, detail: string): Promise<Ending | undefined> {
  await run.hooks.observe('directive_return', {
    outputs: {},
    result: run.progress.lastText,
    status: 'error',
    error_detail: detail,
  });
  return await endFailed(run, { source: 'directive', error: directiveError(detail) });
}

/**
 * The end of a thread that failed for another reason than a model call or a tool. `error` hooks are asked first: a retry
 * sends the model back to work, as often as a failed model call is tried again.
 */
export async function endFailed(
  run: Run,
  { source, error }: { readonly source: 'directive' | 'loop'; readonly error: ErrorInfo },
): Promise<Ending | undefined> {
  const decision = await run.hooks.control('error', {
    source,
    error: { code: error.code, message: error.message },
    classification: { category: source, retryable: false },
    attempt: run.progress.timesSentBack + 1,
  });
  switch (decision?.control) {
    case 'abort':
      return { kind: 'error', error: hookError(decision, 'error').toJSON() };
    case 'fail':
      return {
        kind: 'error',
        error: decision.error === undefined ? error : hookError(decision, 'error').toJSON(),
      };
    case 'suspend':
      return { kind: 'suspended', reason: decision.reason ?? error.message };
    case 'handoff':
      return { kind: 'handoff' };
    case 'retry':
      return (await sendBack(run)) ? undefined : { kind: 'error', error };
    case 'continue':
    case 'escalate':
    case 'compact':
    case undefined:
      break;
  }
  return { kind: 'error', error };
}

async function sendBack(run: Run): Promise<boolean> {
  if (!run.progress.sendBack(run.plan.settings.max_retries)) return false;
  const text =
    'A hook asks you to try again. Look for another way; if there is none, return an error.';
  await run.conversation.record(hiddenMessage('sent_back', text));
  return true;
}

function directiveError(detail: string): ErrorInfo {
  return new RyeError('directive_error', detail, {
    hint: 'Resolve what the model reports, then resume the thread.',
    details: { returned_by: 'model' },
  }).toJSON();
}

export interface Returning {
  readonly request: Requested;
  readonly returned: Returned;
  /** A call before it in the same answer failed. */
  readonly failed: boolean;
}

/**
 * Decides about a valid return, after the calls before it. The model wrote its outputs before it knew their results, so
 * when one failed it has to look first and return again. An error does not depend on them.
 */
export function judgeReturn(
  run: Run,
  { request, returned, failed }: Returning,
): { readonly settled: Settled; readonly returned?: Returned } {
  const { name } = request.call;
  if (run.stop.signal.aborted) return { settled: notStarted(run, request, name) };
  if ((failed && returned.kind === 'outputs') || run.stop.decision) {
    const reason = 'another call of the same answer failed. Look at its result, then return again.';
    return { settled: settleUnrun(request, name, { outcome: 'skipped', reason }) };
  }
  const settled: Settled = {
    stage: 'settled',
    requested: request,
    tool: name,
    outcome: 'ok',
    content: [
      { type: 'text', text: returned.kind === 'outputs' ? 'Returned.' : 'Returned as an error.' },
    ],
    durationMs: 0,
  };
  return { settled, returned };
}

/** A text that is nothing but one fenced block of JSON. */
const FENCED = /^```(?:json)?[ \t]*\n([^]*?)\n?```$/;

/** True while the run must end with an object that matches `behavior.schema`. Declared outputs are checked on their return. */
export function owesOutput(run: Run): boolean {
  return (
    run.behavior.schema !== undefined &&
    run.plan.outputs.length === 0 &&
    run.progress.outputs === undefined
  );
}

/** Reads the result from the last text of the model and checks it. */
export async function readOutput(run: Run): Promise<Validation> {
  const text = run.progress.lastText.trim();
  const value = parseJson(FENCED.exec(text)?.[1] ?? text);
  if (value === undefined || !isJsonObject(value)) {
    return { ok: false, problems: 'it is not one JSON object' };
  }
  return check(run, value);
}

async function check(run: Run, value: JsonObject): Promise<Validation> {
  const { schema } = run.behavior;
  return schema ? await run.ports.validate(schema, value) : { ok: true, input: value, coerced: [] };
}

/** Asks for the result in another turn. The run is finishing, and only the result is missing. */
export async function askForOutput(run: Run, problems: string): Promise<Ending | undefined> {
  const { behavior, models, progress, conversation } = run;
  const isRepeated = progress.outputRequests > 0;
  if (models.traits.replayable || !progress.requestOutput()) {
    return { kind: 'error', error: mismatch(problems).toJSON() };
  }
  const text = [
    'Give your final result now, as one JSON object and nothing else. It must match this JSON Schema:',
    JSON.stringify(behavior.schema),
    ...(isRepeated ? [`What you gave does not match: ${problems}`] : []),
  ].join('\n');
  await conversation.record(hiddenMessage('output_request', text));
  return undefined;
}

function mismatch(problems: string): RyeError {
  return new RyeError('outputs_missing', `the result does not match the schema: ${problems}`, {
    hint: 'State in the directive what the result should contain, or make the schema less strict.',
    details: { problems },
  });
}

/** The call that carries the result, where it was asked for. */
export function outputCall(run: Run, message: AssistantMessage): ToolCallBlock | undefined {
  if (run.progress.outputRequests === 0 || !owesOutput(run)) return undefined;
  return toolCallsOf(message).find(({ name }) => name === OUTPUT_TOOL.name);
}

/** Answers every call of the answer that carries the result: that one is checked, the others are not run. */
export async function settleOutput(
  run: Run,
  message: AssistantMessage,
  output: ToolCallBlock,
): Promise<Validation> {
  await run.conversation.record({
    event_type: 'message',
    payload: { message, turn: run.spend.turn },
  });
  const checked: Validation =
    output.malformed === undefined
      ? await check(run, output.input)
      : { ok: false, problems: 'the arguments are not a JSON object' };
  for (const [position, call] of toolCallsOf(message).entries()) {
    const requested = { stage: 'requested', position, call } as const;
    const settled: Settled =
      call !== output
        ? settleUnrun(requested, call.name, { outcome: 'skipped', reason: 'the result was given' })
        : checked.ok
          ? {
              stage: 'settled',
              requested,
              tool: call.name,
              outcome: 'ok',
              content: [{ type: 'text', text: 'Taken.' }],
              durationMs: 0,
            }
          : settleUnrun(requested, call.name, { outcome: 'invalid', reason: checked.problems });
    const result = await boundResult(run, settled);
    await run.conversation.record(settledDraft(result), resultDraft(result, run.spend.turn));
  }
  return checked;
}
