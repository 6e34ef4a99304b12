import { personTextOf, type TreeEntry } from '../../../kernel/app/api/trees.ts';
import type { ErrorInfo } from '../../../kernel/core/errors.ts';
import { textOf } from '../../../kernel/core/message.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import {
  type Cost,
  formatSeconds,
  formatSpend,
  formatTokens,
  formatUsd,
  totalTokens,
} from '../../../kernel/core/usage.ts';
import { failureText } from '../../cli/failure.ts';
import { count, pad } from '../../cli/output.ts';
import type { LineStyle } from '../render/echo.ts';
import { payloadOf } from '../render/progress-line.ts';
import { displayWidth, wrapText } from '../terminal-text.ts';
import { linesOf, oneLine, type Shown, shown, trimmed } from '../visible.ts';

const INDENT = '  ';

/** Formats a remark of rye, wrapped between words. */
export function remarkLines(text: Shown, { colors, columns }: LineStyle): readonly Shown[] {
  return wrapText(text, columns).map(colors.dim);
}

/** Formats a failure in the common form, with its hint, wrapped between words. */
export function failureLines(
  error: Parameters<typeof failureText>[0],
  style: LineStyle,
): readonly Shown[] {
  const { colors, columns } = style;
  const [first = shown``, ...rest] = linesOf(trimmed(failureText(error)));
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
): readonly Shown[] {
  const { columns } = style;
  const width = Math.max(...rows.map(([name]) => displayWidth(name))) + 2 * INDENT.length;
  const isBeside = columns - width >= LEAST_COLUMN;
  const indent = isBeside ? width : 3 * INDENT.length;
  return rows.flatMap(([name, about]) => {
    const room = { ...style, columns: columns - indent };
    const [first = shown``, ...rest] = remarkLines(oneLine(about), room);
    const head = oneLine(`${INDENT}${name}`);
    const before = oneLine(' '.repeat(indent));
    const lines = isBeside
      ? [shown`${pad(head, width)}${first}`]
      : [head, shown`${before}${first}`];
    return [...lines, ...rest.map((line) => shown`${before}${line}`)];
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
    formatSpend(cost),
    formatSeconds(cost.elapsed_seconds),
  ].join(' · ');
  const limit = budget === undefined ? '' : ` of ${formatUsd(budget)}`;
  const total = oneLine(`total ${formatSpend(result.cost)}${limit}`);
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
  const { code, message } = error;
  return [...failureLines({ code, message, hint: hintInChat(error) }, style), ...meter];
}

/** Replaces the command that resumes a thread by that of the chat. Another key counts once the chat is opened again. */
function hintInChat({ code, hint, details }: ErrorInfo): string | undefined {
  if (code === 'limit_spend') return 'Let the next message spend more: /budget 0.50';
  // Enter would send the refused message again
  if (hint?.includes(' --from ')) return hint;
  return hint
    ?.replace('Pass --model with one of: rye models list.', 'Choose another: /model MODEL')
    .replace(
      /rye threads resume \S+( --refresh)?/,
      details?.['category'] === 'auth' ? 'rye chat --continue' : 'press Enter',
    );
}

/** The last question and answer of a conversation: what a person has to know to continue it. */
export interface Exchange {
  readonly question: string | undefined;
  readonly answer: string;
  /** The answer was interrupted, and nothing continued it. */
  readonly isCut: boolean;
}

/** Finds the last exchange on a path. An interrupted answer is joined with what continued it. */
export function lastExchange(path: readonly TreeEntry[]): Exchange {
  const asked = path.findLastIndex((entry) => personTextOf(entry) !== undefined);
  let answer = '';
  let isCut = false;
  let isContinued = false;
  for (const entry of path.slice(asked + 1)) {
    isContinued ||= payloadOf(entry, 'custom_message')?.custom_type === 'continue_cut_answer';
    const message = payloadOf(entry, 'message')?.message;
    if (message?.role !== 'assistant') continue;
    const text = textOf(message.content);
    if (text === '') continue;
    answer = isContinued ? answer + text : text;
    isCut = message.stop_reason === 'aborted';
    isContinued = false;
  }
  const question = path[asked];
  return { question: question && personTextOf(question), answer, isCut };
}
