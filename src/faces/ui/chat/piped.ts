import { type ErrorInfo, EXIT, type ExitCode, toRyeError } from '../../../kernel/core/errors.ts';
import { compact, type JsonObject } from '../../../kernel/core/json.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import type { Cost } from '../../../kernel/core/usage.ts';
import type { Context } from '../../cli/command.ts';
import { printDocument } from '../../cli/output.ts';
import { exitCodeOfResult } from '../../cli/thread-run.ts';
import { printFailure, printResult } from '../render/text.ts';
import { act, type ChatDesk } from './actions.ts';
import { MessageLines } from './message-lines.ts';

/** One message of a conversation and its answer, in the document of `--json`. */
export interface Exchange {
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
  const { chat, signal } = desk;
  const exchanges: Exchange[] = [];
  let last: ThreadResult | undefined;
  signal.addEventListener('abort', () => chat.interrupt('interrupted by a signal'));

  const answer = async (message: string | undefined): Promise<boolean> => {
    last = (await chat.send(message)) ?? last;
    if (last === undefined) return true;
    const { status, result, outputs, success } = last;
    exchanges.push(compact({ message: message ?? null, status, result, outputs }));
    if (!global.json) {
      if (success) printResult(last, io);
      printFailure(last, io);
    }
    return success;
  };
  const converse = async (): Promise<void> => {
    if (startsAlone && !(await answer(undefined))) return;
    for await (const message of messagesOf(io.readLines(signal))) {
      if (signal.aborted) return;
      const line = chat.parse(message);
      if (line === undefined) {
        if (chat.beginsAlone && !(await answer(undefined))) return;
        if (!(await answer(message))) return;
      } else if ((await act(line, desk)).quit) return;
    }
  };
  const ended = (): Ended => {
    if (signal.aborted) return { code: EXIT.cancelled, error: INTERRUPTED };
    return { code: last === undefined ? EXIT.ok : exitCodeOfResult(last), error: undefined };
  };

  let end: Ended;
  try {
    await converse();
    end = ended();
  } catch (thrown) {
    // the answers before it were paid for
    if (!global.json) throw thrown;
    const error = toRyeError(thrown);
    end = { code: error.exitCode, error: error.toJSON() };
  }
  if (global.json) printDocument(io, documentOf(last, exchanges, end));
  return end.code;
}

/** The end of a conversation; `error` is one that no run reports. */
interface Ended {
  readonly code: ExitCode;
  readonly error: ErrorInfo | undefined;
}

const INTERRUPTED: ErrorInfo = { code: 'cancelled', message: 'interrupted by a signal' };

async function* messagesOf(input: AsyncIterable<string>): AsyncIterable<string> {
  const lines = new MessageLines();
  for await (const line of input) {
    const message = lines.take(line);
    if (message !== undefined) yield message;
  }
  const rest = lines.end();
  if (rest !== undefined) yield rest;
}

function documentOf(
  last: ThreadResult | undefined,
  messages: readonly Exchange[],
  { code, error }: Ended,
): object {
  const cost: Cost | undefined = last?.cost;
  return compact({
    success: code === EXIT.ok,
    thread_id: last?.thread_id ?? null,
    status: last?.status ?? null,
    messages,
    cost,
    error: last?.error ?? error,
    warnings: last?.warnings,
  });
}
