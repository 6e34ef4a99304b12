import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { compact } from '../../core/json.ts';
import { flagOption, type Invocation, numberOption, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { formatLogEvent } from '../render/log-line.ts';
import { markMembers, warnUnverified } from '../render/log-mark.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye threads logs <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const part = requiredArgument(invocation, 0, 'id');
  if (flagOption(invocation, 'unverified')) return await printUnverified(invocation, io, part);
  const follow = flagOption(invocation, 'follow');
  const { json } = invocation.global;
  const cancelled = follow ? io.cancellation() : undefined;
  const signal = cancelled && AbortSignal.any([cancelled, io.outputClosed]);
  const query = compact({
    tail: numberOption(invocation, 'tail'),
    since: numberOption(invocation, 'since'),
    follow,
    signal,
  });
  const collected: (LogEvent | UnknownEvent)[] = [];
  const read = await withRye(invocation, io, async ({ threads }) => {
    const id = await threads.resolveId(part);
    for await (const event of threads.logs(id, query)) {
      if (!json) for (const line of formatLogEvent(event)) printLine(io, line);
      else if (follow) printLine(io, JSON.stringify(event));
      else collected.push(event);
    }
    const mark = await threads.mark(id);
    warnUnverified(mark, io);
    return { id, mark };
  });
  if (json && !follow) {
    const document = { thread_id: read.id, events: collected, total: collected.length };
    printDocument(io, { success: true, ...document, ...markMembers(read.mark) });
  }
  return cancelled?.aborted === true ? EXIT.cancelled : EXIT.ok;
}

/** Each line says that it is unverified, so that none of them is taken for the log. */
async function printUnverified(invocation: Invocation, io: Io, part: string): Promise<ExitCode> {
  const { json } = invocation.global;
  await withRye(invocation, io, async ({ threads }) => {
    for await (const line of threads.unverified(await threads.resolveId(part))) {
      const { file, line: number, text } = line;
      if (json) printLine(io, JSON.stringify(line));
      else printLine(io, `unverified  ${file}:${number}  ${oneLine(text)}`);
    }
  });
  return EXIT.ok;
}
