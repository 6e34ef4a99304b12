import { EXIT, type ExitCode } from '../../core/errors.ts';
import { type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye threads label <id> ENTRY [LABEL]`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  const entry = requiredArgument(invocation, 1, 'entry');
  const label = invocation.args[2] ?? null;
  const done = await withRye(invocation, io, async ({ threads, trees }) => {
    const thread_id = await threads.resolveId(part);
    const [named] = await trees.label(thread_id, entry, label);
    // the event has the whole id
    const entry_id = named?.event_type === 'label' ? named.payload.target_id : entry;
    return { thread_id, entry_id, label };
  });
  if (invocation.global.json) printDocument(io, { success: true, ...done });
  else {
    const what = label === null ? 'has no name now' : `is now called ${oneLine(label)}`;
    printLine(io, `${done.entry_id} ${what}`);
  }
  return EXIT.ok;
}
