import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { neutralise } from '../terminal-text.ts';

/** `rye threads compact <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const instructions = textOption(invocation, 'instructions');
  const signal = io.cancellation();
  const { thread_id, outcome } = await withRye(invocation, io, async ({ threads, trees }) => {
    const id = await threads.resolveId(part);
    const made = await trees.compact(id, compact({ instructions, signal }));
    return { thread_id: id, outcome: made };
  });
  if (invocation.global.json) printDocument(io, { success: true, thread_id, ...outcome });
  else if (outcome.compacted) {
    printLine(io, neutralise(outcome.summary).trimEnd());
    io.stderr.write(
      `entry ${outcome.entry_id} stands for the older part of ${outcome.tokens_before} tokens\n`,
    );
  } else printLine(io, `not compacted: ${outcome.reason}`);
  return EXIT.ok;
}
