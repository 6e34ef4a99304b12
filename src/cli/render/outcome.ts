import { EXIT, exitCodeOf } from '../../core/errors.ts';
import type { ThreadResult } from '../../core/thread.ts';
import { formatSeconds, formatTokens, formatUsd, totalTokens } from '../../core/usage.ts';
import { count } from '../output.ts';
import { type Colors, displayWidth } from '../terminal-text.ts';

/** Returns the next command for a thread that ended: `resume: rye threads resume ask-7f3k`. */
export function nextLine(result: ThreadResult): string {
  const { thread_id: id, status, error, continuation_thread_id: successor } = result;
  if (status === 'continued') {
    return `continued: rye threads show ${successor ?? id}`;
  }
  if (error && exitCodeOf(error.code) === EXIT.integrity) {
    return `verify: rye verify thread ${id}`;
  }
  return `resume: rye threads resume ${id}`;
}

const GAP = '        ';

/** Formats `✓ 3 turns · 360 tokens · $0.0012 · 6.1s        resume: rye threads resume ask-7f3k`. */
export function outcomeLines(
  result: ThreadResult,
  { colors, columns }: { readonly colors: Colors; readonly columns: number },
): readonly string[] {
  const { status, cost } = result;
  const facts = [
    ...(status === 'completed' ? [] : [status === 'error' ? 'failed' : status]),
    count(cost.turns, 'turn'),
    `${formatTokens(totalTokens(cost))} tokens`,
    formatUsd(cost.spend),
    formatSeconds(cost.elapsed_seconds),
  ].join(' · ');
  const next = nextLine(result);
  const isGood = status === 'completed';
  const mark = isGood ? '✓' : status === 'suspended' ? '‖' : '✗';
  const paint = isGood ? colors.green : status === 'error' ? colors.red : colors.yellow;
  const first = `${paint(mark)} ${isGood ? facts : paint(facts)}`;
  if (2 + displayWidth(facts) + GAP.length + displayWidth(next) < columns) {
    return [`${first}${GAP}${colors.dim(next)}`];
  }
  return [first, colors.dim(next)];
}
