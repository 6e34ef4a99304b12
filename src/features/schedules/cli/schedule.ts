import {
  argument,
  type Context,
  choice,
  defineCommand,
  defineGroup,
  flag,
  integer,
  list as listOption,
  number,
  optionalArgument,
  text,
  type ValuesOf,
} from '../../../faces/cli/command.ts';
import { readLimits, readSchema, readValues } from '../../../faces/cli/input.ts';
import {
  formatTable,
  printDocument,
  printLine,
  printResult,
  watchLine,
} from '../../../faces/cli/output.ts';
import { withRye } from '../../../faces/cli/session.ts';
import { RAISE_LIMITS } from '../../../faces/cli/thread-run.ts';
import { linesOf, oneLine, shown, visible } from '../../../faces/ui/visible.ts';
import type {
  ListedSchedule,
  NewSchedule,
  ScheduledRun,
  ServeEvent,
} from '../../../kernel/app/api/schedules.ts';
import { MISSED, TIMERS } from '../../../kernel/app/api/schedules.ts';
import type { AcceptedRisk } from '../../../kernel/core/capability.ts';
import { EXIT, RyeError } from '../../../kernel/core/errors.ts';
import { ISOLATION_RESULTS, ISOLATIONS } from '../../../kernel/core/isolation.ts';
import { compact } from '../../../kernel/core/json.ts';
import { LIMIT_NAMES } from '../../../kernel/core/limits.ts';

const ADD_OPTIONS = {
  cron: text('CRON', "Five fields, or six with seconds before them, such as '0 3 * * *'"),
  tz: text('ZONE', 'Time zone, such as Europe/Berlin (default: UTC)'),
  missed: choice(
    'POLICY',
    MISSED,
    'Times that nothing was there for: drop them (default), make up the last, or all',
  ),
  overlap: flag('Fire although a thread of the schedule has not ended'),
  print: choice('TIMER', TIMERS, 'Print what a timer of the system needs; write nothing'),
  input: listOption('NAME=VALUE', 'An input; NAME=@FILE reads a file now, NAME=- stdin'),
  inputs: text('JSON', 'All inputs as JSON, @FILE, or - for stdin'),
  model: text('MODEL', 'Model ID or tier'),
  provider: text('PROVIDER', 'Provider of the model'),
  limit: listOption('NAME=N', `A limit: ${LIMIT_NAMES.join(', ')}`),
  maxTurns: integer('N', 'Same as --limit turns=N'),
  maxBudgetUsd: number('USD', 'Same as --limit spend=USD'),
  raiseLimits: RAISE_LIMITS,
  label: text('TEXT', 'Name of the threads in lists'),
  acknowledge: listOption(
    'RISK',
    'Allow a risk that policy would otherwise block: elevated, or elevated:rye/bash for that tool',
  ),
  allowUnpriced: flag('Allow models without a known price (disables the spend limit)'),
  jsonSchema: text('SCHEMA', 'JSON Schema that the outputs must match, as JSON or a file'),
  isolation: choice('KIND', ISOLATIONS, 'Work in a separate git worktree, from the last commit'),
  isolationResult: choice(
    'RESULT',
    ISOLATION_RESULTS,
    'Changes of the worktree: leave a patch (default) or merge them',
  ),
} as const;

const NAME = argument('Name of the schedule');

const add = defineCommand({
  name: 'add',
  summary: 'Run a directive at set times',
  details:
    'The schedule is kept in the signed .ai/config/schedules.yaml. `rye schedule serve` fires it. With --print, a timer of the system runs the directive instead.',
  arguments: {
    name: NAME,
    type: argument('The word `directive`, or the ID', { item: { type: 'directive' } }),
    id: optionalArgument('ID of the directive, such as reports/weekly', {
      item: { type: 'directive' },
    }),
  },
  options: ADD_OPTIONS,
  examples: [
    "rye schedule add nightly --cron '0 3 * * *' --tz UTC directive reports/weekly",
    "rye schedule add hourly --cron '0 * * * *' --missed once hello --input who=Ada",
    "rye schedule add nightly --cron '0 3 * * *' --print systemd directive reports/weekly",
  ],
  run: async (call) => {
    const { args, options } = call;
    const schedule: NewSchedule = compact({
      name: args.name,
      cron: requiredCron(options.cron),
      timezone: options.tz,
      missed: options.missed,
      overlap: options.overlap || undefined,
      run: await runOf(directiveOf(args), call),
    });
    const { print: timer } = options;
    if (timer !== undefined) {
      const printed = await withRye(call, (rye) => rye.schedules.timer(schedule, timer));
      return printResult(call, { timer, text: printed }, () => linesOf(visible(printed)));
    }
    const added = await withRye(call, (rye) => rye.schedules.add(schedule));
    return printResult(call, { schedule: added }, () => [
      shown`added ${oneLine(added.name)}: next at ${oneLine(nextOf(added))}`,
    ]);
  },
});

