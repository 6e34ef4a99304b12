import type { Rye } from '../../app/api/rye.ts';
import type {
  LogMark,
  StatsKey,
  ThreadDetails,
  ThreadTreeNode,
  UnverifiedPart,
} from '../../app/api/threads.ts';
import type { ActiveTurn, Delivery } from '../../core/delivery.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import { type CostedThread, isFinal, type ThreadRecord } from '../../core/thread.ts';
import {
  addFamilyCost,
  formatCost,
  formatSeconds,
  formatTokens,
  formatUsd,
} from '../../core/usage.ts';
import {
  type Context,
  choice,
  defineCommand,
  flag,
  integer,
  optionalArgument,
} from '../command.ts';
import type { Io } from '../io.ts';
import { canRedraw } from '../io.ts';
import {
  colorsOf,
  displayPath,
  formatTable,
  printDocument,
  printLine,
  printLines,
  printResult,
  resultText,
} from '../output.ts';
import { formatLogEvent, markMembers, warnUnverified } from '../render/log-line.ts';
import { drawThreadTree, type TreeStyle } from '../render/thread-tree.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';
import { eraseLines, neutralize, oneLine } from '../terminal-text.ts';

export const show = defineCommand({
  arguments: { id: THREAD },
  examples: ['rye threads show hello-7f3k'],
  run: async (call) => {
    const { details, mark } = await withRye(call, async ({ threads }) => {
      const id = await threads.resolveId(call.args.id);
      return { details: await threads.show(id), mark: await threads.mark(id) };
    });
    warnUnverified(mark, call.io);
    return printResult(call, { ...details, ...markMembers(mark) }, () =>
      threadLines(details, call.io),
    );
  },
});

function threadLines(details: ThreadDetails, io: Io): readonly string[] {
  const { thread, chain, children, paths, explanation } = details;
  // a thread that was handed off has no result; the session has
  const result = resultText(chain.at(-1) ?? thread);
  const lines: (readonly [string, string | null])[] = [
    ['thread', thread.thread_id],
    ['directive', thread.directive],
    ['status', explanation === null ? thread.status : `${thread.status} (${explanation})`],
    ['model', thread.model],
    ['created', thread.created_at],
    ['completed', thread.completed_at],
    ['cost', formatCost(thread.cost)],
    ['imported', describeOrigin(details.document?.imported_from)],
    ['active turn', describeTurn(details.active_turn)],
    ['parent', thread.parent_id],
    ['error', thread.error === null ? null : `${thread.error.message} [${thread.error.code}]`],
    ['hint', thread.error?.hint ?? null],
    ['chain', chain.length > 1 ? chain.map(({ thread_id }) => thread_id).join(' → ') : null],
    ['session', describeSession(chain)],
    ['files', displayPath(paths.thread, io)],
    ['transcript', displayPath(paths.transcript, io)],
    ['knowledge', displayPath(paths.knowledge, io)],
  ];
  return [
    ...lines.flatMap(([name, value]) => (value === null ? [] : [field(name, oneLine(value))])),
    ...details.unverified.map((part) => describeUnverified(thread, part)),
    ...children.map(describeChild),
    ...details.deliveries.map(describeDelivery),
    ...(result === '' ? [] : ['', neutralize(result).trimEnd()]),
  ];
}

/** Formats the state and the costs of a chain. */
function describeSession(chain: readonly CostedThread[]): string | null {
  const last = chain.at(-1);
  if (!last || chain.length === 1) return null;
  const cost = chain.map((link) => link.cost).reduce(addFamilyCost);
  return `${last.status}, ${formatCost(cost)} in ${chain.length} threads`;
}

/** Formats the session that a thread was imported from. Its cost is no part of the thread's own. */
function describeOrigin(origin: Origin | undefined): string | null {
  if (!origin) return null;
  const { format, file, title, started_at: start, ended_at: end, cost } = origin;
  return [
    `${format} session ${file}${title === undefined ? '' : ` (${title})`}`,
    ...(start === undefined ? [] : [`${start} to ${end ?? start}`]),
    ...(cost ? [formatCost(cost)] : []),
  ].join(', ');
}

type Origin = NonNullable<NonNullable<ThreadDetails['document']>['imported_from']>;

function field(name: string, value: string): string {
  return `${name.padEnd(11)} ${value}`;
}

