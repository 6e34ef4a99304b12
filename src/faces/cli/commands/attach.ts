import type { Rye } from '../../../kernel/app/api/rye.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import { compact } from '../../../kernel/core/json.ts';
import { isActive, type ThreadResult } from '../../../kernel/core/thread.ts';
import type { Steering } from '../../ui/render/text.ts';
import { oneLine, shown } from '../../ui/visible.ts';
import { type Context, defineCommand } from '../command.ts';
import { colorsOf, wrapped } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';
import { createRenderer, exitCodeOfResult, OUTPUT_OPTIONS, outputModeOf } from '../thread-run.ts';

export const attach = defineCommand({
  details:
    "Shows the current run from its start and follows it to its end, with the thread's exit code. At a terminal, type to steer it. Ctrl-C detaches: the thread keeps running. For a finished thread, shows the last turn.",
  arguments: { id: THREAD },
  options: OUTPUT_OPTIONS,
  examples: [
    'rye run hello --async',
    'rye attach @',
    'rye attach 7f3k --output-format stream-json',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const mode = outputModeOf(call, options.outputFormat);
    const left = new AbortController();
    const signal = AbortSignal.any([io.cancellation(), io.outputClosed, left.signal]);
    const renderer = await createRenderer(call, { mode, isLive: !options.print });
    try {
      return await withRye(call, async (rye) => {
        const id = await rye.threads.resolveId(args.id);
        const { thread } = await rye.threads.show(id);
        if (mode === 'text' && !options.print && isActive(thread.status)) {
          if (renderer.openField) await renderer.openField(steeringOf(rye, id, left));
          else hintSteer(call, id);
        }
        for await (const event of currentRun(rye, id, signal)) renderer.event(event);
        if (signal.aborted) {
          renderer.close();
          const hint = `It keeps running. Attach again: rye attach ${id} or cancel it: rye threads cancel ${id}`;
          throw new RyeError('cancelled', `detached from ${id}`, { hint });
        }
        const result = await resultOf(rye, id);
        renderer.finish(result);
        return exitCodeOfResult(result);
      });
    } finally {
      renderer.close();
    }
  },
});

/** Returns the actions of the input field. */
function steeringOf({ deliveries }: Rye, id: string, left: AbortController): Steering {
  return {
    send: async (message) => {
      const { delivery, outlook } = await deliveries.send(id, message);
      return { id: delivery.delivery_id, outlook };
    },
    detach: () => left.abort(),
  };
}

/** Tells a person at a terminal without a keyboard how to talk to a running thread. */
function hintSteer(context: Context, id: string): void {
  const { io, global } = context;
  if (!io.stderr.isTty || global.quiet) return;
  const colors = colorsOf(io.stderr, context);
  const line = shown`Ctrl-C detaches    message: rye threads steer ${oneLine(id)} TEXT`;
  for (const part of wrapped(line, io.stderr)) io.stderr.write(shown`${colors.dim(part)}\n`);
}

/**
 * Yields the events of the thread's run that is under way, to its end. For a finished thread, yields the last turn. Reads
 * the log once: what is past is held until the place at which the log ended is reached.
 */
async function* currentRun(
  { threads }: Rye,
  id: string,
  signal: AbortSignal,
): AsyncIterable<LogEvent | UnknownEvent> {
  const { thread } = await threads.show(id);
  const isRunning = isActive(thread.status);
  const end = await lastSeq(threads, id);
  let held: (LogEvent | UnknownEvent)[] = [];
  let isPast = true;
  for await (const event of threads.logs(id, { since: 0, follow: true, signal })) {
    if (!isPast) {
      yield event;
      continue;
    }
    if (isStart(event, isRunning)) held = [];
    held.push(event);
    if (event.seq < end) continue;
    isPast = false;
    yield* held;
    held = [];
  }
  yield* held;
}

/** Returns the place of the last event; 0 if there is no log, as of a thread that has just been started. */
async function lastSeq(threads: Rye['threads'], id: string): Promise<number> {
  try {
    let last = 0;
    for await (const { seq } of threads.logs(id, { tail: 1 })) last = seq;
    return last;
  } catch (error) {
    if (error instanceof RyeError && error.code === 'thread_not_found') return 0;
    throw error;
  }
}

/** True for the event from which a thread is shown: the start of its last run, or of its last turn if it has ended. */
function isStart({ event_type: type }: LogEvent | UnknownEvent, isRunning: boolean): boolean {
  return (
    type === 'thread_started' || type === 'run_started' || (type === 'turn_started' && !isRunning)
  );
}

/** Returns the result of the thread that the session has ended with. */
async function resultOf(rye: Rye, id: string): Promise<ThreadResult> {
  const { chain, thread: first } = await rye.threads.show(id);
  const { thread, children, paths } = await rye.threads.show(chain.at(-1)?.thread_id ?? id);
  const { status, result, outputs, error, model, continuation_thread_id: successor } = thread;
  return {
    ...compact({
      outputs: outputs ?? undefined,
      error: error ?? undefined,
      continuation_thread_id: successor ?? undefined,
      parent_thread_id: first.parent_id ?? undefined,
    }),
    success: status === 'completed',
    thread_id: thread.thread_id,
    directive: thread.directive,
    status,
    result: result ?? '',
    cost: thread.cost,
    model: model ?? '',
    children: children.map(({ thread_id: child }) => child),
    paths,
  };
}
