import { EXIT, exitCodeOf } from '../../../kernel/core/errors.ts';
import type { ThreadResult } from '../../../kernel/core/thread.ts';
import { costFacts } from '../../../kernel/core/usage.ts';
import { type Colors, displayWidth, type Paint } from '../terminal-text.ts';
import { oneLine, type Shown, shown } from '../visible.ts';

/**
 * Returns the next command for a thread that ended before it was done: `resume: rye threads resume ask-7f3k`. Undefined
 * after a success.
 */
export function nextLine(result: ThreadResult): string | undefined {
  const { thread_id: id, status, error, continuation_thread_id: successor } = result;
  if (status === 'completed') return undefined;
  if (status === 'continued') {
    return `continued: rye threads show ${successor ?? id}`;
  }
  if (error && exitCodeOf(error.code) === EXIT.integrity) {
    return `verify: rye verify thread ${id}`;
  }
  // a resume does nothing before a person has decided
  const [request] = result.approvals ?? [];
  if (request !== undefined) return `next: rye approvals show ${request}`;
  const more = moreOf(result);
  const [verb, options] = (more === '' ? hintedCommand(result) : undefined) ?? ['resume', more];
  return `${verb === 'resume' ? verb : 'next'}: rye threads ${verb} ${id}${options}`;
}

/** Returns the first command about the thread that the hint of its error names, so that both lead the same way. */
function hintedCommand({ thread_id: id, error }: ThreadResult): [string, string] | undefined {
  const hint = error?.hint ?? '';
  for (const { 0: found, 1: verb = '', 2: named = '', index } of hint.matchAll(THREAD_COMMAND)) {
    if (named.replace(/[).,:;]+$/, '') !== id) continue;
    return [verb, hint.startsWith(' --refresh', index + found.length) ? ' --refresh' : ''];
  }
  return undefined;
}

const THREAD_COMMAND = /rye threads ([a-z]+) (\S+)/g;

/** Returns the option that grants as much again of the limit that ended the thread; without it, a resume ends at once. */
function moreOf({ error }: ThreadResult): string {
  const { limit, max, grant = max, raise_limits: isRaise } = error?.details ?? {};
  if (typeof limit !== 'string' || typeof grant !== 'number' || grant <= 0) return '';
  return ` --limit ${limit}=${grant}${isRaise === true ? ' --raise-limits' : ''}`;
}

/** Limits that end a thread as they should. */
const STOPS: Readonly<Record<string, string>> = {
  limit_spend: 'budget',
  limit_turns: 'turn limit',
  limit_tokens: 'token limit',
  limit_duration_seconds: 'time limit',
};

const GAP = '        ';

/** Returns the mark and the color of a thread that did not complete. */
function endOf(
  status: ThreadResult['status'],
  limit: string | undefined,
  colors: Colors,
): { readonly mark: string; readonly paint: Paint } {
  if (status === 'suspended') return { mark: '‖', paint: colors.yellow };
  if (limit !== undefined) return { mark: '■', paint: colors.yellow };
  return { mark: '✗', paint: status === 'error' ? colors.red : colors.yellow };
}

/**
 * Formats `✗ failed · 3 turns · 360 tokens · $0.0012 · 6.1s        resume: rye threads resume ask-7f3k`, with the command
 * that opens the thread where the terminal is wide enough.
 */
export function outcomeLines(
  result: ThreadResult,
  { colors, columns }: { readonly colors: Colors; readonly columns: number },
): readonly Shown[] {
  const { status, error, cost } = result;
  const limit = STOPS[error?.code ?? ''];
  const isGood = status === 'completed';
  const words = limit === undefined ? status : `stopped at the ${limit}`;
  const parts = [...(isGood ? [] : [words === 'error' ? 'failed' : words]), ...costFacts(cost)];
  const whole = parts.join(' · ');
  const isWide = displayWidth(whole) + 2 < columns;
  const facts = oneLine(
    isWide ? whole : parts.filter((part) => !part.endsWith(' tokens')).join(' · '),
  );
  const { mark, paint } = isGood
    ? { mark: '✓', paint: colors.green }
    : endOf(status, limit, colors);
  const first = shown`${paint(oneLine(mark))} ${isGood ? facts : paint(facts)}`;
  const next = nextLine(result) ?? '';
  const width = 2 + displayWidth(facts) + GAP.length;
  const isOneLine = width + displayWidth(next) < columns;
  const room = columns - (isOneLine ? width : 0) - displayWidth(next);
  const commands = oneLine(`${next}${openPart(result, room)}`.trimStart());
  const rest = colors.dim(commands);
  if (commands === '') return [first];
  return isOneLine ? [shown`${first}${GAP}${rest}`] : [first, rest];
}

/** Returns the command that opens the thread, if it fits; nothing for a log that has to be verified first. */
function openPart({ thread_id: id, error }: ThreadResult, room: number): string {
  const part = `    open: rye threads open ${id}`;
  const isBroken = error !== undefined && exitCodeOf(error.code) === EXIT.integrity;
  return isBroken || displayWidth(part) >= room ? '' : part;
}
