import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { Cost } from '../../core/usage.ts';
import type { Context } from '../command.ts';
import { printDocument } from '../output.ts';
import { printFailure, printResult } from '../render/text.ts';
import { exitCodeOfResult } from '../thread-run.ts';
import { act, type ChatDesk } from './actions.ts';
import { MessageLines } from './message-lines.ts';
import { slashOf } from './slash.ts';

/** One message of a conversation and its answer, in the document of `--json`. */
interface Exchange {
  /** Null for the run with which a directive starts. */
  readonly message: string | null;
  readonly status: ThreadResult['status'];
  readonly result: string;
  readonly outputs?: JsonObject;
}

/**
 * Holds a conversation without a terminal: each line is a message or a command, and stdout gets the answers alone. Ends
 * with the input, or with the first message that fails, with the exit status of its run.
 */
export async function chatFromPipe(
  { io, global }: Context,
  desk: ChatDesk,
  { startsAlone }: { readonly startsAlone: boolean },
): Promise<ExitCode> {
  const { conversation, signal } = desk;
  const exchanges: Exchange[] = [];
  let last: ThreadResult | undefined;
  signal.addEventListener('abort', () => conversation.interrupt('interrupted by a signal'));

  const answer = async (message: string | undefined): Promise<boolean> => {
    last = await conversation.send(message);
    const { status, result, outputs, success } = last;
    exchanges.push(compact({ message: message ?? null, status, result, outputs }));
    if (!global.json) {
      if (success) printResult(last, io);
      printFailure(last, io);
    }
    return success;
  };
  const report = (): ExitCode => {
    if (global.json) printDocument(io, documentOf(last, exchanges));
    if (signal.aborted) return EXIT.cancelled;
    return last === undefined ? EXIT.ok : exitCodeOfResult(last);
  };

  if (startsAlone && !(await answer(undefined))) return report();
  for await (const message of messagesOf(io.readLines(signal))) {
    if (signal.aborted) break;
    const slash = slashOf(message);
    if (slash === undefined) {
      if (!(await answer(message))) break;
    } else if ((await act(slash, desk)).quit) break;
  }
  return report();
}

async function* messagesOf(input: AsyncIterable<string>): AsyncIterable<string> {
  const lines = new MessageLines();
  for await (const line of input) {
    const message = lines.take(line);
    if (message !== undefined) yield message;
  }
  const rest = lines.end();
  if (rest !== undefined) yield rest;
}

function documentOf(last: ThreadResult | undefined, messages: readonly Exchange[]): object {
  const cost: Cost | undefined = last?.cost;
  return compact({
    success: last?.success ?? true,
    thread_id: last?.thread_id ?? null,
    status: last?.status ?? null,
    messages,
    cost,
    error: last?.error,
    warnings: last?.warnings,
  });
}
