import type { Rye } from '../../app/api/rye.ts';
import type { LogMark, ThreadTreeNode } from '../../app/api/threads.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { isFinal } from '../../core/thread.ts';
import { flagOption, type Invocation, numberOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { canRedraw, colorsOf, printDocument, printLine } from '../output.ts';
import { markMembers, warnUnverified } from '../render/log-mark.ts';
import { drawThreadTree, type TreeStyle } from '../render/thread-tree.ts';
import { withRye } from '../session.ts';
import { eraseLines } from '../terminal-text.ts';

const DEFAULT_ROOTS = 20;
/** Logs that one look at a tree checks. */
const MAX_MARKED = 50;

/** `rye threads tree [<id>]`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  return await withRye(invocation, io, async (rye) => {
    const [part] = invocation.args;
    const threadId = part === undefined ? undefined : await rye.threads.resolveId(part);
    const limit = numberOption(invocation, 'limit') ?? DEFAULT_ROOTS;
    const look = async (): Promise<readonly ThreadTreeNode[]> =>
      (await rye.children.tree(threadId)).slice(0, limit);
    if (flagOption(invocation, 'watch')) return await watch(rye, look, { invocation, io });
    const tree = await look();
    const unverified = await markAll(rye, tree);
    for (const { mark } of unverified) warnUnverified(mark, io);
    if (invocation.global.json) printTree(tree, unverified, io);
    else printLines(drawThreadTree(tree, { ...styleOf(invocation, io), now: io.now() }), io);
    return EXIT.ok;
  });
}

interface Marked {
  readonly threadId: string;
  readonly mark: LogMark;
}

/** The threads of a tree whose logs are not what was signed; of a huge tree only the first are checked. */
async function markAll(rye: Rye, tree: readonly ThreadTreeNode[]): Promise<readonly Marked[]> {
  const unverified: Marked[] = [];
  for (const threadId of idsIn(tree).slice(0, MAX_MARKED)) {
    const mark = await rye.threads.mark(threadId);
    if (mark.verified === false) unverified.push({ threadId, mark });
  }
  return unverified;
}

function idsIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread, children }) => [thread.thread_id, ...idsIn(children)]);
}

function printTree(tree: readonly ThreadTreeNode[], unverified: readonly Marked[], io: Io): void {
  const marks = unverified.map(({ threadId, mark }) => ({
    thread_id: threadId,
    ...markMembers(mark),
  }));
  printDocument(io, { success: true, threads: tree, total: tree.length, unverified: marks });
}

function printLines(lines: readonly string[], io: Io): void {
  for (const line of lines) printLine(io, line);
}

function styleOf({ global }: Invocation, io: Io): TreeStyle {
  return {
    colors: colorsOf(io.stdout, io, global),
    ...(io.stdout.isTty ? { columns: io.stdout.columns - 1 } : {}),
  };
}

/**
 * Draws at each change until nothing is open: in place on a terminal, where it fits the screen, elsewhere again, with
 * `--json` one line each. The last drawing is whole.
 */
async function watch(
  rye: Rye,
  look: () => Promise<readonly ThreadTreeNode[]>,
  { invocation, io }: { readonly invocation: Invocation; readonly io: Io },
): Promise<ExitCode> {
  const cancelled = io.cancellation();
  const signal = AbortSignal.any([cancelled, io.outputClosed]);
  const { json } = invocation.global;
  const inPlace = canRedraw(io.stdout, io.env) && !json;
  let drawn: readonly string[] = [];
  let tree: readonly ThreadTreeNode[] = [];
  const linesNow = (isLast: boolean): readonly string[] => {
    if (json) return [JSON.stringify({ success: true, threads: tree, total: tree.length })];
    const live = inPlace ? { now: io.now(), ...(isLast ? {} : { rows: io.stdout.rows - 1 }) } : {};
    return drawThreadTree(tree, { ...styleOf(invocation, io), ...live });
  };
  const draw = async (isLast = false): Promise<void> => {
    tree = await look();
    const lines = linesNow(isLast);
    if (lines.join('\n') === drawn.join('\n')) return;
    if (inPlace) io.stdout.write(eraseLines(drawn.length));
    printLines(lines, io);
    drawn = lines;
  };
  await draw();
  for (let open = openIn(tree); open.length > 0 && !signal.aborted; open = openIn(tree)) {
    await rye.children.wait(open, { any: true, signal, onLook: async () => await draw() });
    await draw();
  }
  await draw(true);
  return cancelled.aborted ? EXIT.cancelled : EXIT.ok;
}

/** Suspended threads are left out: they go on only when somebody resumes them. */
function openIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread, children }) => [
    ...(isFinal(thread.status) || thread.status === 'suspended' ? [] : [thread.thread_id]),
    ...openIn(children),
  ]);
}
