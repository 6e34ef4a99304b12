import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { LogMark, ThreadTreeNode } from '../../../kernel/app/api/threads.ts';
import { EXIT, type ExitCode } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { isFinal } from '../../../kernel/core/thread.ts';
import { canRedraw } from '../../ui/io.ts';
import { markMembers, warnUnverified } from '../../ui/render/log-line.ts';
import { drawThreadTree, type TreeStyle } from '../../ui/render/thread-tree.ts';
import { treeProgress } from '../../ui/render/tree-progress.ts';
import { eraseLines } from '../../ui/terminal-text.ts';
import { jsonText, oneLine, type Shown } from '../../ui/visible.ts';
import { type Context, defineCommand, flag, integer, optionalArgument } from '../command.ts';
import { colorsOf, printLine, printLines, printResult } from '../output.ts';
import { withRye } from '../session.ts';

const DEFAULT_ROOTS = 20;
/** Maximum logs that one `rye threads tree` verifies. */
const MAX_MARKED = 50;

export const tree = defineCommand({
  details:
    'Without an ID: the newest threads, one line each, with the children of the last one and all that run. ✓ completed, ✗ failed, ● running, ○ queued, ‖ suspended, ■ cancelled.',
  arguments: { id: optionalArgument('Only this thread and its descendants') },
  options: {
    watch: flag('Redraw at each change until the thread has ended, or without an ID all threads', {
      short: 'w',
    }),
    limit: integer('N', 'At most N roots (default: 20)'),
  },
  examples: ['rye threads tree', 'rye threads tree 7f3k --watch'],
  run: async (call) =>
    await withRye(call, async (rye) => {
      const { args, options, io } = call;
      const isList = args.id === undefined;
      const limit = options.limit ?? (isList ? DEFAULT_ROOTS : undefined);
      const all = await reader(rye, args.id, limit);
      const read = async (): Promise<readonly ThreadTreeNode[]> => (await all()).slice(0, limit);
      const style = { ...styleOf(call), isList };
      if (options.watch) return await watch(call, rye, { read, style });
      const found = await all();
      const threads = found.slice(0, limit);
      const total = isList ? await rye.threads.count({ roots: true }) : found.length;
      const marked = await unverifiedIn(rye, threads);
      for (const { mark } of marked) warnUnverified(mark, io);
      const unverified = marked.map(({ id: thread_id, mark }) => ({
        thread_id,
        ...markMembers(mark),
      }));
      return printResult(call, { threads, total, unverified }, () =>
        drawThreadTree(threads, { ...style, now: io.now() }),
      );
    }),
});

/** Returns a function that reads the newest roots, or the threads of a session, also those that it is handed off to later. */
async function reader(
  rye: Rye,
  idPart: string | undefined,
  limit: number | undefined,
): Promise<() => Promise<readonly ThreadTreeNode[]>> {
  if (idPart === undefined)
    return async () => await rye.children.tree(undefined, compact({ limit }));
  let ids = await sessionIds(rye, idPart);
  const nodes = async (): Promise<readonly ThreadTreeNode[]> =>
    (await Promise.all(ids.map(async (id) => await rye.children.tree(id)))).flat();
  return async () => {
    const found = await nodes();
    const next = found.at(-1)?.thread.continuation_thread_id ?? null;
    if (next === null) return found;
    ids = await sessionIds(rye, next);
    return await nodes();
  };
}

/** Returns the threads of a session, by the id of any. */
async function sessionIds({ threads }: Rye, idPart: string): Promise<readonly string[]> {
  return await threads.session(await threads.resolveId(idPart));
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

interface Watched {
  readonly read: () => Promise<readonly ThreadTreeNode[]>;
  readonly style: TreeStyle;
}

/**
 * Redraws at each change until the roots have ended: in place on a terminal if it fits the screen, else below, with
 * `--json` one line each. The last drawing is complete.
 */
async function watch(context: Context, rye: Rye, { read, style }: Watched): Promise<ExitCode> {
  const { io, global } = context;
  const cancelled = io.cancellation();
  const signal = AbortSignal.any([cancelled, io.outputClosed]);
  const inPlace = canRedraw(io.stdout, io.env) && !global.json;
  let drawn: readonly Shown[] = [];
  let document = '';
  let threads: readonly ThreadTreeNode[] = [];
  const linesNow = (isLast: boolean): readonly Shown[] => {
    // the size of now: the terminal may have been resized
    const size = inPlace ? { columns: io.stdout.columns - 1, now: io.now() } : {};
    const rows = inPlace && !isLast ? { rows: io.stdout.rows - 2 } : {};
    const lines = drawThreadTree(threads, { ...style, ...size, ...rows });
    return [...lines, style.colors.bold(treeProgress(threads))];
  };
  const drawDocument = (): void => {
    const next = jsonText({ success: true, threads, total: threads.length });
    if (next !== document) io.stdout.writeRaw(`${next}\n`);
    document = next;
  };
  const draw = async (isLast = false): Promise<void> => {
    threads = await read();
    if (global.json) return drawDocument();
    const lines = linesNow(isLast);
    if (lines.join('\n') === drawn.join('\n')) return;
    if (inPlace) io.stdout.writeRaw(eraseLines(drawn.length));
    printLines(io, lines);
    drawn = lines;
  };
  await draw();
  for (let open = openIn(threads); open.length > 0 && !signal.aborted; open = openIn(threads)) {
    await rye.children.wait(open, { any: true, signal, onLook: async () => await draw() });
    await draw();
  }
  await draw(true);
  const [first] = threads;
  if (inPlace && first !== undefined && !style.isList && !signal.aborted) {
    printLine(io, style.colors.dim(oneLine(`open: rye threads open ${first.thread.thread_id}`)));
  }
  return cancelled.aborted ? EXIT.cancelled : EXIT.ok;
}

/** Returns the roots to watch. Suspended threads are not among them: they wait for a person. */
function openIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread }) =>
    isFinal(thread.status) || thread.status === 'suspended' ? [] : [thread.thread_id],
  );
}
