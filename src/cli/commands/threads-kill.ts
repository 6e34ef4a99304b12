import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye threads kill <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const reason = textOption(invocation, 'reason');
  const { threadId, killed } = await withRye(invocation, io, async (rye) => {
    const id = await rye.threads.resolveId(part);
    const options = { tree: flagOption(invocation, 'tree'), ...(reason ? { reason } : {}) };
    return { threadId: id, killed: await rye.children.kill(id, options) };
  });
  if (invocation.global.json) {
    const document = { thread_id: threadId, threads: killed, total: killed.length };
    printDocument(io, { success: true, ...document });
  } else if (killed.length === 0) {
    printLine(io, `${threadId} has ended already`);
  } else {
    for (const { thread_id, status, pid } of killed) {
      printLine(io, `${status} ${thread_id}${pid === null ? '' : ` (process ${pid})`}`);
    }
  }
  return EXIT.ok;
}
