import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys rotate`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const rotation = await withRye(invocation, io, (rye) => rye.keys.rotate());
  if (invocation.global.json) printDocument(io, { success: true, ...rotation });
  else printLine(io, `signing key ${rotation.key_id} replaces ${rotation.old_key_id}`);
  return EXIT.ok;
}
