import type { Message } from '../../core/message.ts';
import { textOf } from '../../core/message.ts';
import type { ThreadResult } from '../../core/thread.ts';
import {
  type Cost,
  formatSeconds,
  formatTokens,
  formatUsd,
  totalTokens,
} from '../../core/usage.ts';
import { failureText } from '../failure.ts';
import { count } from '../output.ts';
import { type Colors, displayWidth, neutralize } from '../terminal-text.ts';

/** Formats a message of the person, as it stays on the screen. `note` is its state. */
export function echoLines(text: string, colors: Colors, note?: string): readonly string[] {
  const lines = neutralize(text).trimEnd().split('\n');
  return lines.map((line, at) => {
    const end = note !== undefined && at === lines.length - 1 ? colors.dim(`  (${note})`) : '';
    return `${at === 0 ? colors.cyan('› ') : '  '}${colors.bold(line)}${end}`;
  });
}

/** Formats a failure in the common form, with its hint. */
export function failureLines(
  error: Parameters<typeof failureText>[0],
  colors: Colors,
): readonly string[] {
  const [first = '', ...rest] = failureText(error).trimEnd().split('\n');
  return [colors.red(first), ...rest.map(colors.dim)];
}

const ENDS: Partial<Record<ThreadResult['status'], string>> = {
  cancelled: 'stopped',
  error: 'failed',
};

export interface MeterFacts {
  readonly result: ThreadResult;
  /** The cost of this message alone. */
  readonly cost: Cost;
  /** The spend limit of the conversation in USD. */
  readonly budget: number | undefined;
  readonly columns: number;
}

/** Formats the end of an answer: its cost, that of the conversation, and why it failed if it did. */
export function meterLines(facts: MeterFacts, colors: Colors): readonly string[] {
  const { result, cost, budget, columns } = facts;
  const { status, error } = result;
  const isStopped = status === 'cancelled';
  const isWaiting = result.waiting_for !== undefined;
  const mark = result.success
    ? colors.green('✓')
    : isStopped || isWaiting
      ? colors.yellow(isWaiting ? '‖' : '■')
      : colors.red('✗');
  const own = [
    ...(result.success ? [] : [isWaiting ? 'waits for your decision' : (ENDS[status] ?? status)]),
    count(cost.turns, 'turn'),
    `${formatTokens(totalTokens(cost))} tokens`,
    formatUsd(cost.spend),
    formatSeconds(cost.elapsed_seconds),
  ].join(' · ');
  const limit = budget === undefined ? '' : ` of ${formatUsd(budget)}`;
  const total = `total ${formatUsd(result.cost.spend)}${limit}`;
  const fits = displayWidth(own) + displayWidth(total) + 8 < columns;
  const meter = fits
    ? [`${mark} ${own}     ${colors.dim(total)}`]
    : [`${mark} ${own}`, `  ${colors.dim(total)}`];
  if (result.success || isStopped || isWaiting || error === undefined) return meter;
  const hint =
    error.code === 'limit_spend' ? 'Let the next message spend more: /budget 0.50' : error.hint;
  return [...failureLines({ code: error.code, message: error.message, hint }, colors), ...meter];
}

/** Returns the last question and answer of a conversation: what a person has to know to continue it. */
export function lastExchange(messages: readonly Message[]): {
  readonly question: string | undefined;
  readonly answer: string | undefined;
} {
  const asked = messages.findLastIndex(({ role }) => role === 'user');
  const question = messages[asked];
  const answer = messages
    .slice(asked + 1)
    .findLast((message) => message.role === 'assistant' && textOf(message.content) !== '');
  return {
    question: question && textOf(question.content),
    answer: answer && textOf(answer.content),
  };
}
