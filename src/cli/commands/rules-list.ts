import { EXIT, type ExitCode } from '../../core/errors.ts';
import { type Invocation, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye rules list`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const directive = textOption(invocation, 'directive');
  const { rules, refused } = await withRye(invocation, io, (rye) =>
    rye.rules.list(directive === undefined ? {} : { directive }),
  );
  if (invocation.global.json) {
    printDocument(io, { success: true, rules, refused, total: rules.length });
    return EXIT.ok;
  }
  const rows = rules.map(({ bucket, name, space, interrupt, repeat, gap, description }) => [
    bucket,
    name,
    space,
    bucket === 'stream' ? interrupt : '-',
    bucket === 'stream' ? (repeat === 'once' ? repeat : `after ${gap}`) : '-',
    description,
  ]);
  const headings = ['USE', 'RULE', 'SPACE', 'INTERRUPTS', 'REPEATS', 'ABOUT'];
  io.stdout.write(formatTable(headings, rows, io.stdout));
  for (const { path, message } of refused) {
    io.stderr.write(`rye: ${displayPath(path, io)} is not used: ${message}\n`);
  }
  for (const { name, path, problems } of rules) {
    for (const problem of problems) {
      io.stderr.write(`rye: rule ${name} (${displayPath(path, io)}): ${problem}\n`);
    }
  }
  return EXIT.ok;
}