function describeUnverified({ thread_id: id }: ThreadRecord, part: UnverifiedPart): string {
  const { bytes, file } = part;
  return field(
    'unverified',
    `${bytes} bytes in ${oneLine(file)}: rye threads logs ${id} --unverified`,
  );
}

/** Formats what decides whether a message can steer the active turn. After `valid until` it is unknown. */
function describeTurn(turn: ActiveTurn | null): string | null {
  if (turn === null) return null;
  const { active_run_id: id, active_run_kind: kind, risk_class: risk, steerable } = turn;
  const can = steerable === true && risk === 'read_only_low_risk' ? 'steerable' : 'not steerable';
  return `${id} ${kind}, ${risk}, ${can}, epoch ${turn.epoch}, observed ${turn.observed_at}, valid until ${turn.valid_until}`;
}

function describeDelivery({ seq, kind, source, state }: Delivery): string {
  return field('message', `${seq} ${kind} from ${oneLine(source)} ${state}`);
}

function describeChild(child: CostedThread): string {
  const label = child.label === undefined ? '' : `${oneLine(child.label)} `;
  const facts = `${child.status} ${formatUsd(child.cost.total.spend)}`;
  return field('child', `${child.thread_id} ${label}${facts}`);
}

export const logs = defineCommand({
  details: '--json prints one document; with --follow it prints one event per line.',
  arguments: { id: THREAD },
  options: {
    follow: flag('Stream new events until the current run ends', { short: 'f' }),
    text: flag('Human-readable output (default)'),
    tail: integer('N', 'The last N events', { short: 'n' }),
    since: integer('SEQ', 'Only events after SEQ'),
    unverified: flag('Only lines that no signature covers; they may be forged'),
  },
  examples: ['rye threads logs 7f3k --tail 20', 'rye threads logs 7f3k --follow'],
  run: async (call) => {
    const { args, options, io, global } = call;
    if (options.unverified) return await printUnverified(call, args.id);
    const { follow, tail, since } = options;
    const cancelled = follow ? io.cancellation() : undefined;
    const signal = cancelled && AbortSignal.any([cancelled, io.outputClosed]);
    const query = compact({ tail, since, follow, signal });
    const events: (LogEvent | UnknownEvent)[] = [];
    const { id, mark } = await withRye(call, async ({ threads }) => {
      const threadId = await threads.resolveId(args.id);
      for await (const event of threads.logs(threadId, query)) {
        if (!global.json) printLines(io, formatLogEvent(event));
        else if (follow) printLine(io, JSON.stringify(event));
        else events.push(event);
      }
      const found = await threads.mark(threadId);
      warnUnverified(found, io);
      return { id: threadId, mark: found };
    });
    if (global.json && !follow) {
      const document = { thread_id: id, events, total: events.length };
      printDocument(io, { success: true, ...document, ...markMembers(mark) });
    }
    return cancelled?.aborted === true ? EXIT.cancelled : EXIT.ok;
  },
});

/** Marks each line as unverified, so that it cannot be mistaken for the log. */
async function printUnverified(context: Context, idPart: string): Promise<ExitCode> {
  const { io, global } = context;
  await withRye(context, async ({ threads }) => {
    for await (const line of threads.unverified(await threads.resolveId(idPart))) {
      const { file, line: number, text: content } = line;
      if (global.json) printLine(io, JSON.stringify(line));
      else printLine(io, `unverified  ${file}:${number}  ${oneLine(content)}`);
    }
  });
  return EXIT.ok;
}

const DEFAULT_ROOTS = 20;
/** Maximum logs that one `rye threads tree` verifies. */
const MAX_MARKED = 50;

export const tree = defineCommand({
  arguments: { id: optionalArgument('Only this thread and its descendants') },
  options: {
    watch: flag('Redraw at each change until all threads have ended', { short: 'w' }),
    limit: integer('N', 'At most N roots (default: 20)'),
  },
  examples: ['rye threads tree', 'rye threads tree 7f3k --watch'],
  run: async (call) =>
    await withRye(call, async (rye) => {
      const { args, options, io } = call;
      const ids = args.id === undefined ? [undefined] : await sessionIds(rye, args.id);
      const limit = options.limit ?? DEFAULT_ROOTS;
      const read = async (): Promise<readonly ThreadTreeNode[]> =>
        (await Promise.all(ids.map(async (id) => await rye.children.tree(id))))
          .flat()
          .slice(0, limit);
      if (options.watch) return await watch(call, rye, read);
      const threads = await read();
      const marked = await unverifiedIn(rye, threads);
      for (const { mark } of marked) warnUnverified(mark, io);
      const unverified = marked.map(({ id: thread_id, mark }) => ({
        thread_id,
        ...markMembers(mark),
      }));
      return printResult(call, { threads, total: threads.length, unverified }, () =>
        drawThreadTree(threads, { ...styleOf(call), now: io.now() }),
      );
    }),
});

