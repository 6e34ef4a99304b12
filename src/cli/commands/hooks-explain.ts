import { EXIT, type ExitCode } from '../../core/errors.ts';
import { HOOK_EVENTS } from '../../core/hook.ts';
import { readValues } from '../input-values.ts';
import { type Invocation, listOption, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye hooks explain <directive>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const directive = requiredArgument(invocation, 0, 'directive');
  const event = HOOK_EVENTS.find((name) => name === textOption(invocation, 'event'));
  const inputs = await readValues(
    {
      pairs: listOption(invocation, 'input'),
      document: undefined,
      pairOption: '--input',
      documentOption: '--inputs',
    },
    io,
  );
  const hooks = await withRye(invocation, io, (rye) => rye.explainHooks(directive, event, inputs));
  if (invocation.global.json) {
    printDocument(io, { success: true, directive, hooks, total: hooks.length });
    return EXIT.ok;
  }
  const rows = hooks.map(({ hook, would_fire, depends_on, because }) => [
    would_fire ? 'fires' : depends_on.length > 0 ? 'maybe' : '-',
    String(hook.layer),
    hook.event,
    hook.id,
    because,
  ]);
  io.stdout.write(formatTable(['', 'LAYER', 'EVENT', 'HOOK', 'BECAUSE'], rows, io.stdout));
  return EXIT.ok;
}
