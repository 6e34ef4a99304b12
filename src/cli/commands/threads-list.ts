import type { ThreadListFilter } from '../../app/rye.ts';
import { formatUsd } from '../../core/amounts.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { THREAD_STATUSES } from '../../core/thread.ts';
import { flagOption, type Invocation, numberOption, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withThreadList } from '../session.ts';
import { truncate } from '../terminal-text.ts';

/** Columns of a result: a row is for looking over, `show` and `--json` have the whole. */
const MAX_RESULT = 500;

/** `rye threads list`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = textOption(invocation, 'parent');
  const threads = await withThreadList(invocation, io, async ({ threads: service }) =>
    service.list({
      ...filterOf(invocation),
      ...(part === undefined ? {} : { parent: await service.resolveId(part) }),
    }),
  );
  if (invocation.global.json) {
    printDocument(io, { success: true, threads, total: threads.length });
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

function filterOf(invocation: Invocation): ThreadListFilter {
  return compact({
    active: flagOption(invocation, 'active') ? true : undefined,
    status: THREAD_STATUSES.find((status) => status === textOption(invocation, 'status')),
    directive: textOption(invocation, 'directive'),
    limit: numberOption(invocation, 'limit'),
  });
}
