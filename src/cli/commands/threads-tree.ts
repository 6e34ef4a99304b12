import type { Rye, ThreadTreeNode } from '../../app/rye.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { isFinal } from '../../core/thread.ts';
import { flagOption, type Invocation, numberOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { canRedraw, printDocument, printLine } from '../output.ts';
import { drawThreadTree } from '../render/thread-tree.ts';
import { withRye } from '../session.ts';
import { eraseLines, truncate } from '../terminal-text.ts';

const DEFAULT_ROOTS = 20;

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
    if (invocation.global.json) printTree(tree, io);
    else for (const line of drawThreadTree(tree)) printLine(io, line);
    return EXIT.ok;
  });
}

function printTree(tree: readonly ThreadTreeNode[], io: Io): void {
  printDocument(io, { success: true, threads: tree, total: tree.length });
}

/** Draws at each change until nothing is open: in place on a terminal, elsewhere again, with `--json` one line each. */
async function watch(
  rye: Rye,
  look: () => Promise<readonly ThreadTreeNode[]>,
  { invocation, io }: { readonly invocation: Invocation; readonly io: Io },
): Promise<ExitCode> {
  const signal = io.cancellation();
  const inPlace = canRedraw(io.stdout, io.env) && !invocation.global.json;
  let drawn: readonly string[] = [];
  let tree: readonly ThreadTreeNode[] = [];
  const draw = async (): Promise<void> => {
    tree = await look();
    const lines = invocation.global.json
      ? [JSON.stringify({ success: true, threads: tree, total: tree.length })]
      : drawThreadTree(tree).map((line) =>
          inPlace ? truncate(line, io.stdout.columns - 1) : line,
        );
    if (lines.join('\n') === drawn.join('\n')) return;
    if (inPlace) io.stdout.write(eraseLines(drawn.length));
    for (const line of lines) printLine(io, line);
    drawn = lines;
  };
  await draw();
  for (let open = openIn(tree); open.length > 0 && !signal.aborted; open = openIn(tree)) {
    await rye.children.wait(open, { any: true, signal, onLook: draw });
    await draw();
  }
  return signal.aborted ? EXIT.cancelled : EXIT.ok;
}

/** Suspended threads are left out: they go on only when somebody resumes them. */
function openIn(nodes: readonly ThreadTreeNode[]): readonly string[] {
  return nodes.flatMap(({ thread, children }) => [
    ...(isFinal(thread.status) || thread.status === 'suspended' ? [] : [thread.thread_id]),
    ...openIn(children),
  ]);
}
