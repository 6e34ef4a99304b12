import { isoTime } from '../core/clock.ts';
import { type ErrorInfo, RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import { type Classification, failureCode } from '../policy/error-class.ts';
import { providerHint } from '../policy/provider-hint.ts';
import type { ProviderFailure } from '../providers/provider.ts';
import { CALLS_AS_TEXT } from './finish.ts';
import type { Run } from './run.ts';

/** A wait that the provider asks for and that is too long. */
export interface AskedWait {
  readonly seconds: number;
  /** True if the thread has less time left; else it is longer than rye retries. */
  readonly isBeyondThread: boolean;
}

export interface GivenUp {
  readonly failure: ProviderFailure;
  readonly classified: Classification;
  readonly asked: AskedWait | undefined;
}

/** Returns the error of a model call that is not retried. */
export async function providerError(
  run: Run,
  { failure, classified: { category }, asked }: GivenUp,
): Promise<ErrorInfo> {
  const { message, status, type, request_id } = failure;
  const model = run.models.current;
  const code = failureCode(category, type);
  const details = { category, status, type, request_id };
  if (code === 'tool_failed') {
    // only a step of the literal provider fails so
    const hook = run.hooks.refusalIn(message);
    const by = hook === undefined ? '' : ` (hook ${hook})`;
    const { id, space } = run.plan.directive;
    const isShipped = hook === undefined && space === 'system';
    const hint = hook === undefined ? STEP_HINT : HOOK_HINT;
    return new RyeError(code, isShipped ? saidByTool(message) : `${message}${by}`, {
      hint: isShipped ? `Run it with other inputs: rye fetch directive ${id} shows them.` : hint,
      details: compact(details),
    }).toJSON();
  }
  const { threadId, clock, about } = run.ports;
  const facts = await about?.(model);
  const text = `${model.provider}/${model.id}: ${message}${asked === undefined ? '' : askedText(asked)}`;
  const after = asked && timeText(clock.now(), asked.seconds * 1000);
  const call = { category, message, type, status, facts, threadId, after };
  return new RyeError(code, text, {
    hint: NO_TOOLS.test(message) ? CALLS_AS_TEXT : providerHint(call),
    details: compact({ ...details, retry_after_seconds: asked?.seconds, access: facts?.access }),
  }).toJSON();
}

function askedText({ seconds, isBeyondThread }: AskedWait): string {
  const than = isBeyondThread ? 'the thread may still run' : 'rye retries (retry.max_seconds)';
  return `; it asks to wait ${durationText(seconds)}, which is longer than ${than}`;
}

/** Formats a wait as `60 s`, `14 min`, `3 h` or `10 days`, rounded up. */
function durationText(seconds: number): string {
  if (seconds < 120) return `${Math.ceil(seconds)} s`;
  if (seconds < 7200) return `${Math.ceil(seconds / 60)} min`;
  return seconds < 172_800
    ? `${Math.ceil(seconds / 3600)} h`
    : `${Math.ceil(seconds / 86_400)} days`;
}

const DAY_MS = 86_400_000;

/** Formats a time in the future as `05:42 UTC`, with the date unless it is within a day. */
function timeText(nowMs: number, inMs: number): string {
  const text = isoTime(nowMs + inMs);
  const minute = `${text.slice(11, 16)} UTC`;
  return inMs < DAY_MS ? minute : `${text.slice(0, 10)} ${minute}`;
}

/** The message with which Ollama and others refuse tools for a model without tool support. */
const NO_TOOLS = /does not support (?:tools|function)/i;

/** Returns what the tool of a step told. The step itself is no concern of a person who did not write it. */
function saidByTool(message: string): string {
  return message.replace(/^step ".*?" \(.*?\): \S+ failed: \S+ failed with exit code \d+\.\n/s, '');
}

const STEP_HINT =
  "Correct the step or the directive's <permissions>, sign the directive and run it again.";

const HOOK_HINT =
  'See where the hook is: rye hooks list. Change the hook or the step, sign it and run it again.';
