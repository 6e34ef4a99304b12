import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye init`: makes `.ai/` in the working directory, or in what `--project` names. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const outcome = await withRye(
    invocation,
    io,
    (rye) => rye.init({ force: flagOption(invocation, 'force') }),
    { here: true },
  );
  if (invocation.global.json) {
    printDocument(io, { success: true, ...outcome });
    return EXIT.ok;
  }
  for (const file of outcome.created) printLine(io, `created ${displayPath(file, io)}`);
  for (const file of outcome.kept) printLine(io, `kept    ${displayPath(file, io)}`);
  printLine(io, `${outcome.key_created ? 'new signing key' : 'signing key'} ${outcome.key_id}`);
  if (!invocation.global.quiet) io.stderr.write('next: rye execute directive hello\n');
  return EXIT.ok;
}
