import type { ExitCode } from '../../core/errors.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { withRye } from '../session.ts';
import { exitCodeOfResult } from '../thread-exit.ts';

/** `rye __run-thread <id>`: the process that `--async` starts. What it prints goes to the thread's spawn.log. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const threadId = requiredArgument(invocation, 0, 'id');
  const signal = io.cancellation();
  const result = await withRye(invocation, io, (rye) =>
    rye.children.runLaunched(threadId, { signal }),
  );
  return exitCodeOfResult(result);
}
