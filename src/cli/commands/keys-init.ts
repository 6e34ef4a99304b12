import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys init`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const key = await withRye(invocation, io, (rye) => rye.keys.init());
  if (invocation.global.json) printDocument(io, { success: true, ...key });
  else if (!invocation.global.quiet) printLine(io, `signing key ${key.key_id} in ${key.path}`);
  return EXIT.ok;
}
