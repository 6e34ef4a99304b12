import { TREE_FILTERS, type TreeView } from '../../app/api/trees.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { colorsOf, printDocument, printLine } from '../output.ts';
import { markMembers, warnUnverified } from '../render/log-mark.ts';
import { drawSessionTree } from '../render/session-tree.ts';
import { withRye } from '../session.ts';
import { neutralise } from '../terminal-text.ts';

/** `rye threads entries <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const entry = textOption(invocation, 'entry');
  if (entry !== undefined) return await showEntry(invocation, io, { part, entry });
  const options = compact({
    filter: TREE_FILTERS.find((filter) => filter === textOption(invocation, 'filter')),
    search: textOption(invocation, 'search'),
  });
  const { view, mark } = await withRye(invocation, io, async ({ threads, trees }) => {
    const id = await threads.resolveId(part);
    return { view: await trees.view(id, options), mark: await threads.mark(id) };
  });
  warnUnverified(mark, io);
  if (invocation.global.json) printDocument(io, { ...asDocument(view), ...markMembers(mark) });
  else {
    const colors = colorsOf(io.stdout, io, invocation.global);
    for (const line of drawSessionTree(view, io.stdout, colors)) printLine(io, line);
    for (const { offset, message } of view.problems) {
      io.stderr.write(`rye: warning: byte ${offset}: ${message}\n`);
    }
    if (!invocation.global.quiet) {
      io.stderr.write(`${view.rows.length} of ${view.total} entries\n`);
    }
  }
  return EXIT.ok;
}

/** One entry in full, as the log has it. */
async function showEntry(
  invocation: Invocation,
  io: Io,
  { part, entry: id }: { readonly part: string; readonly entry: string },
): Promise<ExitCode> {
  const other = ['filter', 'search'].find((name) => textOption(invocation, name) !== undefined);
  if (other !== undefined) {
    throw new RyeError('usage', `--entry shows one entry, and --${other} chooses among many`);
  }
  const found = await withRye(invocation, io, async ({ threads, trees }) => {
    const thread_id = await threads.resolveId(part);
    return {
      thread_id,
      entry: await trees.entry(thread_id, id),
      mark: await threads.mark(thread_id),
    };
  });
  const { mark, ...facts } = found;
  warnUnverified(mark, io);
  if (invocation.global.json) {
    printDocument(io, { success: true, ...facts, ...markMembers(mark) });
  } else printLine(io, neutralise(JSON.stringify(found.entry, null, 2)));
  return EXIT.ok;
}

function asDocument({ thread_id, title, leaf_id, rows, total, problems }: TreeView): object {
  const entries = rows.map((row) => ({
    id: row.entry.id,
    parent_id: row.entry.parent_id,
    shown_parent_id: row.parentId,
    seq: row.entry.seq,
    timestamp: row.entry.timestamp,
    event_type: row.entry.event_type,
    kind: row.kind,
    depth: row.depth,
    active: row.active,
    leaf: row.leaf,
    label: row.label ?? null,
    text: row.text,
    payload: row.entry.payload,
  }));
  return { success: true, thread_id, title, leaf_id, entries, total, problems };
}
