import type { RepairReport } from '../../app/api/threads.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { colorsOf, count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye doctor`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const { repair, checks } = await withRye(invocation, io, async (rye) => ({
    repair: flagOption(invocation, 'repair') ? await rye.recovery.repair() : undefined,
    checks: await rye.doctor(),
  }));
  const failed =
    checks.filter(({ status }) => status === 'fail').length + (repair?.failures.length ?? 0);
  if (invocation.global.json) {
    const error = { code: 'state_unwritable', message: `${count(failed, 'check')} failed` };
    printDocument(io, {
      success: failed === 0,
      ...(failed === 0 ? {} : { error }),
      ...(repair === undefined ? {} : { repair }),
      checks,
      total: checks.length,
    });
  } else {
    for (const line of repair === undefined ? [] : described(repair, io)) printLine(io, line);
    const { green, yellow, red } = colorsOf(io.stdout, io, invocation.global);
    const paint = { ok: green, warn: yellow, fail: red };
    for (const { check, status, detail, hint } of checks) {
      printLine(io, `${paint[status](status.padEnd(4))} ${check}: ${detail}`);
      if (hint !== undefined) printLine(io, `     hint: ${hint}`);
    }
  }
  return failed === 0 ? EXIT.ok : EXIT.failed;
}

function described(
  { moved, threads, budgets, recovered, failures, notes }: RepairReport,
  io: Io,
): readonly string[] {
  const restored = [
    ...(threads.length > 0 ? [`restored ${count(threads.length, 'thread')} in the registry`] : []),
    ...(budgets.length > 0 ? [`restored ${count(budgets.length, 'budget')} in the ledger`] : []),
  ];
  const lines = [
    ...moved.map(({ database, to }) => `moved the damaged ${database} to ${displayPath(to, io)}`),
    ...restored,
    ...recovered.map(
      ({ thread_id: id, status }) => `ended ${id} as ${status}: its process is gone`,
    ),
    ...failures.map(
      ({ thread_id: id, error }) =>
        `not restored: ${id}: ${oneLine(error.message)} [${error.code}]`,
    ),
    ...notes,
  ];
  return lines.length === 0 ? ['nothing to repair'] : lines;
}
