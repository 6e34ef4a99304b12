import type { Risk } from '../../core/capability.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { readValues } from '../input-values.ts';
import {
  flagOption,
  type Invocation,
  listOption,
  requiredArgument,
  textOption,
} from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { neutralise } from '../terminal-text.ts';

/** `rye execute tool <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const toolId = requiredArgument(invocation, 0, 'id');
  const params = await readValues(
    {
      pairs: listOption(invocation, 'param'),
      document: textOption(invocation, 'params'),
      pairOption: '--param',
      documentOption: '--params',
    },
    io,
  );
  const signal = io.cancellation();
  const request = {
    toolId,
    params,
    allowUnsigned: flagOption(invocation, 'allow-unsigned'),
    // preparing refuses a value that is no risk
    acknowledge: listOption(invocation, 'acknowledge') as readonly Risk[],
    signal,
  };
  if (flagOption(invocation, 'async')) {
    const launched = await withRye(invocation, io, (rye) => rye.children.launchTool(request));
    printDocument(io, { success: true, ...launched });
    return EXIT.ok;
  }
  const outcome = await withRye(invocation, io, (rye) => rye.threads.executeTool(request));
  if (invocation.global.json) {
    const error = { code: 'tool_failed', message: `tool ${toolId} failed: ${outcome.result}` };
    printDocument(io, { ...outcome, ...(outcome.success ? {} : { error }) });
  } else if (outcome.success) {
    printLine(io, io.stdout.isTty ? neutralise(outcome.result) : outcome.result);
  } else {
    io.stderr.write(`rye: tool ${toolId} failed: ${neutralise(outcome.result)} [tool_failed]\n`);
  }
  if (signal.aborted) return EXIT.cancelled;
  return outcome.success ? EXIT.ok : EXIT.failed;
}
