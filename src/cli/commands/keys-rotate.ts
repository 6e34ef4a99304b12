import { EXIT, type ExitCode } from '../../core/errors.ts';
import { confirm } from '../confirm.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys rotate`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const rotation = await withRye(invocation, io, async (rye) => {
    const { key_id } = await rye.keys.export();
    await confirm(invocation, io, {
      facts: [`The key ${key_id} stays trusted until you revoke it; a new one signs from now on.`],
      question: 'Make a new signing key?',
    });
    return await rye.keys.rotate();
  });
  if (invocation.global.json) printDocument(io, { success: true, ...rotation });
  else printLine(io, `signing key ${rotation.key_id} replaces ${rotation.old_key_id}`);
  return EXIT.ok;
}
