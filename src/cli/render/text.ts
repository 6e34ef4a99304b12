import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import { type JsonObject, toText } from '../../core/json.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { formatCost } from '../../core/usage.ts';
import { failureText } from '../failure.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { type Colors, neutralize, oneLine } from '../terminal-text.ts';
import { runLine, type Tone } from './progress-line.ts';

/** Text for a log file or a pipe: short progress lines on stderr, the final result on stdout. */
export function createTextRenderer(io: Io, colors: Colors, isQuiet: boolean): Renderer {
  return {
    event: (event) => {
      const line = isQuiet ? undefined : runLine(event);
      if (line !== undefined) io.stderr.write(`${paint(line.tone, line.text, colors)}\n`);
    },
    finish: (result) => {
      printResult(result, io);
      if (!isQuiet) io.stderr.write(`${paintOutcome(result, colors)}\n`);
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

/** The declared outputs where the directive returned some, one line each, else the last text. */
export function resultText({ result, outputs }: ThreadResult): string {
  return outputs === undefined ? result : outputLines(outputs);
}

/**
 * The final result on stdout, as it is for a program, harmless for a terminal.
 */
export function printResult(result: ThreadResult, io: Io): void {
  const text = resultText(result);
  if (text === '') return;
  const shown = io.stdout.isTty ? neutralize(text) : text;
  io.stdout.write(shown.endsWith('\n') ? shown : `${shown}\n`);
}

/** `completed hello-1771322456 (2 turns, …)`. */
export function paintOutcome({ status, thread_id, cost }: ThreadResult, colors: Colors): string {
  return `${paint(status === 'completed' ? 'good' : 'bad', status, colors)} ${thread_id} (${formatCost(cost)})`;
}

function outputLines(outputs: JsonObject): string {
  return Object.entries(outputs)
    .map(([name, value]) => `${oneLine(`${name}: ${value === undefined ? '' : toText(value)}`)}\n`)
    .join('');
}

/** Says why a thread did not succeed, in the form of every failure. */
export function printFailure({ success, status, error, thread_id }: ThreadResult, io: Io): void {
  if (success) return;
  io.stderr.write(
    failureText(
      error ?? { code: 'thread_error', message: `thread ${thread_id} ended as ${status}` },
    ),
  );
}

/** Shows one run. `event` never throws: a run must not fail because nobody can watch it. */
export interface Renderer {
  readonly event: (event: LogEvent | UnknownEvent) => void;
  /** Prints the result. Called at most once, and not when the run could not start. */
  readonly finish: (result: ThreadResult) => void;
  /** Leaves the terminal clean, whatever happened. */
  readonly close: () => void;
}

/** `--output-format json`: the ThreadResult as the only output. */
export function createJsonRenderer(io: Io): Renderer {
  return {
    event: () => {},
    finish: (result) => {
      printDocument(io, result);
    },
    close: () => {},
  };
}

/** `--output-format stream-json`: every event as a line, then the result line. */
export function createStreamJsonRenderer(io: Io): Renderer {
  return {
    event: (event) => {
      printLine(io, JSON.stringify(event));
    },
    finish: (result) => {
      printLine(io, JSON.stringify({ event_type: 'result', ...result }));
    },
    close: () => {},
  };
}
