import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { JsonObject } from '../../core/json.ts';
import {
  type Cost,
  formatSeconds,
  formatTokens,
  formatUsd,
  NO_COST,
  totalTokens,
} from '../../core/usage.ts';
import type { Io } from '../io.ts';
import { ERASE_LINE, truncate } from '../terminal-text.ts';
import { payloadOf } from './progress-line.ts';

/** One line at the bottom of stderr: turns, tokens and spend against their limits. */
export interface StatusLine {
  readonly update: (event: LogEvent | UnknownEvent) => void;
  readonly draw: () => void;
  readonly hide: () => void;
}

export function createStatusLine(io: Io): StatusLine {
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

interface StatusFacts {
  readonly turn: number;
  readonly cost: Cost;
  readonly limits: JsonObject;
  readonly elapsedSeconds: number;
}

/** `turn 2/25 · 12.3k/1.0M tokens · $0.0310/$5.00 · 4.2s`. */
function statusText({ turn, cost, limits, elapsedSeconds }: StatusFacts): string {
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
