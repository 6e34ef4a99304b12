import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye hooks list [directive]`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const hooks = await withRye(invocation, io, (rye) => rye.hooks(invocation.args[0]));
  if (invocation.global.json) {
    printDocument(io, { success: true, hooks, total: hooks.length });
    return EXIT.ok;
  }
  const rows = hooks.map((hook) => [String(hook.layer), hook.event, hook.id, hook.origin]);
  io.stdout.write(formatTable(['LAYER', 'EVENT', 'HOOK', 'FROM'], rows, io.stdout));
  return EXIT.ok;
}
