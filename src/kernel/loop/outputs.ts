import { type ErrorInfo, RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson, toText } from '../core/json.ts';
import type { ToolCallBlock } from '../core/message.ts';
import { DIRECTIVE_RETURN, declaresOutput, hasSchema } from '../core/return-schema.ts';
import { headBytes } from '../core/text.ts';
import { hiddenMessage } from './conversation.ts';
import { notStarted } from './gates.ts';
import { decidedEnding } from './hooks.ts';
import type { Ending, ReturnCheck } from './ports.ts';
import type { Run } from './run.ts';
import { type Requested, type Settled, settle, settleUnrun } from './tool-call.ts';

/** The id under which `rye_execute` and steps reach the return. */
const RETURN_ID = 'rye/agent/threads/directive_return';
const RETURN_NAMES: ReadonlySet<string> = new Set([
  DIRECTIVE_RETURN,
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
  const declares = (name: string): boolean => declaresOutput(run.shape, name);
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

/** The maximum number of times that hooks send the model back, unless `retry.max_retries` sets it. */
const MAX_SENT_BACK = 3;

async function sendBack(run: Run): Promise<boolean> {
  if (!run.progress.sendBack(run.plan.settings.max_retries ?? MAX_SENT_BACK)) return false;
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

/** True if the run has to return a result and has not done so. */
export function owesResult({ shape, progress }: Run): boolean {
  if (progress.outputs !== undefined) return false;
  return shape.schema !== undefined || shape.outputs.some(({ required }) => required);
}

/** Reads the result from the last text of the model and checks it. */
export async function readResult(run: Run): Promise<ReturnCheck> {
  const text = run.progress.lastText.trim();
  const value = parseJson(FENCED.exec(text)?.[1] ?? text);
  if (value === undefined || !isJsonObject(value)) {
    return { ok: false, problems: [NO_OBJECT] };
  }
  const { shape } = run;
  const isMeant = shape.schema || Object.keys(value).some((name) => declaresOutput(shape, name));
  return isMeant ? await run.ports.checkReturn(value) : { ok: false, problems: [NO_OBJECT] };
}

const NO_OBJECT = 'the answer is not a JSON object that matches the schema';

/**
 * Asks for the result in another turn: once for outputs by type, and a few times for one with a schema, which a model may
 * miss in its details. Returns false if the model was asked often enough.
 */
export async function askForResult(run: Run, problems: readonly string[]): Promise<boolean> {
  const { shape, models, progress, conversation } = run;
  const isStrict = hasSchema(shape);
  const mayAsk = isStrict
    ? !models.traits.replayable && progress.requestOutput()
    : progress.isFirst('outputs');
  if (!mayAsk) return false;
  const names = shape.outputs.map(({ name }) => name).join(', ');
  const text = isStrict
    ? `The directive has not returned. Call ${DIRECTIVE_RETURN} now, with a result that matches its schema. The problem: ${problems.join('; ')}`
    : `The directive has not returned. Finish the rest, then call ${DIRECTIVE_RETURN} with ${names}. If you cannot finish, call it with status "error" and error_detail.`;
  const type = isStrict ? 'output_request' : 'nudge_outputs';
  await conversation.record(hiddenMessage(type, text));
  return true;
}

function mismatch(problems: readonly string[]): string {
  const [problem] = problems;
  return problem === NO_OBJECT
    ? problem
    : `the answer does not match the schema: ${problems.join('; ')}`;
}

/** Ends a run whose model was asked for its result often enough. */
export function resultMissing(run: Run, problems: readonly string[]): Ending {
  const { shape } = run;
  const names = shape.outputs.filter(({ required }) => required).map(({ name }) => name);
  const isStrict = hasSchema(shape);
  const message = isStrict
    ? mismatch(problems)
    : `the model ended without returning ${names.join(', ')}`;
  const error = new RyeError('outputs_missing', message, {
    hint: isStrict
      ? 'State in the directive what the result should contain, or make the schema less strict.'
      : `State in the directive when to call ${DIRECTIVE_RETURN}, or make the outputs optional.`,
    details: isStrict ? { problems: problems.join('\n') } : { missing: names },
  });
  return { kind: 'error', error: error.toJSON() };
}