/** Returns the ID after the word `directive`, or in its place. */
function directiveOf({
  type,
  id,
}: {
  readonly type: string;
  readonly id: string | undefined;
}): string {
  const isDirective = type === 'directive' || type === 'directives';
  if (id === undefined && !isDirective) return type;
  if (id !== undefined && isDirective) return id;
  throw new RyeError(
    'usage',
    id === undefined ? 'missing argument <id>' : `a schedule runs a directive, not a ${type}`,
    { hint: 'List the directives with: rye list directive' },
  );
}

function requiredCron(cron: string | undefined): string {
  if (cron !== undefined) return cron;
  throw new RyeError('usage', 'missing option --cron', {
    hint: "Pass the times, such as --cron '0 3 * * *' for 03:00 each day.",
  });
}

async function runOf(
  directiveId: string,
  call: Context & { readonly options: ValuesOf<typeof ADD_OPTIONS> },
): Promise<ScheduledRun> {
  const { options, io } = call;
  const { isolation: kind, isolationResult: result } = options;
  if (kind === undefined && result !== undefined)
    throw new RyeError('usage', '--isolation-result needs --isolation worktree');
  return compact({
    directiveId,
    inputs: await readValues(
      {
        pairs: options.input,
        pairOption: '--input',
        document: options.inputs,
        documentOption: '--inputs',
      },
      call,
    ),
    model: options.model,
    provider: options.provider,
    limits: readLimits(options.limit, options.maxTurns, options.maxBudgetUsd),
    raiseLimits: options.raiseLimits || undefined,
    label: options.label,
    // the plan refuses an unknown risk
    acknowledge: options.acknowledge as readonly AcceptedRisk[],
    allowUnpriced: options.allowUnpriced || undefined,
    isolation: kind && compact({ kind, result }),
    outputSchema: await readSchema(options.jsonSchema, '--json-schema', io),
  });
}

const list = defineCommand({
  name: 'list',
  summary: 'List schedules with their next time and last thread',
  examples: ['rye schedule list', 'rye schedule list --json'],
  run: async (call) => {
    const schedules = await withRye(call, (rye) => rye.schedules.list());
    return printResult(call, { schedules, total: schedules.length }, () =>
      schedules.length === 0
        ? [shown`No schedules. Add one: rye schedule add NAME --cron '0 3 * * *' directive ID`]
        : formatTable(
            ['NAME', 'CRON', 'NEXT', 'DIRECTIVE', 'LAST'],
            schedules.map((one) => [one.name, one.cron, nextOf(one), one.directive, lastOf(one)]),
            call.io.stdout,
            ['DIRECTIVE'],
          ),
    );
  },
});

function nextOf({ paused, next_local: next, timezone }: ListedSchedule): string {
  if (paused) return 'paused';
  return next === null ? 'never' : `${next} ${timezone}`;
}

function lastOf({ last }: ListedSchedule): string {
  if (last === null) return '-';
  if (last.thread_id === null) return `failed: ${last.error?.code ?? 'unknown'}`;
  return `${last.thread_id} (${last.status ?? 'unknown'})`;
}

const pause = defineCommand({
  name: 'pause',
  summary: 'Keep a schedule from firing',
  arguments: { name: NAME },
  examples: ['rye schedule pause nightly'],
  run: async (call) => {
    const schedule = await withRye(call, (rye) => rye.schedules.pause(call.args.name));
    return printResult(call, { schedule }, () => [shown`paused ${oneLine(schedule.name)}`]);
  },
});

