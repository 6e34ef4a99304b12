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
import { type Colors, displayWidth, neutralize, wrapText } from '../terminal-text.ts';

/** The colors and the width of the terminal. */
export interface LineStyle {
  readonly colors: Colors;
  readonly columns: number;
}

const INDENT = '  ';

/** Formats a message of the person, as it stays on the screen, wrapped between words. `note` is its state. */
export function echoLines(
  text: string,
  { colors, columns }: LineStyle,
  note?: string,
): readonly string[] {
  const room = columns - INDENT.length;
  const lines = wrapText(neutralize(text).trimEnd(), room);
  const shown = lines.map(
    (line, at) => `${at === 0 ? colors.cyan('› ') : INDENT}${colors.bold(line)}`,
  );
  if (note === undefined) return shown;
  const state = colors.dim(`(${note})`);
  const fits = displayWidth(`${lines.at(-1) ?? ''}${INDENT}(${note})`) <= room;
  return fits
    ? [...shown.slice(0, -1), `${shown.at(-1) ?? ''}${INDENT}${state}`]
    : [...shown, `${INDENT}${state}`];
}

/** Formats a remark of rye, wrapped between words. */
export function remarkLines(text: string, { colors, columns }: LineStyle): readonly string[] {
  return wrapText(text, columns).map(colors.dim);
}

/** Formats a failure in the common form, with its hint, wrapped between words. */
export function failureLines(
  error: Parameters<typeof failureText>[0],
  style: LineStyle,
): readonly string[] {
  const { colors, columns } = style;
  const [first = '', ...rest] = failureText(error).trimEnd().split('\n');
  return [
    ...wrapText(first, columns).map(colors.red),
    ...rest.flatMap((line) => remarkLines(line, style)),
  ];
}

/** A column of explanations that is narrower than this is not worth its place. */
const LEAST_COLUMN = 24;

/** Formats names with their explanations: beside them, or below where there is no room. */
export function helpLines(
  rows: readonly (readonly [string, string])[],
  style: LineStyle,
): readonly string[] {
  const { columns } = style;
  const width = Math.max(...rows.map(([name]) => displayWidth(name))) + 2 * INDENT.length;
  const isBeside = columns - width >= LEAST_COLUMN;
  const indent = isBeside ? width : 3 * INDENT.length;
  return rows.flatMap(([name, about]) => {
    const [first = '', ...rest] = remarkLines(about, { ...style, columns: columns - indent });
    const head = `${INDENT}${name}`;
    const lines = isBeside ? [`${head.padEnd(width)}${first}`] : [head, ' '.repeat(indent) + first];
    return [...lines, ...rest.map((line) => ' '.repeat(indent) + line)];
  });
}

const ENDS: Partial<Record<ThreadResult['status'], string>> = {
  cancelled: 'stopped',
  error: 'failed',
};

interface MeterFacts {
  readonly result: ThreadResult;
  /** The cost of this message alone. */
  readonly cost: Cost;
  /** The spend limit of the conversation in USD. */
  readonly budget: number | undefined;
}

/** Formats the end of an answer: its cost, that of the conversation, and why it failed if it did. */
export function meterLines(facts: MeterFacts, style: LineStyle): readonly string[] {
  const { result, cost, budget } = facts;
  const { colors, columns } = style;
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
    : [
        ...wrapText(own, columns - INDENT.length).map(
          (line, at) => `${at === 0 ? mark : ' '} ${line}`,
        ),
        ...remarkLines(total, { colors, columns: columns - INDENT.length }).map(
          (line) => INDENT + line,
        ),
      ];
  if (result.success || isStopped || isWaiting || error === undefined) return meter;
  const hint =
    error.code === 'limit_spend' ? 'Let the next message spend more: /budget 0.50' : error.hint;
  return [...failureLines({ code: error.code, message: error.message, hint }, style), ...meter];
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
