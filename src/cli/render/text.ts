import type { ApprovalAttendant } from '../../app/api/approvals.ts';
import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { formatCost } from '../../core/usage.ts';
import { failureText } from '../failure.ts';
import type { Io } from '../io.ts';
import { printDocument, printJson, printLine, resultText } from '../output.ts';
import { ResultCollector } from '../result-document.ts';
import { type Colors, neutralize } from '../terminal-text.ts';
import { withWarnings } from '../warnings.ts';
import { nextLine } from './outcome.ts';
import { runLines, type Tone } from './progress-line.ts';

/** Renders text for a log file or a pipe: short progress lines on stderr, the final result on stdout. */
export function createTextRenderer(io: Io, colors: Colors, isQuiet: boolean): Renderer {
  const lineOf = runLines();
  return {
    event: (event) => {
      const line = isQuiet ? undefined : lineOf(event);
      if (line !== undefined) io.stderr.write(`${paint(line.tone, line.text, colors)}\n`);
    },
    finish: (result) => {
      printResult(result, io);
      if (!isQuiet) io.stderr.write(`${paintOutcome(result, colors)}\n`);
      printFailure(result, io);
      if (!isQuiet) io.stderr.write(`${nextLine(result)}\n`);
    },
    close: () => {},
  };
}

/** Renders only the answer on stdout: the text, or the outputs as JSON. Progress and cost go to stderr. */
export function createAnswerRenderer(
  io: Io,
  colors: Colors,
  { hasProgress, hasCost }: { readonly hasProgress: boolean; readonly hasCost: boolean },
): Renderer {
  const lineOf = runLines();
  return {
    event: (event) => {
      const line = hasProgress ? lineOf(event) : undefined;
      if (line !== undefined) io.stderr.write(`${paint(line.tone, line.text, colors)}\n`);
    },
    finish: (result) => {
      if (result.success && result.outputs !== undefined) printJson(io, result.outputs);
      else if (result.success) printResult(result, io);
      if (hasCost) io.stderr.write(`${paintOutcome(result, colors)}\n`);
      printFailure(result, io);
    },
    close: () => {},
  };
}

export function paint(tone: Tone, text: string, colors: Colors): string {
  const painters = {
    plain: colors.dim,
    good: colors.green,
    warning: colors.yellow,
    bad: colors.red,
  };
  return painters[tone](text);
}

/** Prints the final result on stdout, neutralized if it is a terminal. */
export function printResult(result: ThreadResult, io: Io): void {
  const text = resultText(result);
  if (text === '') return;
  const shown = io.stdout.isTty ? neutralize(text) : text;
  io.stdout.write(shown.endsWith('\n') ? shown : `${shown}\n`);
}

/** Formats `completed hello-7f3k (2 turns, …)`. */
function paintOutcome({ status, thread_id, cost }: ThreadResult, colors: Colors): string {
  return `${paint(status === 'completed' ? 'good' : 'bad', status, colors)} ${thread_id} (${formatCost(cost)})`;
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

/** Shows one run. `event` never throws, so that a broken display cannot fail the run. */
export interface Renderer {
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Prints the result. Called at most once, and not when the run could not start. */
  readonly finish: (result: ThreadResult) => void;
  /** Asks the person at the terminal about requests; absent: no person is there. */
  readonly attendant?: ApprovalAttendant;
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
      printLine(io, JSON.stringify(event));
    },
    finish: (result) => {
      printLine(
        io,
        JSON.stringify(withWarnings(io, { event_type: 'result', ...collector.document(result) })),
      );
    },
    close: () => {},
  };
}
