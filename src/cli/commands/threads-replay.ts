import type { ReplayReport } from '../../app/api/trees.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact, type JsonValue } from '../../core/json.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { neutralise } from '../terminal-text.ts';

/** `rye threads replay <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const from = textOption(invocation, 'from');
  const signal = io.cancellation();
  const report = await withRye(invocation, io, async ({ threads, trees }) =>
    trees.replay(await threads.resolveId(part), compact({ from, signal })),
  );
  const isSame = report.difference === null;
  const failed = flagOption(invocation, 'verify') && !isSame;
  if (invocation.global.json) printDocument(io, { success: !failed, same: isSame, ...report });
  else for (const line of describe(report)) printLine(io, line);
  return failed ? EXIT.failed : EXIT.ok;
}

function describe(report: ReplayReport): readonly string[] {
  const { matched, steps, answers, difference, not_run: notRun } = report;
  const lines = [`${matched} of ${steps} steps are the same, ${answers} recorded answers`];
  if (notRun.length > 0) lines.push(`not run, as hooks ask for it: ${notRun.join(', ')}`);
  if (difference === null) return [...lines, 'no difference'];
  const at = difference.entry_id === null ? 'behind the recording' : `entry ${difference.entry_id}`;
  return [
    ...lines,
    `first difference at step ${difference.step}, ${at}: ${difference.path}`,
    `  recorded: ${show(difference.recorded)}`,
    `  replayed: ${show(difference.replayed)}`,
  ];
}

const MAX_SHOWN = 400;

function show(value: JsonValue): string {
  const text = value === null ? 'nothing' : JSON.stringify(value);
  return neutralise(text.length <= MAX_SHOWN ? text : `${text.slice(0, MAX_SHOWN)}…`);
}
