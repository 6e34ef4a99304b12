import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye threads cancel <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const reason = textOption(invocation, 'reason');
  const { threadId, requested } = await withRye(invocation, io, async (rye) => {
    const id = await rye.threads.resolveId(part);
    const options = { tree: flagOption(invocation, 'tree'), ...(reason ? { reason } : {}) };
    return { threadId: id, requested: await rye.children.cancel(id, options) };
  });
  if (invocation.global.json) {
    const document = { thread_id: threadId, threads: requested, total: requested.length };
    printDocument(io, { success: true, ...document });
  } else if (requested.length === 0) {
    printLine(io, `${threadId} has ended already`);
  } else {
    for (const id of requested) printLine(io, `cancelling ${id}`);
  }
  return EXIT.ok;
}
