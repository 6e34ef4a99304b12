import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { WaitReport } from '../../../kernel/app/api/threads.ts';
import { DELIVERY_MODES, type DeliveryReport } from '../../../kernel/core/delivery.ts';
import { EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import { describeChanges } from '../../../kernel/core/isolation.ts';
import { compact } from '../../../kernel/core/json.ts';
import { formatSpend } from '../../../kernel/core/usage.ts';
import { canRedraw, type Sink } from '../../ui/io.ts';
import { workOf } from '../../ui/render/status-mark.ts';
import { createWaitLine } from '../../ui/render/tree-progress.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import {
  type Argument,
  argument,
  type Context,
  choice,
  defineCommand,
  flag,
  integer,
  number,
  text,
  type ValuesOf,
} from '../command.ts';
import { failureText } from '../failure.ts';
import { readTextSource } from '../input.ts';
import { formatTable, printDocument, printLines, printResult, resultText } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

const THREAD_IDS: Argument<readonly string[]> = {
  name: 'id...',
  description: THREAD.description,
  isThread: true,
  read: (words) => words,
};

export const wait = defineCommand({
  details:
    'Follows continuations. Exits with 0 only if every thread completed, and with 5 on a timeout.',
  arguments: { ids: THREAD_IDS },
  options: {
    any: flag('Return when one of them has ended'),
    timeout: number('SECONDS', 'Wait at most this long'),
    approvals: flag('Also wait while people decide; then resume threads of your key'),
  },
  examples: [
    'rye threads wait hello-7f3k',
    'rye threads wait 7f3k 2m9x --any --timeout 60 --json',
    'rye threads wait release-7f3k --approvals',
  ],
  run: async (call) => {
    const { args, options, io, global } = call;
    const signal = io.cancellation();
    const report = await withRye(call, async (rye) => {
      const ids: string[] = [];
      for (const part of args.ids) ids.push(await rye.threads.resolveId(part));
      const { any, timeout: timeoutSeconds, approvals } = options;
      if (timeoutSeconds !== undefined && timeoutSeconds < 0) {
        throw new RyeError('usage', `--timeout: expected seconds ≥ 0, got ${timeoutSeconds}`);
      }
      const request = { any, timeoutSeconds, approvals, signal };
      return await waitVisibly(call, rye, ids, request);
    });
    const error = waitError(report);
    if (global.json) {
      printDocument(io, compact({ ...report, error, total: report.threads.length }));
    } else {
      printLines(io, waitTable(report, io.stdout));
      printLines(io, changesLines(report));
      if (report.timed_out && !signal.aborted && error) io.stderr.write(failureText(error));
    }
    if (signal.aborted) return EXIT.cancelled;
    if (report.timed_out) return EXIT.limit;
    return report.success ? EXIT.ok : EXIT.failed;
  },
});

async function waitVisibly(
  { io, global }: Context,
  rye: Rye,
  ids: readonly string[],
  options: Parameters<Rye['children']['wait']>[1],
): Promise<WaitReport> {
  if (global.quiet || global.json || !canRedraw(io.stderr, io.env)) {
    return await rye.children.wait(ids, options);
  }
  const line = createWaitLine(rye, ids, io);
  try {
    return await rye.children.wait(ids, { ...options, onEnd: line.ended, onLook: line.draw });
  } finally {
    line.hide();
  }
}

function waitTable({ threads }: WaitReport, sink: Sink): readonly Shown[] {
  const isLabeled = threads.some(({ label }) => label !== undefined);
  const rows = threads.map((thread) => [
    thread.thread_id === thread.final_thread_id
      ? thread.thread_id
      : `${thread.thread_id} → ${thread.final_thread_id}`,
    thread.status,
    ...(isLabeled ? [workOf(thread)] : []),
    formatSpend(thread.cost ?? { spend: 0 }),
    thread.error?.message ?? resultText(thread),
  ]);
  const headings = ['THREAD', 'STATUS', ...(isLabeled ? ['LABEL'] : []), 'SPEND', 'RESULT'];
  return formatTable(headings, rows, sink);
}

function changesLines({ threads }: WaitReport): readonly Shown[] {
  return threads.flatMap(({ final_thread_id: id, changes }) => {
    const line = changes ? describeChanges(changes) : '';
    return line === '' ? [] : [oneLine(`${id}: ${line}`)];
  });
}

function waitError({ success, timed_out, threads }: WaitReport): RyeError | undefined {
  if (success) return undefined;
  const of = `of ${threads.length} threads`;
  if (timed_out) {
    const open = threads.filter(({ done }) => !done).length;
    return new RyeError('wait_timeout', `timed out: ${open} ${of} have not ended`, {
      hint: 'They are still running. Wait again, or watch them: rye threads tree --watch',
    });
  }
  const failed = threads.filter(({ status }) => status !== 'completed').length;
  return new RyeError('thread_error', `${failed} ${of} did not complete`);
}

const STOP_OPTIONS = {
  tree: flag('Also stop all its descendants, regardless of child_policy'),
  reason: text('TEXT', 'Reason, for the log and the result'),
} as const;

function stopOptions({ tree, reason }: ValuesOf<typeof STOP_OPTIONS>): {
  readonly tree: boolean;
  readonly reason?: string;
} {
  return compact({ tree, reason: reason || undefined });
}

