import type { ThreadListFilter } from '../../app/api/threads.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { THREAD_STATUSES } from '../../core/thread.ts';
import { formatUsd } from '../../core/usage.ts';
import { flagOption, type Invocation, numberOption, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, formatTable, printDocument } from '../output.ts';
import { withThreadList } from '../session.ts';
import { oneLine, truncate } from '../terminal-text.ts';

/** Columns of a result: a row is for looking over, `show` and `--json` have the whole. */
const MAX_RESULT = 500;

/** `rye threads list`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = textOption(invocation, 'parent');
  const { threads, unlisted } = await withThreadList(invocation, io, async (list) => ({
    threads: await list.threads.list({
      ...filterOf(invocation),
      ...(part === undefined ? {} : { parent: await list.threads.resolveId(part) }),
    }),
    unlisted: await list.threads.unlisted(),
  }));
  if (unlisted.length > 0) io.stderr.write(unlistedWarning(unlisted));
  if (invocation.global.json) {
    const others = unlisted.length > 0 ? { unlisted } : {};
    printDocument(io, { success: true, threads, total: threads.length, ...others });
    return EXIT.ok;
  }
  const rows = threads.map((thread) => [
    thread.thread_id,
    thread.process_gone === true ? `${thread.status} (process gone)` : thread.status,
    thread.created_at,
    String(thread.cost.turns),
    formatUsd(thread.cost.spend),
    truncate(thread.error?.message ?? thread.result ?? '', MAX_RESULT),
  ]);
  const headings = ['THREAD', 'STATUS', 'CREATED', 'TURNS', 'SPEND', 'RESULT'];
  io.stdout.write(formatTable(headings, rows, io.stdout));
  if (!invocation.global.quiet && threads.some((thread) => thread.process_gone === true)) {
    io.stderr.write(
      'hint: Threads whose process is gone are ended in order by: rye threads recover\n',
    );
  }
  return EXIT.ok;
}

const MAX_NAMED = 3;

function unlistedWarning(unlisted: readonly string[]): string {
  const named = unlisted.slice(0, MAX_NAMED).join(', ');
  const more = unlisted.length > MAX_NAMED ? ', …' : '';
  const what = `${count(unlisted.length, 'folder')} of threads not in the registry: ${oneLine(named)}${more}`;
  return `rye: warning: ${what}\nhint: List them again with: rye doctor --repair\n`;
}

function filterOf(invocation: Invocation): ThreadListFilter {
  return compact({
    active: flagOption(invocation, 'active') ? true : undefined,
    status: THREAD_STATUSES.find((status) => status === textOption(invocation, 'status')),
    directive: textOption(invocation, 'directive'),
    limit: numberOption(invocation, 'limit'),
  });
}
