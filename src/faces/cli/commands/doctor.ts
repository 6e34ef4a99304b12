import type { RepairReport } from '../../../kernel/app/api/threads.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import type { Io } from '../../ui/io.ts';
import { oneLine, partOf, type Shown, shown, visible } from '../../ui/visible.ts';
import { defineCommand, flag } from '../command.ts';
import { colorsOf, count, displayPath, printDocument, printLines, wrapped } from '../output.ts';
import { withRye } from '../session.ts';

/** The width of a status and a space. */
const INDENT = shown`     `;

export const doctor = defineCommand({
  details:
    'Exits with 1 if a check fails. --repair first rebuilds the registry, the ledger and the search index from signed files. It moves damaged ones aside, deletes nothing, and refuses to run while a thread runs.',
  options: { repair: flag('Rebuild damaged or missing databases from signed files') },
  examples: ['rye doctor', 'rye doctor --repair'],
  run: async (call) => {
    const { io, global, options } = call;
    const { repair, checks } = await withRye(call, async (rye) => ({
      repair: options.repair ? await rye.recovery.repair() : undefined,
      checks: await rye.doctor(),
    }));
    const failed =
      checks.filter(({ status }) => status === 'fail').length + (repair?.failures.length ?? 0);
    const success = failed === 0;
    if (global.json) {
      const message = `${count(failed, 'check')} failed`;
      // what a check found has no code; a failed repair has
      const code = repair?.failures[0]?.error.code ?? 'check_failed';
      const error = success ? undefined : { code, message };
      printDocument(io, compact({ success, error, repair, checks, total: checks.length }));
    } else {
      if (repair !== undefined) printLines(io, repairLines(repair, io));
      const { stdout } = io;
      const { green, yellow, red } = colorsOf(stdout, call);
      const paint = { ok: green, warn: yellow, fail: red };
      for (const { check, status, detail, hint } of checks) {
        const line = oneLine(`${status.padEnd(4)} ${check}: ${detail}`);
        const [first = line, ...rest] = wrapped(line, stdout, INDENT);
        printLines(io, [shown`${paint[status](partOf(first, 0, 4))}${partOf(first, 4)}`, ...rest]);
        if (hint !== undefined) {
          printLines(io, wrapped(visible(`${INDENT}hint: ${hint}`), stdout, INDENT));
        }
      }
    }
    return success ? EXIT.ok : EXIT.failed;
  },
});

function repairLines(report: RepairReport, io: Io): readonly Shown[] {
  const { moved, threads, budgets, recovered, failures, notes } = report;
  const lines = [
    ...moved.map(
      ({ database, to }) => shown`moved the damaged ${oneLine(database)} to ${displayPath(to, io)}`,
    ),
    ...(threads.length > 0
      ? [shown`restored ${count(threads.length, 'thread')} in the registry`]
      : []),
    ...(budgets.length > 0
      ? [shown`restored ${count(budgets.length, 'budget')} in the ledger`]
      : []),
    ...recovered.map(({ thread_id: id, status }) =>
      oneLine(`recovered ${id}: crashed, now ${status}`),
    ),
    ...failures.map(({ thread_id: id, error }) =>
      oneLine(`cannot restore ${id}: ${error.message} [${error.code}]`),
    ),
    ...notes.map(oneLine),
  ];
  return lines.length === 0 ? [shown`nothing to repair`] : lines;
}
