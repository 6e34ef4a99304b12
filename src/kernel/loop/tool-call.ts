import type { ApprovalUse, Ask } from '../core/approval.ts';
import type { CapabilityNeed } from '../core/capability.ts';
import { overReason } from '../core/clock.ts';
import { type ErrorCode, isErrorCode, messageOf, RyeError } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ContentBlock, ToolCallBlock, ToolOutcome } from '../core/message.ts';
import type { AwaitedThreads, ResolvedCall, Tool, ToolOutput } from '../tools/tool.ts';
import { askerOf } from './questions.ts';
import type { Run } from './run.ts';
import { isStopped, later, linkedTo, orStopped } from './stop.ts';

/** A call of the model, in the order of its answer. */
export interface Requested {
  readonly stage: 'requested';
  readonly position: number;
  readonly call: ToolCallBlock;
}

/** A call with its input as the tool gets it. */
export interface TypedCall extends ResolvedCall {
  /** One line per value whose type was changed. */
  readonly coerced: readonly string[];
  /** The refusal of an input that does not fit the schema; the gates are asked before it. */
  readonly invalid?: Settled;
  readonly starts?: TypedCall;
}

/** Resolved to the tool that will run, and allowed by every gate. */
export interface Admitted {
  readonly stage: 'admitted';
  readonly requested: Requested;
  readonly resolved: TypedCall;
  readonly asks: readonly Ask[];
}

/** Input coerced and valid: ready to run. */
export interface Validated {
  readonly stage: 'validated';
  readonly requested: Requested;
  readonly tool: Tool;
  readonly input: JsonObject;
  readonly coerced: readonly string[];
  /** The capability that the call needs under its final input. */
  readonly need: CapabilityNeed;
  /** Demands of hooks and handlers for a person's decision. */
  readonly asks: readonly Ask[];
  /** Present if a person gave the input: the input that was requested, and their comment. */
  readonly changed?: { readonly requested: JsonObject; readonly comment: string };
  /** The decision that lets it run; absent: nothing asks. */
  readonly approved?: ApprovedCall;
  /** An earlier run started the call, which waited for these threads. */
  readonly awaited?: readonly string[];
}

/** A call that a person has agreed to. */
export interface ApprovedCall {
  readonly use: ApprovalUse;
  /** Recorded with the intent, before it. */
  readonly drafts: readonly EventDraft[];
}

/** The intent is in the log. From here on there may be effects. */
export interface Started {
  readonly stage: 'started';
  readonly validated: Validated;
  readonly startedMs: number;
}

/** A call that was started and ends in a later run, once the threads that it waits for have ended. */
export interface Parked {
  readonly stage: 'parked';
  readonly requested: Requested;
  readonly waiting: AwaitedThreads;
}

/** The end of a call: exactly one for each, on every path. */
export interface Settled {
  readonly stage: 'settled';
  readonly requested: Requested;
  /** Canonical id; the wire name if the tool is unknown. */
  readonly tool: string;
  readonly outcome: ToolOutcome;
  readonly content: readonly ContentBlock[];
  readonly data?: JsonObject;
  readonly durationMs: number;
  readonly code?: ErrorCode;
  /** The tool ran and may have had effects, or a person's decision was used up. */
  readonly mayHaveActed?: boolean;
  /** Why it did not simply succeed; for people. */
  readonly reason?: string;
  readonly coerced?: readonly string[];
  /** The content that a written file had before; null for a new one. */
  readonly prior?: Uint8Array | null;
}

/** True if the tool itself produced the result. Only then is a reminder about the call useful. */
export function hasRun({ outcome }: Settled): boolean {
  return (
    outcome === 'ok' || outcome === 'error' || outcome === 'timeout' || outcome === 'substituted'
  );
}

/** Time in which a tool must react to its signal. After it the tool is abandoned and its late result is ignored. */
const GRACE_MS = 5000;
/** Live output of one call; more is dropped, the result has it anyway. */
const MAX_PROGRESS_CHARS = 256 * 1024;

