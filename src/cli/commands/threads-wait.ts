import type { Rye } from '../../app/api/rye.ts';
import type { WaitReport } from '../../app/api/threads.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { formatUsd } from '../../core/usage.ts';
import { flagOption, type Invocation, numberOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { canRedraw, formatTable, printDocument } from '../output.ts';
import { createWaitLine } from '../render/wait-line.ts';
import { withRye } from '../session.ts';

/** `rye threads wait <id>...`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const { args, global } = invocation;
  if (args.length === 0) {
    throw new RyeError('usage', 'no thread to wait for is named', {
      hint: 'Name one or more: rye threads wait <id>... Running ones: rye threads --active',
    });
  }
  const signal = io.cancellation();
  const report = await withRye(invocation, io, async (rye) => {
    const ids: string[] = [];
    for (const part of args) ids.push(await rye.threads.resolveId(part));
    return await wait(rye, ids, { invocation, io, signal });
  });
  const error = failureOf(report);
  if (global.json) {
    printDocument(io, { ...report, ...(error ? { error } : {}), total: report.threads.length });
  } else {
    const rows = report.threads.map((thread) => [
      thread.thread_id === thread.final_thread_id
        ? thread.thread_id
        : `${thread.thread_id} → ${thread.final_thread_id}`,
      thread.status,
      formatUsd(thread.cost?.spend ?? 0),
      thread.error?.message ?? thread.result,
    ]);
    io.stdout.write(formatTable(['THREAD', 'STATUS', 'SPEND', 'RESULT'], rows, io.stdout));
    if (report.timed_out && !signal.aborted && error)
      io.stderr.write(`rye: ${error.message} [${error.code}]\nhint: ${error.hint ?? ''}\n`);
  }
  if (signal.aborted) return EXIT.cancelled;
  if (report.timed_out) return EXIT.limit;
  return report.success ? EXIT.ok : EXIT.failed;
}

interface WaitParts {
  readonly invocation: Invocation;
  readonly io: Io;
  readonly signal: AbortSignal;
}

async function wait(
  rye: Rye,
  ids: readonly string[],
  { invocation, io, signal }: WaitParts,
): Promise<WaitReport> {
  const options = {
    any: flagOption(invocation, 'any'),
    timeoutSeconds: numberOption(invocation, 'timeout'),
    signal,
  };
  if (invocation.global.quiet || invocation.global.json || !canRedraw(io.stderr, io.env)) {
    return await rye.children.wait(ids, options);
  }
  const line = createWaitLine(rye, ids, io);
  try {
    return await rye.children.wait(ids, { ...options, onEnd: line.ended, onLook: line.draw });
  } finally {
    line.hide();
  }
}

function failureOf({ success, timed_out, threads }: WaitReport): RyeError | undefined {
  if (success) return undefined;
  if (timed_out) {
    const open = threads.filter(({ done }) => !done).length;
    return new RyeError(
      'wait_timeout',
      `${open} of ${threads.length} threads had not ended in time`,
      {
        hint: 'They go on. Wait again, or see them: rye threads tree',
      },
    );
  }
  const failed = threads.filter(({ status }) => status !== 'completed');
  return new RyeError(
    'thread_error',
    `${failed.length} of ${threads.length} threads did not complete`,
  );
}
