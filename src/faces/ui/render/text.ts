import type { ApprovalAttendant } from '../../../kernel/app/api/approvals.ts';
import type { Tone } from '../../../kernel/app/api/trees.ts';
import type { LogEvent, UnknownEvent } from '../../../kernel/core/events.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import { formatCost } from '../../../kernel/core/usage.ts';
import { failureText } from '../../cli/failure.ts';
import {
  printDocument,
  printJson,
  printJsonLine,
  printText,
  resultText,
} from '../../cli/output.ts';
import { ResultCollector } from '../../cli/result-document.ts';
import { withWarnings } from '../../cli/warnings.ts';
import type { Io } from '../io.ts';
import type { Colors } from '../terminal-text.ts';
import { oneLine, type Shown, shown } from '../visible.ts';
import { deliveredText } from './delivered.ts';
import { nextLine } from './outcome.ts';
import { type ProgressLine, payloadOf, runLines, wordedLines } from './progress-line.ts';

/** Renders text for a log file or a pipe: short progress lines on stderr, the final result on stdout. */
export function createTextRenderer(io: Io, colors: Colors, isQuiet: boolean): Renderer {
  const progress = createProgress(io, colors);
  return {
    event: (event) => {
      if (!isQuiet) progress.event(event);
    },
    finish: (result) => {
      progress.end(result);
      printResult(result, io);
      if (!isQuiet) io.stderr.write(shown`${paintOutcome(result, colors)}\n`);
      printFailure(result, io);
      const next = nextLine(result);
      if (!isQuiet && next !== undefined) io.stderr.write(shown`${oneLine(next)}\n`);
    },
    close: () => progress.end(),
  };
}

/** Renders only the answer on stdout: the text, or the outputs as JSON. Progress and cost go to stderr. */
export function createAnswerRenderer(
  io: Io,
  colors: Colors,
  { hasProgress, hasCost }: { readonly hasProgress: boolean; readonly hasCost: boolean },
): Renderer {
  const progress = createProgress(io, colors);
  return {
    event: (event) => {
      if (hasProgress) progress.event(event);
    },
    finish: (result) => {
      progress.end(result);
      if (result.success && result.outputs !== undefined) printJson(io, result.outputs);
      else if (result.success) printResult(result, io);
      if (hasCost) io.stderr.write(shown`${paintOutcome(result, colors)}\n`);
      printFailure(result, io);
    },
    close: () => progress.end(),
  };
}

/**
 * Prints progress lines on stderr. What went wrong is kept until the next line, because the end of the run may report it
 * too: then it is printed once.
 */
function createProgress(
  io: Io,
  colors: Colors,
): { readonly event: Renderer['event']; readonly end: (result?: ThreadResult) => void } {
  const lineOf = runLines();
  let held: Held[] = [];
  const print = ({ tone, text }: ProgressLine): void => {
    io.stderr.write(shown`${paint(tone, text, colors)}\n`);
  };
  return {
    event: (event) => {
      const delivered = deliveredText(event);
      const line: ProgressLine | undefined =
        delivered === undefined
          ? lineOf(event)
          : { tone: 'plain', text: shown`› ${oneLine(delivered)} (delivered)` };
      if (line === undefined) return;
      // the line of a wait names the reason
      if (payloadOf(event, 'retry_scheduled')) held = held.filter(({ isOfModel }) => !isOfModel);
      if (line.reason !== undefined) {
        held.push({ line, isOfModel: event.event_type === 'error_classified' });
        return;
      }
      for (const one of held) print(one.line);
      held = [];
      print(line);
      for (const one of wordedLines(event)) print({ tone: 'plain', text: shown`  ${one}` });
    },
    end: (result) => {
      const told = oneLine(result?.error?.message ?? '');
      for (const { line, isOfModel } of held) {
        const { tone, head = line.text, reason = '' } = line;
        const isTold = told.includes(reason) || (told !== '' && reason.endsWith(told));
        if (!isTold) print(line);
        else if (!isOfModel) print({ tone, text: head });
      }
      held = [];
    },
  };
}

interface Held {
  readonly line: ProgressLine;
  /** True for a failed call of the model. */
  readonly isOfModel: boolean;
}

export function paint(tone: Tone, text: Shown, colors: Colors): Shown {
  const painters = {
    plain: colors.dim,
    good: colors.green,
    warning: colors.yellow,
    bad: colors.red,
  };
  return painters[tone](text);
}

/** Prints the final result on stdout: drawn on a terminal, as it is in a pipe. */
export function printResult(result: ThreadResult, io: Io): void {
  const text = resultText(result);
  if (text === '') return;
  printText(io, text.endsWith('\n') ? text : `${text}\n`);
}

/** Formats `completed hello-7f3k (2 turns, …)`. */
function paintOutcome({ status, thread_id, cost }: ThreadResult, colors: Colors): Shown {
  const state = paint(status === 'completed' ? 'good' : 'bad', oneLine(status), colors);
  return shown`${state} ${oneLine(`${thread_id} (${formatCost(cost)})`)}`;
}

/** Prints why a thread did not succeed, in the common form of failures. */
export function printFailure({ success, status, error, thread_id }: ThreadResult, io: Io): void {
  if (success) return;
  const isSuspended = status === 'suspended';
  io.stderr.write(
    failureText(
      error ?? {
        code: isSuspended ? 'thread_suspended' : 'thread_error',
        message: `thread ${thread_id} ${isSuspended ? 'is suspended' : `ended as ${status}`}`,
        hint: isSuspended ? `Continue with: rye threads resume ${thread_id}` : undefined,
      },
      io.stderr,
    ),
  );
}

/** Actions of an input field below a running thread. */
export interface Steering {
  /** Sends a message to the model. Returns its delivery, and when the model will see it. */
  readonly send: (message: string) => Promise<{ readonly id: string; readonly outlook: string }>;
  /** The person leaves the thread, which continues. */
  readonly detach: () => void;
}

/** Shows one run. `event` never throws, so that a broken display cannot fail the run. */
export interface Renderer {
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Prints the result. Called at most once, and not when the run could not start. */
  readonly finish: (result: ThreadResult) => void;
  /** Asks the person at the terminal about requests; absent: no person is there. */
  readonly attendant?: ApprovalAttendant;
  /** Opens a field in which the person writes to the model; absent: there is no keyboard, or no place for it. */
  readonly openField?: (steering: Steering) => Promise<void>;
  /** Restores the terminal, also after an error. */
  readonly close: () => void;
}

/** Renders `--output-format json`: only the ThreadResult. */
export function createJsonRenderer(io: Io): Renderer {
  const collector = new ResultCollector();
  return {
    event: (event) => collector.note(event),
    finish: (result) => {
      printDocument(io, collector.document(result));
    },
    close: () => {},
  };
}

/** Renders `--output-format stream-json`: each event as a line, then the result line. */
export function createStreamJsonRenderer(io: Io): Renderer {
  const collector = new ResultCollector();
  return {
    event: (event) => {
      collector.note(event);
      printJsonLine(io, event);
    },
    finish: (result) => {
      printJsonLine(io, withWarnings(io, { event_type: 'result', ...collector.document(result) }));
    },
    close: () => {},
  };
}
