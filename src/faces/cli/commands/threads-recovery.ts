import path from 'node:path';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { RecoveryReport, RetentionReport } from '../../../kernel/app/api/threads.ts';
import type { AcceptedRisk } from '../../../kernel/core/capability.ts';
import { EXIT, exitCodeOf, RyeError } from '../../../kernel/core/errors.ts';
import { compact, toText } from '../../../kernel/core/json.ts';
import { formatUsd } from '../../../kernel/core/usage.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import { argument, defineCommand, flag, list, optionalArgument, text } from '../command.ts';
import { readLimits, readValues } from '../input.ts';
import { count, printDocument, printLines } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';
import {
  exitCodeOfResult,
  OUTPUT_OPTIONS,
  outputModeOf,
  RAISE_LIMITS,
  resumeThread,
  showThread,
} from '../thread-run.ts';

export const resume = defineCommand({
  details:
    "Verifies the log and appends another run with the thread's plan, model and conversation, within the limits that it has left. A thread that was handed off continues in the last thread of its chain. Rules, hooks and permissions in force now apply where they are stricter; --refresh applies the rest too.",
  arguments: { id: THREAD },
  options: {
    message: text('TEXT', 'Message to the model', { short: 'm' }),
    from: text('ENTRY', 'Resume from this entry of the session instead of its head'),
    new: flag('Fork: run a copy as a new thread and leave this one as it is'),
    refresh: flag('Use the directive, permissions, model and limits as they are now'),
    acknowledge: list(
      'RISK',
      'With --refresh: allow a risk level that policy would otherwise block',
    ),
    limit: list('NAME=N', 'Limit of this run (default: what the thread has left)'),
    raiseLimits: RAISE_LIMITS,
    input: list('NAME=VALUE', 'A secret input, which rye does not store; with --refresh any input'),
    allowUnsigned: flag("Run the project's own unsigned items; marks the thread as unverified"),
    replay: text('FILE', 'Replay responses from FILE, if the thread started with --replay'),
    ...OUTPUT_OPTIONS,
  },
  examples: [
    'rye threads resume 2456 --message "Now in French."',
    'rye threads resume 2456 --from 3fa9 --limit turns=10',
    'rye threads resume 2456 --refresh',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const { message, from, refresh, allowUnsigned, replay } = options;
    const inputs = await readValues({ pairs: options.input, pairOption: '--input' }, call);
    const secrets = Object.fromEntries(
      Object.entries(inputs).map(([name, value]) => [name, toText(value ?? null)]),
    );
    const limits = readLimits(options.limit);
    // the refresh refuses an unknown risk
    const acknowledge = options.acknowledge as readonly AcceptedRisk[];
    const fork = options.new;
    const request = compact({
      message,
      from,
      limits,
      raiseLimits: options.raiseLimits || undefined,
      secrets,
      refresh,
      acknowledge,
      fork,
      allowUnsigned,
      replayFrom: replay === undefined ? undefined : path.resolve(io.cwd, replay),
    });
    const output = { mode: outputModeOf(call, options.outputFormat), isLive: !options.print };
    const result = await showThread(call, output, (subscriber) =>
      withRye(call, async (rye) => {
        const threadId = await rye.threads.resolveId(args.id);
        if (from !== undefined && !fork) await assertInLast(rye, threadId, from);
        return await rye.recovery.resume({ ...request, ...subscriber, threadId });
      }),
    );
    return exitCodeOfResult(result);
  },
});

/** Refuses an entry that only an earlier thread of the session has: the last one cannot continue from it. */
async function assertInLast(rye: Rye, id: string, entry: string): Promise<void> {
  const last = (await rye.threads.session(id)).at(-1) ?? id;
  const found = await rye.trees.locate(id, entry, { newest: true });
  if (found === last) return;
  throw new RyeError('entry_not_found', `entry ${entry} is in ${found}, which was handed off`, {
    hint: `Fork it: rye threads branch ${found} --at ${entry} --new --run`,
    details: { thread_id: found, entry },
  });
}

export const recover = defineCommand({
  details:
    'Repairs the log, answers open tool calls and settles the budget. The thread ends with an error and can be resumed; with recovery.mode: resume in coordination.yaml rye resumes it at once.',
  arguments: {
    id: optionalArgument('Only this thread (default: every crashed thread of the project)'),
  },
  options: {
    rebuild: flag(
      'Rebuild a damaged or forged thread.json from the signed log; keeps the old file',
    ),
  },
  examples: [
    'rye threads recover',
    'rye threads recover 2456 --json',
    'rye threads recover 2456 --rebuild',
  ],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { id } = args;
    const { rebuild } = options;
    if (rebuild && id === undefined) {
      throw new RyeError('usage', '--rebuild needs a thread ID', {
        hint: 'Run: rye threads recover ID --rebuild',
      });
    }
    const signal = io.cancellation();
    const report = await withRye(call, async ({ threads, recovery }) =>
      recovery.recover({
        signal,
        rebuild,
        ...(id === undefined ? {} : { threadId: rebuild ? id : await threads.resolveId(id) }),
      }),
    );
    const { recovered, failures, resumed } = report;
    const [failure] = failures;
    if (global.json) {
      printDocument(io, {
        success: failure === undefined,
        ...(failure === undefined ? {} : { error: failure.error }),
        threads: recovered,
        total: recovered.length,
        problems: failures,
        results: resumed,
      });
    } else printLines(io, recoveryLines(report));
    return failure === undefined ? EXIT.ok : exitCodeOf(failure.error.code);
  },
});

