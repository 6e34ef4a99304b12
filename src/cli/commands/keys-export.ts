import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys export`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const key = await withRye(invocation, io, (rye) => rye.keys.export());
  if (invocation.global.json) printDocument(io, { success: true, ...key });
  else io.stdout.write(key.pem.endsWith('\n') ? key.pem : `${key.pem}\n`);
  return EXIT.ok;
}