const resume = defineCommand({
  name: 'resume',
  summary: 'Let a paused schedule fire again',
  arguments: { name: NAME },
  examples: ['rye schedule resume nightly'],
  run: async (call) => {
    const schedule = await withRye(call, (rye) => rye.schedules.resume(call.args.name));
    return printResult(call, { schedule }, () => [
      shown`resumed ${oneLine(schedule.name)}: next at ${oneLine(nextOf(schedule))}`,
    ]);
  },
});

const run = defineCommand({
  name: 'run',
  summary: 'Fire a schedule now, apart from its times',
  arguments: { name: NAME },
  examples: ['rye schedule run nightly'],
  run: async (call) => {
    const launched = await withRye(call, (rye) => rye.schedules.run(call.args.name));
    const { thread_id: id } = launched;
    return printResult(call, launched, () => [shown`started ${oneLine(id)}`, watchLine(id)]);
  },
});

const remove = defineCommand({
  name: 'remove',
  summary: 'Remove a schedule; its threads stay',
  arguments: { name: NAME },
  examples: ['rye schedule remove nightly'],
  run: async (call) => {
    const schedule = await withRye(call, (rye) => rye.schedules.remove(call.args.name));
    return printResult(call, { schedule }, () => [shown`removed ${oneLine(schedule.name)}`]);
  },
});

const serve = defineCommand({
  name: 'serve',
  summary: 'Fire the schedules of the project until Ctrl-C; threads continue',
  details:
    'Prints a line for each firing. With --json the lines go to stderr, and one document follows at the end.',
  examples: ['rye schedule serve'],
  run: async (call) => {
    const { io, global } = call;
    const signal = io.cancellation();
    const counts = { fired: 0, skipped: 0, missed: 0, failed: 0 };
    await withRye(call, (rye) =>
      rye.schedules.serve({
        signal,
        onEvent: (event) => {
          if (event.event in counts) counts[event.event as keyof typeof counts] += 1;
          const line = oneLine(eventLine(event));
          const isProblem = event.event === 'failed' || event.event === 'refused';
          if (!isProblem && !global.json) printLine(io, line);
          else if (isProblem || !global.quiet) io.stderr.write(shown`rye: ${line}\n`);
        },
      }),
    );
    if (global.json) printDocument(io, { success: true, ...counts });
    return EXIT.ok;
  },
});

function eventLine(event: ServeEvent): string {
  switch (event.event) {
    case 'serving':
      return `serving ${event.schedules} schedule${event.schedules === 1 ? '' : 's'}`;
    case 'fired':
      return `${event.schedule} ${event.at} fired ${event.thread_id}${event.status === 'created' ? ' (queued)' : ''}`;
    case 'skipped':
      return `${event.schedule} ${event.at} skipped: ${unendedOf(event)}`;
    case 'waiting':
      return `${event.schedule} ${event.at} waits: ${unendedOf(event)}`;
    case 'missed':
      return event.at === null
        ? `${event.schedule} dropped all missed times but the newest 1,000`
        : `${event.schedule} dropped ${event.more ? 'more than ' : ''}${event.count} missed, the last ${event.at}`;
    case 'failed':
      return `${event.schedule} ${event.at} failed: ${problem(event.error)}`;
    case 'refused':
      return `no schedule fires: ${problem(event.error)}`;
    default:
      return event satisfies never;
  }
}

function unendedOf({
  thread_id: id,
  status,
}: Extract<ServeEvent, { event: 'skipped' | 'waiting' }>): string {
  return status === 'suspended' ? `${id} is suspended` : `${id} still runs`;
}

function problem({
  message,
  code,
  hint,
}: Extract<ServeEvent, { event: 'refused' }>['error']): string {
  return `${message} [${code}]${hint === undefined ? '' : `. ${hint}`}`;
}

export const schedule = defineGroup({
  examples: [
    "rye schedule add nightly --cron '0 3 * * *' --tz UTC directive reports/weekly",
    'rye schedule serve',
  ],
  defaultCommand: 'list',
  commands: [add, list, pause, resume, run, remove, serve],
});