function recoveryLines({ recovered, failures, resumed }: RecoveryReport): readonly Shown[] {
  if (recovered.length === 0 && failures.length === 0) return [shown`No crashed threads`];
  return [
    ...recovered.map(
      ({ thread_id: id, status, action, reason, unverified_bytes: bytes, ...booked }) =>
        oneLine(
          `${id}  ${status}  ${action.replace('_', ' ')}: ${reason}${
            bytes === undefined ? '' : ` (${bytes} unverified bytes of its log set aside)`
          }${bookedText(booked)}`,
        ),
    ),
    ...resumed.map(({ thread_id: id, status }) => oneLine(`${id}  ${status}  resumed`)),
    ...failures.map(({ thread_id: id, error }) =>
      oneLine(`${id}  not recovered: ${error.message} [${error.code}]`),
    ),
  ];
}

const UNITS_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};
const DEFAULT_AGE = '30d';

export const gc = defineCommand({
  details:
    'You can still read, verify and resume them, but not undo their changes of files. Skips threads whose chain, parent or children are recent or still open.',
  options: {
    olderThan: text('AGE', 'Time since the end, such as 12h, 30d or 8w (default: 30d)'),
    dryRun: flag('Show what would be compressed and change nothing'),
  },
  examples: ['rye threads gc --dry-run', 'rye threads gc --older-than 7d'],
  run: async (call) => {
    const { options, io, global } = call;
    const { olderThan = DEFAULT_AGE, dryRun } = options;
    const olderThanMs = ageOf(olderThan);
    const report = await withRye(call, ({ recovery }) => recovery.collect({ olderThanMs, dryRun }));
    const [failure] = report.failures;
    if (global.json) {
      printDocument(io, {
        success: failure === undefined,
        ...(failure === undefined ? {} : { error: failure.error }),
        dry_run: dryRun,
        copies: report.copies,
        threads: report.archived,
        total: report.archived.length,
        problems: report.failures,
      });
    } else printLines(io, retentionLines(report, dryRun));
    return failure === undefined ? EXIT.ok : exitCodeOf(failure.error.code);
  },
});

function ageOf(age: string): number {
  const [, digits, unit = ''] = /^(\d{1,6})([smhdw])$/.exec(age) ?? [];
  const factor = UNITS_MS[unit];
  if (digits !== undefined && factor !== undefined) return Number(digits) * factor;
  throw new RyeError('invalid_input', `--older-than: invalid age ${JSON.stringify(age)}`, {
    hint: 'Use a whole number and s, m, h, d or w, such as 30d.',
  });
}

function sum(values: readonly (number | null)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

function copiesLine({ files, bytes }: RetentionReport['copies'], dryRun: boolean): Shown {
  const what = shown`${count(files, 'file')} kept for undos, ${bytes} bytes`;
  return dryRun ? shown`would remove ${what}` : shown`removed ${what}`;
}

function retentionLines(report: RetentionReport, dryRun: boolean): readonly Shown[] {
  const { archived, copies, failures } = report;
  const before = sum(archived.map(({ bytes_before: bytes }) => bytes));
  const after = sum(archived.map(({ bytes_after: bytes }) => bytes));
  const size = dryRun ? shown`${before} bytes` : shown`${before} to ${after} bytes`;
  const total = count(archived.length, 'log');
  return [
    ...archived.map(({ thread_id: id, completed_at: end }) => oneLine(`${id}  ended ${end}`)),
    dryRun ? shown`would compress ${total}, ${size}` : shown`compressed ${total}, ${size}`,
    ...(copies.files === 0 ? [] : [copiesLine(copies, dryRun)]),
    ...failures.map(({ thread_id: id, error }) =>
      oneLine(`${id}  skipped: ${error.message} [${error.code}]`),
    ),
  ];
}

function bookedText({
  estimated_spend_usd: usd = 0,
}: Partial<RecoveryReport['recovered'][number]>): string {
  return usd === 0 ? '' : `; booked ≤ ${formatUsd(usd)} for the model call that it cut`;
}

/** Resumes a waiting thread in the background process that a decision or the end of a child starts. */
const resumeRun = defineCommand({
  arguments: { epoch: argument('Epoch of the run that waits'), id: argument('Thread ID') },
  examples: [],
  run: async (call) => {
    const { epoch, id: threadId } = call.args;
    return await withRye(call, (rye) =>
      resumeThread(call, rye, { threadId, epoch: Number(epoch) }),
    );
  },
});

export { resumeRun as '__resume-run' };