const PREFIX = {
  blocked: 'Blocked: ',
  unknown: 'Unknown tool: ',
  invalid: 'Validation error: ',
  aborted: 'Aborted: ',
  skipped: 'Skipped: ',
} as const;

/** Settles a call with its content for the model. */
export function settle(
  requested: Requested,
  tool: string,
  outcome: ToolOutcome,
  content: Settled['content'] | string,
  facts: Partial<Omit<Settled, 'stage' | 'requested' | 'tool' | 'outcome' | 'content'>> = {},
): Settled {
  const blocks = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  return { stage: 'settled', requested, tool, outcome, content: blocks, durationMs: 0, ...facts };
}

/** Settles a call that is not run; the model reads why. */
export function settleUnrun(
  requested: Requested,
  tool: string,
  outcome: keyof typeof PREFIX,
  reason: string,
  code?: ErrorCode,
): Settled {
  const text = `${PREFIX[outcome]}${reason}`;
  return settle(requested, tool, outcome, text, { reason, ...(code ? { code } : {}) });
}

/** Why open calls end early; also the reason that the model reads. */
export function stopReason(run: Run): string {
  return run.stop.cause === 'duration'
    ? 'the duration limit of the thread was reached'
    : 'the thread was cancelled';
}

/**
 * Coerces the input to what the schema of the tool declares, before anything judges it: a guard that saw "500" where the tool
 * gets 500 could be passed by the spelling.
 */
export async function typed(
  run: Run,
  requested: Requested,
  { tool, input, need, starts }: ResolvedCall,
): Promise<TypedCall> {
  const call = { tool, input, need, coerced: [] };
  const started = starts ? { starts: await typed(run, requested, starts) } : {};
  try {
    const checked = await run.ports.validate(tool.inputSchema, input);
    if (!checked.ok) {
      const invalid = settleUnrun(requested, tool.id, 'invalid', checked.problems);
      return { ...call, ...started, invalid };
    }
    const { input: given, coerced } = checked;
    const needed = starts ? need : (tool.need?.(given) ?? need);
    return { tool, input: given, need: needed, coerced, ...started };
  } catch (error) {
    return { ...call, ...started, invalid: thrown(requested, tool, error) };
  }
}

/**
 * Writes the intent; durably if the call may have effects. What a person decided is used up in the same write, so that a
 * death leaves both or neither.
 */
export async function start(run: Run, validated: Validated): Promise<Started> {
  const { requested, tool, input, approved } = validated;
  const durable = mayAct(validated);
  await run.conversation.write(...(approved?.drafts ?? []), {
    event_type: 'tool_call_start',
    payload: {
      call_id: requested.call.call_id,
      tool: tool.id,
      name: requested.call.name,
      input,
      turn: run.spend.turn,
      ...(approved ? { approval: approved.use } : {}),
    },
    durable,
    repeatable: !durable,
  });
  return { stage: 'started', validated, startedMs: run.ports.clock.monotonic() };
}

/** True if the call must not be run again by a recovery that does not know how it ended. */
function mayAct({ approved, tool }: Validated): boolean {
  return approved !== undefined || !tool.traits.reads_only;
}

/** Continues a call that an earlier run started: its intent is in the log already. */
export function startAgain(run: Run, validated: Validated): Started {
  return { stage: 'started', validated, startedMs: run.ports.clock.monotonic() };
}

/** Runs the tool until it ends, waits for people, times out or the run stops, whichever is first. Never rejects. */
export async function execute(run: Run, started: Started): Promise<Settled | Parked> {
  const end = await runTool(run, started);
  return end.stage === 'parked' ? end : { ...end, mayHaveActed: mayAct(started.validated) };
}

