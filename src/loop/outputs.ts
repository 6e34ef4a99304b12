import { type ErrorInfo, RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson, toText } from '../core/json.ts';
import { type AssistantMessage, type ToolCallBlock, toolCallsOf } from '../core/message.ts';
import { headBytes } from '../core/text.ts';
import { OUTPUT_TOOL } from '../providers/provider.ts';
import { hiddenMessage } from './conversation.ts';
import { notStarted } from './gates.ts';
import { decidedEnding } from './hooks.ts';
import type { Ending, Validation } from './ports.ts';
import { boundResult, resultDraft, settledDraft } from './results.ts';
import type { Run } from './run.ts';
import { type Requested, type Settled, settle, settleUnrun } from './tool-call.ts';

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

/** Returns the unchecked outputs of a return; undefined for other calls and for malformed arguments. */
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

/** Ends a thread whose model could not finish, unless an `error` hook decides otherwise. */
export async function endReturned(run: Run, detail: string): Promise<Ending | undefined> {
  await run.hooks.observe('directive_return', {
    outputs: {},
    result: run.progress.lastText,
    status: 'error',
    error_detail: detail,
  });
  const error = new RyeError('directive_error', detail, {
    hint: 'Resolve what the model reports, then resume the thread.',
    details: { returned_by: 'model' },
  });
  return await endFailed(run, 'directive', error.toJSON());
}

/**
 * Ends a thread that failed for another reason than a model call or a tool. `error` hooks are asked first: a retry sends
 * the model back to work, as often as a failed model call is retried.
 */
export async function endFailed(
  run: Run,
  source: 'directive' | 'loop',
  error: ErrorInfo,
): Promise<Ending | undefined> {
  const decision = await run.hooks.control('error', {
    source,
    error: { code: error.code, message: error.message },
    classification: { category: source, retryable: false },
    attempt: run.progress.timesSentBack + 1,
  });
  if (decision?.control === 'retry' && (await sendBack(run))) return undefined;
  const isSilent = decision?.control === 'fail' && decision.error === undefined;
  const decided = isSilent ? undefined : decidedEnding(decision, 'error', error.message);
  return decided ?? { kind: 'error', error };
}

async function sendBack(run: Run): Promise<boolean> {
  if (!run.progress.sendBack(run.plan.settings.max_retries)) return false;
  const text =
    'A hook asks you to try again. Look for another way; if there is none, return an error.';
  await run.conversation.record(hiddenMessage('sent_back', text));
  return true;
}

/**
 * Decides about a valid return, after the calls before it. The model wrote its outputs before it knew their results, so
 * if one `failed` it has to look first and return again. An error does not depend on them.
 */
export function judgeReturn(
  run: Run,
  request: Requested,
  returned: Returned,
  failed: boolean,
): { readonly settled: Settled; readonly returned?: Returned } {
  const { name } = request.call;
  if (run.stop.signal.aborted) return { settled: notStarted(run, request, name) };
  if ((failed && returned.kind === 'outputs') || run.stop.decision) {
    const reason = 'another call of the same answer failed. Look at its result, then return again.';
    return { settled: settleUnrun(request, name, 'skipped', reason) };
  }
  const text = returned.kind === 'outputs' ? 'Returned.' : 'Returned as an error.';
  return { settled: settle(request, name, 'ok', text), returned };
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

/** Returns the call that carries the result, if the result was asked for. */
export function outputCall(run: Run, message: AssistantMessage): ToolCallBlock | undefined {
  if (run.progress.outputRequests === 0 || !owesOutput(run)) return undefined;
  return toolCallsOf(message).find(({ name }) => name === OUTPUT_TOOL.name);
}

/** Settles every call of the answer that carries the result: checks that one and runs none of the others. */
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
        ? settleUnrun(requested, call.name, 'skipped', 'the result was given')
        : checked.ok
          ? settle(requested, call.name, 'ok', 'Taken.')
          : settleUnrun(requested, call.name, 'invalid', checked.problems);
    const result = await boundResult(run, settled);
    await run.conversation.record(settledDraft(result), resultDraft(result, run.spend.turn));
  }
  return checked;
}