export const cancel = defineCommand({
  details: "The thread's process stops its work and finalizes the thread as cancelled.",
  arguments: { id: THREAD },
  options: STOP_OPTIONS,
  examples: ['rye threads cancel 7f3k --tree --reason "wrong folder"'],
  run: async (call) => {
    const { thread_id, threads } = await withRye(call, async (rye) => {
      const id = await rye.threads.resolveId(call.args.id);
      return { thread_id: id, threads: await rye.children.cancel(id, stopOptions(call.options)) };
    });
    return printResult(call, { thread_id, threads, total: threads.length }, () =>
      threads.length === 0
        ? [oneLine(`${thread_id} has already ended`)]
        : threads.map((id) => oneLine(`cancelling ${id}`)),
    );
  },
});

export { cancel as stop };

export const kill = defineCommand({
  details: 'Sends SIGTERM, and SIGKILL after three seconds. The thread is finalized as cancelled.',
  arguments: { id: THREAD },
  options: STOP_OPTIONS,
  examples: ['rye threads kill 7f3k'],
  run: async (call) => {
    const { thread_id, threads } = await withRye(call, async (rye) => {
      const id = await rye.threads.resolveId(call.args.id);
      return { thread_id: id, threads: await rye.children.kill(id, stopOptions(call.options)) };
    });
    return printResult(call, { thread_id, threads, total: threads.length }, () =>
      threads.length === 0
        ? [oneLine(`${thread_id} has already ended`)]
        : threads.map(({ thread_id: id, status, pid }) =>
            oneLine(`${status} ${id}${pid === null ? '' : ` (process ${pid})`}`),
          ),
    );
  },
});

export const steer = defineCommand({
  details:
    'The model of a running thread sees the message before its next call, or with --mode idle or follow-up when it has finished. Any other thread gets it when you resume it.',
  arguments: { id: THREAD, message: argument('The message, or - for stdin') },
  options: { mode: choice('MODE', DELIVERY_MODES, 'When to deliver it (default: auto)') },
  examples: [
    "rye threads steer hello-7f3k 'Use metric units'",
    "rye threads steer 7f3k 'Then write a summary' --mode follow-up",
    'git diff | rye threads steer 7f3k -',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const { message: source } = args;
    const message = source === '-' ? await readTextSource(source, '<message>', io) : source;
    // a tool of a thread sends in the name of that thread, not of a person
    const from = io.env['RYE_PARENT_THREAD_ID'] || undefined;
    const { delivery, outlook } = await withRye(call, async ({ threads, deliveries }) =>
      deliveries.send(
        await threads.resolveId(args.id),
        message,
        compact({ mode: options.mode, from }),
      ),
    );
    return printResult(call, { delivery, outlook }, () => [
      shown`Message ${delivery.seq} queued; ${oneLine(outlook)}`,
    ]);
  },
});

const RESOLUTIONS = ['delivered', 'dropped', 'retry'] as const;

export const deliveries = defineCommand({
  details:
    'A message is manual if the model may already have acted on it: settle it with --resolve. --json adds all attempts and decisions. Recovers a crashed thread first.',
  arguments: { id: THREAD },
  options: {
    resolve: integer('N', 'Resolve message N'),
    as: choice('RESOLUTION', RESOLUTIONS, 'Outcome of message N; retry sends it as a new one'),
  },
  examples: ['rye threads deliveries 7f3k', 'rye threads deliveries 7f3k --resolve 3 --as retry'],
  run: async (call) => {
    const { args, options, io } = call;
    const { resolve: seq } = options;
    if (seq !== undefined) return await resolveDelivery(call, args.id, seq, options.as);
    const found = await withRye(call, async (rye) => {
      const session = await rye.threads.session(await rye.threads.resolveId(args.id));
      const lists = await Promise.all(session.map((id) => rye.deliveries.list(id)));
      return lists.flat();
    });
    return printResult(call, { deliveries: found, total: found.length }, () => {
      const headings = ['N', 'KIND', 'FROM', 'STATUS', 'REASON', 'TEXT'];
      return formatTable(headings, found.map(deliveryRow), io.stdout);
    });
  },
});

function deliveryRow(delivery: DeliveryReport): readonly string[] {
  const { seq, kind, source, state, close_reason, text: message, decisions } = delivery;
  const isAccepted = state === 'queued' && delivery.entry_id !== null;
  return [
    String(seq),
    kind,
    source,
    isAccepted ? 'accepted' : state,
    close_reason ?? decisions.at(-1)?.reason ?? '',
    message,
  ];
}

/** Returns the thread of a session that has a delivery, or else the last one. */
async function threadOfDelivery(rye: Rye, idPart: string, seq: number): Promise<string> {
  const session = await rye.threads.session(await rye.threads.resolveId(idPart));
  for (const id of session) {
    const listed = await rye.deliveries.list(id);
    if (listed.some((delivery) => delivery.seq === seq)) return id;
  }
  return session.at(-1) ?? idPart;
}

async function resolveDelivery(
  context: Context,
  idPart: string,
  seq: number,
  as: (typeof RESOLUTIONS)[number] | undefined,
): Promise<ExitCode> {
  if (as === undefined) {
    throw new RyeError('usage', '--resolve needs --as', {
      hint: `Add --as ${RESOLUTIONS.join(', or --as ')}.`,
    });
  }
  const delivery = await withRye(context, async (rye) =>
    rye.deliveries.resolve(await threadOfDelivery(rye, idPart, seq), seq, as),
  );
  return printResult(context, { delivery }, () => [
    as === 'retry'
      ? shown`Message ${seq} queued again as message ${delivery.seq}`
      : shown`Message ${seq} ${as}`,
  ]);
}