async function runTool(run: Run, { validated, startedMs }: Started): Promise<Settled | Parked> {
  const { requested, tool, coerced } = validated;
  const ended = new AbortController();
  const { controller: stop, unlink } = linkedTo(run.stop.signal);
  let timedOut = false;
  const { clock } = run.ports;
  const seconds = tool.traits.timeout_seconds;
  if (seconds > 0 && Number.isFinite(seconds)) {
    void later(clock, seconds * 1000, ended.signal, () => {
      timedOut = !stop.signal.aborted;
      stop.abort();
    });
  }
  const { signal } = stop;
  const durationMs = (): number => Math.round(clock.monotonic() - startedMs);
  const work = callTool(run, validated, signal, ended.signal);
  try {
    const output = await orStopped(work, signal);
    if (!isStopped(output)) {
      return output.waiting
        ? { stage: 'parked', requested, waiting: output.waiting }
        : withOutput(validated, output, durationMs());
    }
    const late = await Promise.race([
      work.catch(() => undefined),
      clock.sleep(tool.graceMs ?? GRACE_MS, ended.signal).then(() => undefined),
    ]);
    const reason = timedOut
      ? `it ran longer than ${seconds} s and was stopped`
      : `${stopReason(run)} while it ran; it may have had side effects`;
    const text = `${timedOut ? 'Timed out: ' : PREFIX.aborted}${reason}`;
    return settle(
      requested,
      tool.id,
      timedOut ? 'timeout' : 'aborted',
      [{ type: 'text', text }, ...(late?.content ?? [])],
      { durationMs: durationMs(), reason, ...coercions(coerced) },
    );
  } catch (error) {
    const facts = { durationMs: durationMs(), ...coercions(coerced) };
    return { ...thrown(requested, tool, error), ...facts };
  } finally {
    unlink();
    ended.abort(overReason());
  }
}

async function callTool(
  run: Run,
  validated: Validated,
  signal: AbortSignal,
  ended: AbortSignal,
): Promise<ToolOutput> {
  const { requested, tool, input, need, awaited } = validated;
  const { call_id: callId } = requested.call;
  let left = MAX_PROGRESS_CHARS;
  await run.ports.mayStart?.(signal);
  return tool.execute(input, {
    callId,
    threadId: run.ports.threadId,
    projectPath: run.ports.projectPath,
    signal,
    ...(awaited ? { awaited } : {}),
    ask: askerOf(run, { callId, tool, need }),
    onIdle: (isIdle) => run.idle.note(callId, isIdle),
    progress: (text) => {
      left -= text.length;
      if (left < 0 || ended.aborted || run.outbox.isFull) return;
      run.outbox.post({ event_type: 'tool_call_progress', payload: { call_id: callId, text } });
    },
  });
}

function withOutput(
  { requested, tool, coerced }: Validated,
  output: ToolOutput,
  durationMs: number,
): Settled {
  return settle(requested, tool.id, output.is_error ? 'error' : 'ok', output.content, {
    ...(output.data ? { data: output.data } : {}),
    ...(output.prior === undefined ? {} : { prior: output.prior }),
    durationMs,
    ...refusalOf(output),
    ...coercions(coerced),
  });
}

/** Returns the error code of a tool's refusal, if it has one. */
function refusalOf({ is_error: failed, data }: ToolOutput): { readonly code?: ErrorCode } {
  const code = failed ? data?.['code'] : undefined;
  return typeof code === 'string' && isErrorCode(code) ? { code } : {};
}

/** A tool that throws is a bug or a refusal; either way the model gets a result that it can act on. */
function thrown(requested: Requested, tool: Tool, error: unknown): Settled {
  const hint = error instanceof RyeError && error.hint !== undefined ? ` ${error.hint}` : '';
  const reason = messageOf(error);
  const code = error instanceof RyeError ? error.code : 'tool_failed';
  return settle(requested, tool.id, 'error', `Error: ${reason}${hint}`, { reason, code });
}

function coercions(coerced: readonly string[]): { readonly coerced?: readonly string[] } {
  return coerced.length === 0 ? {} : { coerced };
}
