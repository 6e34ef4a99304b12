import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye config show`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const values = await withRye(invocation, io, (rye) => rye.config());
  if (invocation.global.json) {
    printDocument(io, { success: true, values, total: values.length });
    return EXIT.ok;
  }
  const rows = values.map(({ path, value, origin }) => [
    path,
    JSON.stringify(value),
    displayPath(origin, io),
  ]);
  io.stdout.write(formatTable(['PATH', 'VALUE', 'FROM'], rows, io.stdout));
  return EXIT.ok;
}
