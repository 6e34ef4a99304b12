import { readFileSync, statSync } from 'node:fs';
import path from 'node:path';
import type { ThreadResult } from '../../core/thread.ts';
import { createApprovalDialog } from '../approval/approval-dialog.ts';
import type { Io, Sink } from '../io.ts';
import { printLines } from '../output.ts';
import { type Colors } from '../terminal-text.ts';
import { oneLine, shown } from '../visible.ts';
import { createLiveView } from './live-view.ts';
import { renderMarkdown } from './markdown.ts';
import { outcomeLines } from './outcome.ts';
import { outputLines } from './outputs.ts';
import { SteerField } from './steer-field.ts';
import { printFailure, printResult, type Renderer } from './text.ts';

export interface LiveOptions {
  readonly colors: Colors;
  readonly isVerbose: boolean;
  /** The project's folder, for the changes of files; undefined: they are unknown. */
  readonly folder: string | undefined;
  /** False: no header, outcome and cost, because only the answer is asked for. */
  readonly hasFrame: boolean;
}

/**
 * Renders a run for a person at a terminal. The text goes to stdout if that is the terminal too, so that the result is
 * printed once.
 */
export function createLiveRenderer(io: Io, options: LiveOptions): Renderer {
  const { colors, isVerbose, folder, hasFrame } = options;
  const ownsStdout = io.stdout.isTty;
  const sink = ownsStdout ? io.stdout : io.stderr;
  const view = createLiveView({
    io,
    sink,
    colors,
    isVerbose,
    hasHeader: hasFrame,
    words: ownsStdout ? 'all' : 'between',
    readFile: (file) => readSmallFile(folder, file),
  });
  const dialog = io.stdinIsTty ? createApprovalDialog({ io, view, sink, colors }) : undefined;
  let field: SteerField | undefined;
  const close = (told?: string): void => {
    dialog?.close();
    field?.close();
    view.close(told);
  };
  const finish = (result: ThreadResult): void => {
    close(oneLine(result.error?.message ?? ''));
    if (!ownsStdout) printResult(result, io);
    else if (result.outputs) printLines(io, [shown``, ...outputLines(result.outputs, sink)]);
    // that of a failure is the model's last text, which was shown when it came
    else if (result.success && !view.hasShown(result.result)) {
      printMarkdown(result.result, sink, colors);
    }
    if (!result.success || hasFrame || isVerbose) sink.write(shown`\n`);
    printFailure(result, io);
    if (hasFrame || isVerbose || !result.success) {
      const lines = outcomeLines(result, { colors, columns: sink.columns });
      for (const line of lines) sink.write(shown`${line}\n`);
    }
  };
  if (!dialog) return { event: view.event, finish, close };
  const event: Renderer['event'] = (one) => {
    view.event(one);
    dialog.event(one);
    field?.event(one);
  };
  const openField: Renderer['openField'] = async (steering) => {
    field = await SteerField.open({ io, view, sink, colors }, steering);
  };
  return { event, finish, close, attendant: dialog, openField };
}

function printMarkdown(text: string, sink: Sink, colors: Colors): void {
  const lines = renderMarkdown(text, { colors, columns: sink.columns - 1 });
  for (const line of lines) sink.write(shown`${line}\n`);
}

const MAX_BYTES = 256 * 1024;

/** Returns the text of a small file of the project; undefined if it cannot be read. */
function readSmallFile(folder: string | undefined, file: string): string | undefined {
  if (folder === undefined) return undefined;
  try {
    const whole = path.resolve(folder, file);
    const facts = statSync(whole);
    return facts.isFile() && facts.size <= MAX_BYTES ? readFileSync(whole, 'utf8') : undefined;
  } catch {
    return undefined;
  }
}
