import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseSignableType } from '../item-arguments.ts';
import { count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { formatProblem } from './validate.ts';

/** `rye sign <type> <id|glob>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const type = parseSignableType(requiredArgument(invocation, 0, 'type'));
  const pattern = requiredArgument(invocation, 1, 'id|glob');
  const dryRun = flagOption(invocation, 'dry-run');
  const items = await withRye(invocation, io, (rye) => rye.items.sign(type, pattern, { dryRun }));
  const failed = items.filter(({ status }) => status === 'failed');
  if (invocation.global.json) {
    const message = `${count(failed.length, 'item')} could not be signed`;
    printDocument(io, {
      success: failed.length === 0,
      ...(failed.length === 0 ? {} : { error: { code: 'invalid_input', message } }),
      items,
      total: items.length,
    });
  } else {
    for (const { status, path, problems } of items) {
      printLine(io, `${status.replaceAll('_', ' ')} ${displayPath(path, io)}`);
      for (const problem of problems) io.stderr.write(`${formatProblem(problem, io)}\n`);
    }
  }
  return failed.length === 0 ? EXIT.ok : EXIT.usage;
}
