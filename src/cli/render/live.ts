import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { Io } from '../io.ts';
import type { Colors } from '../output.ts';
import { neutralise } from '../terminal-text.ts';
import { assistantText, payloadOf, runLine } from './progress-line.ts';
import type { Renderer } from './renderer.ts';
import { createStatusLine } from './status-line.ts';
import { paint, paintOutcome, printFailure, printResult } from './text.ts';

const TICK_MS = 1000;

/**
 * Text for a person at a terminal: the model's words as they come, tool calls as short lines, and a status line on
 * stderr that is redrawn. Words go to stdout when that is the terminal too, so that the result stands there once.
 */
export function createLiveRenderer(io: Io, colors: Colors): Renderer {
  const status = createStatusLine(io);
  const words = io.stdout.isTty ? io.stdout : io.stderr;
  /** What the model said since its last whole message; '' when nothing is on an open line. */
  let spoken = '';
  let lastMessage = '';

  const endSpeech = (): void => {
    if (spoken !== '' && !spoken.endsWith('\n')) words.write('\n');
    spoken = '';
  };
  const speak = (text: string): void => {
    if (text === '') return;
    status.hide();
    words.write(neutralise(text));
    spoken += text;
  };
  const show = (event: LogEvent | UnknownEvent): void => {
    status.update(event);
    const delta: EventPayloads['token_delta'] | undefined = payloadOf(event, 'token_delta');
    if (delta !== undefined) {
      speak(delta.text);
      return;
    }
    const message = assistantText(event);
    if (message !== undefined) {
      if (spoken === '') speak(message);
      lastMessage = message;
      endSpeech();
    }
    const line = runLine(event);
    if (line !== undefined) {
      endSpeech();
      status.hide();
      io.stderr.write(`${paint(line.tone, line.text, colors)}\n`);
    }
    if (spoken === '') status.draw();
  };
  const stopTicking = io.repeat(TICK_MS, () => {
    if (spoken === '') status.draw();
  });
  return {
    event: show,
    finish: (result: ThreadResult) => {
      endSpeech();
      status.hide();
      const isShown = words === io.stdout && lastMessage.trim() === result.result.trim();
      if (!isShown || result.outputs !== undefined) printResult(result, io);
      io.stderr.write(`${paintOutcome(result, colors)}\n`);
      printFailure(result, io);
    },
    close: () => {
      stopTicking();
      status.hide();
    },
  };
}
