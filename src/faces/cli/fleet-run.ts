import { SOURCE_CHOICES } from '../../kernel/app/api/fleet.ts';
import type { ExecuteDirectiveRequest } from '../../kernel/app/presets.ts';
import { EXIT, type ExitCode, RyeError } from '../../kernel/core/errors.ts';
import { compact } from '../../kernel/core/json.ts';
import type { ThreadResult } from '../../kernel/core/thread.ts';
import { oneLine, shown } from '../ui/visible.ts';
import { type Context, choice, flag, integer, text, type ValuesOf } from './command.ts';
import { printDocument, printLines, printText, resultText, watchLine } from './output.ts';
import { withRye } from './session.ts';
import { exitCodeOfResult, type outputModeOf } from './thread-run.ts';

const SOURCE_HELP =
  'With --fleet: files to work on: the last commit (git, or bundle without a remote), or none (default: auto)';

/** The options with which `rye run` sends a thread to a fleet. */
export const FLEET_OPTIONS = {
  fleet: flag('Run on a worker of the fleet; print the thread ID and exit'),
  queue: text('NAME', 'With --fleet: queue of the fleet (default: default)'),
  priority: integer('N', 'With --fleet: 0 starts first, 9 last (default: 5)'),
  partition: text('NAME', 'With --fleet: tenant or account that limits per partition count'),
  at: text('TIME', 'With --fleet: start not before this time, such as 2026-12-01T03:00Z'),
  source: choice('KIND', SOURCE_CHOICES, SOURCE_HELP),
  sourceUrl: text('URL', 'With --fleet: repository from which workers fetch the last commit'),
  allowDirty: flag('With --fleet: send the last commit although files differ from it'),
  wait: flag('With --fleet: wait for the end, and print the result'),
} as const;

type FleetOptions = ValuesOf<typeof FLEET_OPTIONS>;

/** Queues a thread for a worker and, with `--wait`, prints its result. */
export async function runOnFleet(
  call: Context & { readonly options: FleetOptions },
  request: ExecuteDirectiveRequest,
  mode: ReturnType<typeof outputModeOf>,
): Promise<ExitCode> {
  const { io, options } = call;
  const { queue, priority, partition, at, source, sourceUrl } = options;
  const allowDirty = options.allowDirty || undefined;
  const isText = mode === 'text';
  return await withRye(call, async (rye) => {
    const launched = await rye.fleet.submit(
      request,
      compact({ queue, priority, partition, at, source, sourceUrl, allowDirty }),
    );
    const { thread_id: id } = launched;
    if (!options.wait) {
      if (isText && io.stdout.isTty)
        printLines(io, [oneLine(`${id} is queued for the fleet`), watchLine(id)]);
      else printDocument(io, { success: true, ...launched });
      return EXIT.ok;
    }
    if (isText) io.stderr.write(shown`${oneLine(id)} is queued\n`);
    const signal = io.cancellation();
    const { threads } = await rye.children.wait([id], { signal });
    const [thread] = threads;
    if (signal.aborted || thread === undefined) {
      const message = `the wait was interrupted; ${id} still runs`;
      const hint = `Cancel it: rye threads cancel ${id}`;
      if (isText) io.stderr.write(shown`${oneLine(message)}\nhint: ${oneLine(hint)}\n`);
      else {
        const error = { code: 'cancelled', message, hint };
        printDocument(io, { success: false, thread_id: id, error });
      }
      return EXIT.cancelled;
    }
    const { done: _done, final_thread_id: last, ...end } = thread;
    const success = thread.status === 'completed';
    const result = { success, ...end, ...(last === id ? {} : { continuation_thread_id: last }) };
    if (isText) {
      if (success) printText(io, `${resultText(result)}\n`);
      else
        io.stderr.write(
          shown`${oneLine(id)} ${thread.status}: ${oneLine(thread.error?.message ?? '')}\n`,
        );
    } else printDocument(io, result);
    return exitCodeOfResult(result as unknown as ThreadResult);
  });
}

const OF_FLEET = [
  'queue',
  'priority',
  'partition',
  'at',
  'source',
  'sourceUrl',
  'allowDirty',
  'wait',
] as const;

/** Refuses options that mean nothing for a thread that runs here. */
export function assertOnlyWithFleet(options: FleetOptions): void {
  const name = OF_FLEET.find((one) => options[one] !== undefined && options[one] !== false);
  if (name === undefined) return;
  throw new RyeError('usage', `${optionName(name)} needs --fleet`, {
    hint: 'Add --fleet to run the directive on a worker, or remove the option.',
  });
}

/** Returns `--dry-run` for `dryRun`. */
export function optionName(key: string): string {
  return `--${key.replaceAll(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;
}

/** The key of a run without a signing key leaves its process in no way. */
export function needsKey(how: string): RyeError {
  return new RyeError(
    'usage',
    `--unsigned-record keeps its key in this process: ${how} needs one`,
    {
      hint: `Remove ${how}, or run where there is a signing key.`,
    },
  );
}
