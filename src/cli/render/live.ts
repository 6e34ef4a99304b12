import type { EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import type { ThreadResult } from '../../core/thread.ts';
import {
  type Cost,
  formatSeconds,
  formatTokens,
  formatUsd,
  NO_COST,
  totalTokens,
} from '../../core/usage.ts';
import type { Io } from '../io.ts';
import { type Colors, ERASE_LINE, neutralize, truncate } from '../terminal-text.ts';
import { assistantText, payloadOf, runLine } from './progress-line.ts';
import { paint, paintOutcome, printFailure, printResult, type Renderer } from './text.ts';

const TICK_MS = 1000;

/**
 * Renders text for a person at a terminal: the model's words as they arrive, tool calls as short lines, and a redrawn
 * status line on stderr. Words go to stdout if that is the terminal too, so that the result is printed once.
 */
export function createLiveRenderer(io: Io, colors: Colors): Renderer {
  const status = createStatusLine(io);
  const words = io.stdout.isTty ? io.stdout : io.stderr;
  /** Words of the model since its last complete message; '' if no line is open. */
  let spoken = '';
  let lastMessage = '';

  const endSpeech = (): void => {
    if (spoken !== '' && !spoken.endsWith('\n')) words.write('\n');
    spoken = '';
  };
  const speak = (text: string): void => {
    if (text === '') return;
    status.hide();
    words.write(neutralize(text));
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

/** One line at the bottom of stderr: turns, tokens and spend with their limits. */
export interface StatusLine {
  readonly update: (event: LogEvent | UnknownEvent) => void;
  readonly draw: () => void;
  readonly hide: () => void;
}

function createStatusLine(io: Io): StatusLine {
  const startedAt = io.monotonic();
  let turn = 0;
  let cost: Cost = NO_COST;
  let limits: JsonObject = {};
  let isVisible = false;
  return {
    update: (event) => {
      limits = payloadOf(event, 'thread_started')?.limits ?? limits;
      turn = payloadOf(event, 'turn_started')?.turn ?? turn;
      cost = payloadOf(event, 'cost')?.total ?? cost;
    },
    draw: () => {
      const elapsedSeconds = (io.monotonic() - startedAt) / 1000;
      const text = statusText({ turn, cost, limits, elapsedSeconds });
      io.stderr.write(`${ERASE_LINE}${truncate(text, io.stderr.columns - 1)}`);
      isVisible = true;
    },
    hide: () => {
      if (isVisible) io.stderr.write(ERASE_LINE);
      isVisible = false;
    },
  };
}

interface Status {
  readonly turn: number;
  readonly cost: Cost;
  readonly limits: JsonObject;
  readonly elapsedSeconds: number;
}

/** Formats `turn 2/25 · 12.3k/1.0M tokens · $0.0310/$5.00 · 4.2s`. */
function statusText({ turn, cost, limits, elapsedSeconds }: Status): string {
  const against = (current: string, name: string, format: (value: number) => string): string => {
    const limit = limits[name];
    return typeof limit === 'number' ? `${current}/${format(limit)}` : current;
  };
  return [
    `turn ${against(String(turn), 'turns', String)}`,
    `${against(formatTokens(totalTokens(cost)), 'tokens', formatTokens)} tokens`,
    against(formatUsd(cost.spend), 'spend', formatUsd),
    formatSeconds(elapsedSeconds),
  ].join(' · ');
}
