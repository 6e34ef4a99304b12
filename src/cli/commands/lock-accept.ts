import { EXIT, type ExitCode } from '../../core/errors.ts';
import { confirm } from '../confirm.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { changeLine } from './lock-status.ts';

/** `rye lock accept`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const accepted = await withRye(invocation, io, async (rye) => {
    const { changes } = await rye.lock.status();
    if (changes.length > 0) {
      await confirm(invocation, io, {
        facts: [
          ...changes.map(changeLine),
          'What is signed comes into force; what is unsigned or gone is given up.',
        ],
        question: 'Accept these changes?',
      });
    }
    return await rye.lock.accept();
  });
  if (invocation.global.json) {
    printDocument(io, { success: true, ...accepted });
    return EXIT.ok;
  }
  for (const change of accepted.changes) printLine(io, `accepted ${changeLine(change)}`);
  const { files, serial, path } = accepted;
  printLine(
    io,
    `pinned ${count(files.length, 'power file')} in ${displayPath(path, io)}, version ${serial}`,
  );
  return EXIT.ok;
}
