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
  // a resume does nothing before a person has decided
  const [request] = result.approvals ?? [];
  if (request !== undefined) return `next: rye approvals show ${request}`;
  return `resume: rye threads resume ${id}${moreOf(result)}`;
}

/** Returns the option that grants as much again of the limit that ended the thread; without it, a resume ends at once. */
function moreOf({ error }: ThreadResult): string {
  const { limit, max, grant = max, raise_limits: isRaise } = error?.details ?? {};
  if (typeof limit !== 'string' || typeof grant !== 'number' || grant <= 0) return '';
  return ` --limit ${limit}=${grant}${isRaise === true ? ' --raise-limits' : ''}`;
}

const GAP = '        ';

/**
 * Formats `✓ 3 turns · 360 tokens · $0.0012 · 6.1s        resume: rye threads resume ask-7f3k`, with the command that
 * opens the thread where the terminal is wide enough.
 */
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
  const isGood = status === 'completed';
  const mark = isGood ? '✓' : status === 'suspended' ? '‖' : '✗';
  const paint = isGood ? colors.green : status === 'error' ? colors.red : colors.yellow;
  const first = `${paint(mark)} ${isGood ? facts : paint(facts)}`;
  const next = nextLine(result);
  const isOneLine = 2 + displayWidth(facts) + GAP.length + displayWidth(next) < columns;
  const taken = isOneLine ? 2 + displayWidth(facts) + GAP.length : 0;
  const commands = `${next}${openPart(result, columns - taken - displayWidth(next))}`;
  if (isOneLine) return [`${first}${GAP}${colors.dim(commands)}`];
  return [first, colors.dim(commands)];
}

/** Returns the command that opens the thread, if it fits; nothing for a log that has to be verified first. */
function openPart({ thread_id: id, error }: ThreadResult, room: number): string {
  const part = `    open: rye threads open ${id}`;
  const isBroken = error !== undefined && exitCodeOf(error.code) === EXIT.integrity;
  return isBroken || displayWidth(part) >= room ? '' : part;
}
