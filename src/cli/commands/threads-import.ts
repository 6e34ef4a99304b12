import { resolve } from 'node:path';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye threads import FILE`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const path = resolve(io.cwd, requiredArgument(invocation, 0, 'file'));
  const threadId = textOption(invocation, 'thread-id');
  const model = textOption(invocation, 'model');
  const { thread, ...made } = await withRye(
    invocation,
    io,
    async ({ trees }) => await trees.importSession(compact({ path, threadId, model })),
  );
  for (const { line, message } of made.problems) {
    io.stderr.write(`line ${line}: ${oneLine(message)}\n`);
  }
  const { thread_id, status } = thread;
  if (invocation.global.json) printDocument(io, { success: true, thread_id, status, ...made });
  else printLine(io, thread_id);
  return EXIT.ok;
}