/** Returns the threads of a session, by the id of any. */
async function sessionIds({ threads }: Rye, idPart: string): Promise<readonly string[]> {
  const { chain } = await threads.show(await threads.resolveId(idPart));
  return chain.map(({ thread_id: id }) => id);
}

/** Returns the threads of a tree whose logs fail verification. Checks only the first {@link MAX_MARKED}. */
async function unverifiedIn(
  rye: Rye,
  threads: readonly ThreadTreeNode[],
): Promise<readonly { readonly id: string; readonly mark: LogMark }[]> {
  const found = [];
  for (const id of idsIn(threads).slice(0, MAX_MARKED)) {
    const mark = await rye.threads.mark(id);
    if (mark.verified === false) found.push({ id, mark });
  }
  return found;
}

function idsIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread, children }) => [thread.thread_id, ...idsIn(children)]);
}

function styleOf(context: Context): TreeStyle {
  const { stdout } = context.io;
  return {
    colors: colorsOf(stdout, context),
    ...(stdout.isTty ? { columns: stdout.columns - 1 } : {}),
  };
}

/**
 * Redraws at each change until no thread is open: in place on a terminal if it fits the screen, else below, with
 * `--json` one line each. The last drawing is complete.
 */
async function watch(
  context: Context,
  rye: Rye,
  read: () => Promise<readonly ThreadTreeNode[]>,
): Promise<ExitCode> {
  const { io, global } = context;
  const cancelled = io.cancellation();
  const signal = AbortSignal.any([cancelled, io.outputClosed]);
  const inPlace = canRedraw(io.stdout, io.env) && !global.json;
  let drawn: readonly string[] = [];
  let threads: readonly ThreadTreeNode[] = [];
  const linesNow = (isLast: boolean): readonly string[] => {
    if (global.json) return [JSON.stringify({ success: true, threads, total: threads.length })];
    const live = inPlace ? { now: io.now(), ...(isLast ? {} : { rows: io.stdout.rows - 1 }) } : {};
    return drawThreadTree(threads, { ...styleOf(context), ...live });
  };
  const draw = async (isLast = false): Promise<void> => {
    threads = await read();
    const lines = linesNow(isLast);
    if (lines.join('\n') === drawn.join('\n')) return;
    if (inPlace) io.stdout.write(eraseLines(drawn.length));
    printLines(io, lines);
    drawn = lines;
  };
  await draw();
  for (let open = openIn(threads); open.length > 0 && !signal.aborted; open = openIn(threads)) {
    await rye.children.wait(open, { any: true, signal, onLook: async () => await draw() });
    await draw();
  }
  await draw(true);
  return cancelled.aborted ? EXIT.cancelled : EXIT.ok;
}

/** Returns the threads to watch. Suspended threads are not among them: they wait for a person. */
function openIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread, children }) => [
    ...(isFinal(thread.status) || thread.status === 'suspended' ? [] : [thread.thread_id]),
    ...openIn(children),
  ]);
}

const STATS_KEYS = ['directive', 'model', 'day'] as const satisfies readonly StatsKey[];

export const stats = defineCommand({
  options: { by: choice('KEY', STATS_KEYS, 'Group by (default: directive)') },
  examples: ['rye threads stats', 'rye threads stats --by day --json'],
  run: async (call) => {
    const { by = 'directive' } = call.options;
    const found = await withRye(call, (rye) => rye.children.stats(by));
    return printResult(call, { by, stats: found, total: found.length }, () => {
      // a narrow terminal cuts off the last columns, so the least important ones are last
      const headings = `${by.toUpperCase()} SPEND TOKENS TIME TURNS THREADS OPEN COMPLETED ERROR CANCELLED`;
      const rows = found.map((row) => [
        row.key,
        formatUsd(row.spend),
        formatTokens(row.tokens),
        formatSeconds(row.elapsed_seconds),
        String(row.turns),
        String(row.threads),
        String(row.open),
        String(row.completed + row.continued),
        String(row.error),
        String(row.cancelled),
      ]);
      return formatTable(headings.split(' '), rows, call.io.stdout);
    });
  },
});
