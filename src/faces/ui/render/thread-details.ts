import type { ListedApproval } from '../../../kernel/app/api/approvals.ts';
import type { ThreadDetails, UnverifiedPart } from '../../../kernel/app/api/threads.ts';
import type { ActiveTurn, Delivery } from '../../../kernel/core/delivery.ts';
import { describeChanges } from '../../../kernel/core/isolation.ts';
import { LIMIT_NAMES, type LimitName } from '../../../kernel/core/limits.ts';
import {
  type CostedThread,
  isActive,
  isFinal,
  type ThreadRecord,
} from '../../../kernel/core/thread.ts';
import {
  addFamilyCost,
  formatCost,
  formatSeconds,
  formatSpend,
  formatTokens,
  formatUsd,
  totalTokens,
} from '../../../kernel/core/usage.ts';
import { relativePath, resultText } from '../../cli/output.ts';
import type { Io } from '../io.ts';
import { type Colors, displayWidth, truncate, wrapText } from '../terminal-text.ts';
import { oneLine, partOf, type Shown, shown, trimmed, visible } from '../visible.ts';
import { stateMark, stateWord, workOf } from './status-mark.ts';
import { formatAge } from './thread-list.ts';
import { siblingLines } from './thread-tree.ts';

interface ShownThread extends ThreadDetails {
  /** Requests that wait for a decision. */
  readonly requests: readonly ListedApproval[];
}

interface DetailStyle {
  readonly colors: Colors;
  /** Milliseconds since 1970. */
  readonly now: number;
  /** Columns of the terminal; absent: nothing is cut. */
  readonly columns?: number;
}

type Fact = readonly [name: string, value: string | null];

/** Describes a thread for people: its state first, the result and the next command last. */
export function threadLines(details: ShownThread, style: DetailStyle, io: Io): readonly Shown[] {
  const { thread, chain, paths } = details;
  const { colors, columns } = style;
  // a thread that was handed off has no result; the session has
  const result = resultText(chain.at(-1) ?? thread);
  const facts: readonly Fact[] = [
    ['directive', thread.directive],
    ['label', workOf(thread) || null],
    ['model', modelOf(details)],
    ['created', `${thread.created_at} (${formatAge(thread.created_at, style.now)})`],
    ['completed', thread.completed_at],
    ['time', timeOf(thread, style.now)],
    ['cost', costOf(thread)],
    ['estimated', estimateOf(thread)],
    ...limitFacts(details),
    ['changes', changesOf(details)],
    ['imported', describeOrigin(details.document?.imported_from)],
    ['active turn', describeTurn(details.active_turn)],
    ['parent', thread.parent_id],
    ['error', thread.error === null ? null : `${thread.error.message} [${thread.error.code}]`],
    ['hint', thread.error?.hint ?? null],
    ['chain', chain.length > 1 ? chain.map(({ thread_id }) => thread_id).join(' → ') : null],
    ['session', describeSession(chain)],
    ['files', relativePath(paths.thread, io)],
    ['transcript', relativePath(paths.transcript, io)],
    ['knowledge', relativePath(paths.knowledge, io)],
    ...details.requests.map((request): Fact => ['approval', describeRequest(request)]),
  ];
  return [
    ...wrapFields(
      [
        field('thread', thread.thread_id),
        statusLine(details, style),
        ...facts.flatMap(([name, value]) => (value === null ? [] : [field(name, value)])),
        ...details.unverified.map((part) => describeUnverified(thread, part)),
      ],
      columns,
    ),
    ...childLines(details, style),
    ...wrapFields(details.deliveries.map(describeDelivery), columns),
    ...(result === '' ? [] : [shown``, trimmed(visible(result))]),
    ...(columns === undefined
      ? []
      : [shown``, colors.dim(truncate(oneLine(nextCommand(details)), columns))]),
  ];
}

/** Formats the state, on a terminal with its mark. */
function statusLine({ thread, explanation }: ShownThread, { colors, columns }: DetailStyle): Shown {
  const isGone = isActive(thread.status) && explanation?.startsWith('crashed') === true;
  const state = isGone ? { ...thread, process_gone: true as const } : thread;
  const { mark, paint } = stateMark(state, colors);
  const sign = columns === undefined ? '' : `${mark} `;
  const why = explanation === null ? '' : shown` (${oneLine(explanation)})`;
  return shown`${field('status', '')}${paint(oneLine(`${sign}${thread.status}`))}${why}`;
}

function modelOf({ thread, document }: ShownThread): string | null {
  if (thread.model === null || thread.model === '') return null;
  return document === null ? thread.model : `${document.provider}/${thread.model}`;
}

function timeOf(
  { status, cost, created_at: created, working_since: since = created }: CostedThread,
  now: number,
): string {
  const seconds = isActive(status) ? Math.max(0, now - Date.parse(since)) / 1000 : undefined;
  return formatSeconds(seconds ?? cost.elapsed_seconds);
}

/** Formats the own cost, and that of the whole family if children cost something. */
function costOf({ cost }: CostedThread): string {
  if (cost.total.spend === cost.spend) return formatCost(cost);
  const { own, total } = cost;
  const part = ({ turns, tokens, ...spent }: typeof own): string =>
    `${formatSpend(spent)}, ${turns} turn${turns === 1 ? '' : 's'}, ${formatTokens(tokens)} tokens`;
  return `${part(total)} in all; own ${part(own)}`;
}

/** Formats the part of the cost that no provider counted. */
function estimateOf({ cost: { total } }: CostedThread): string | null {
  const { spend, estimated_spend_usd: estimate = 0 } = total;
  if (estimate === 0) return null;
  const measured = formatUsd(Math.max(0, spend - estimate));
  return `≤ ${formatUsd(estimate)} for a model call that a crash cut, ${measured} measured`;
}

/** Formats each limit with what is used and left of it. */
function limitFacts({ thread, document }: ShownThread): readonly Fact[] {
  if (document === null) return [];
  const { cost } = thread;
  const used: Readonly<Partial<Record<LimitName, number>>> = {
    turns: cost.turns,
    tokens: totalTokens(cost),
    spend: cost.total.spend,
    duration_seconds: cost.elapsed_seconds,
    spawns: thread.spawn_count,
  };
  return LIMIT_NAMES.flatMap((name, at): readonly Fact[] => {
    const [limit, spent] = [document.limits[name], used[name]];
    const heading = at === 0 ? 'limits' : '';
    if (spent === undefined) return [[heading, `${name} ${limit}`]];
    const format = FORMATS[name] ?? String;
    const left = format(Math.max(0, limit - spent));
    const usedUp = name === 'spend' ? formatSpend(cost.total) : format(spent);
    return [[heading, `${name} ${usedUp} of ${format(limit)}, ${left} left`]];
  });
}

const FORMATS: Readonly<Partial<Record<LimitName, (value: number) => string>>> = {
  tokens: formatTokens,
  spend: formatUsd,
  duration_seconds: formatSeconds,
};

function describeRequest({ id, tool, preview }: ListedApproval): string {
  return `${id} ${tool} ${preview.title}: rye approve ${id}`;
}

/** Counts the children by state, then shows each in one line. */
function childLines({ children }: ShownThread, style: DetailStyle): readonly Shown[] {
  if (children.length === 0) return [];
  const counts = new Map<string, number>();
  for (const child of children) {
    const word = stateWord(child);
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  const states = [...counts].map(([word, count]) => `${count} ${word}`).join(', ');
  return [
    field('children', states),
    ...siblingLines(children, { ...style, indent: 2 }).map((line) => shown`  ${line}`),
  ];
}

/** Returns the command that a person needs next. */
function nextCommand({ thread, explanation, requests }: ShownThread): string {
  const { thread_id: id, status, continuation_thread_id: successor } = thread;
  const [request] = requests;
  if (request) return `approve: rye approve ${request.id}    deny: rye deny ${request.id}`;
  if (status === 'continued') return `continued: rye threads show ${successor ?? id}`;
  if (isActive(status) && explanation === null) {
    return `watch: rye attach ${id}    cancel: rye threads cancel ${id}`;
  }
  return status === 'completed'
    ? `open: rye threads open ${id}`
    : `resume: rye threads resume ${id}    open: rye threads open ${id}`;
}

/** Formats the state and the costs of a chain. */
function describeSession(chain: readonly CostedThread[]): string | null {
  const last = chain.at(-1);
  if (!last || chain.length === 1) return null;
  const cost = chain.map((link) => link.cost).reduce(addFamilyCost);
  return `${last.status}, ${formatCost(cost)} in ${chain.length} threads`;
}

/** Formats the changes in the worktree of an isolated thread. */
function changesOf({ document, thread }: ThreadDetails): string | null {
  const { changes } = document ?? {};
  if (!changes || !isFinal(thread.status)) return null;
  return describeChanges(changes) || 'none in its worktree';
}

/** Formats the session that a thread was imported from. Its cost is no part of the thread's own. */
function describeOrigin(origin: Origin | undefined): string | null {
  if (!origin) return null;
  const { format, file, title, started_at: start, ended_at: end, cost } = origin;
  return [
    `${format} session ${file}${title === undefined ? '' : ` (${title})`}`,
    ...(start === undefined ? [] : [`${start} to ${end ?? start}`]),
    ...(cost ? [formatCost(cost)] : []),
  ].join(', ');
}

type Origin = NonNullable<NonNullable<ThreadDetails['document']>['imported_from']>;

const VALUE_AT = 12;

/** Wraps the values of fields between words, below each other; does nothing in a pipe. */
function wrapFields(lines: readonly Shown[], columns: number | undefined): readonly Shown[] {
  if (columns === undefined || columns <= 2 * VALUE_AT) return lines;
  return lines.flatMap((line) => {
    if (displayWidth(line) <= columns) return [line];
    const [first = '', ...rest] = wrapText(partOf(line, VALUE_AT), columns - VALUE_AT);
    return [
      shown`${partOf(line, 0, VALUE_AT)}${first}`,
      ...rest.map((part) => shown`${oneLine(' '.repeat(VALUE_AT))}${part}`),
    ];
  });
}

function field(name: string, value: string): Shown {
  return oneLine(`${name.padEnd(11)} ${value}`);
}

function describeUnverified({ thread_id: id }: ThreadRecord, part: UnverifiedPart): Shown {
  const { bytes, file } = part;
  return field('unverified', `${bytes} bytes in ${file}: rye threads logs ${id} --unverified`);
}

/** Formats what decides whether a message can steer the active turn. After `valid until` it is unknown. */
function describeTurn(turn: ActiveTurn | null): string | null {
  if (turn === null) return null;
  const { active_run_id: id, active_run_kind: kind, risk_class: risk, steerable } = turn;
  const can = steerable === true && risk === 'read_only_low_risk' ? 'steerable' : 'not steerable';
  return `${id} ${kind}, ${risk}, ${can}, epoch ${turn.epoch}, observed ${turn.observed_at}, valid until ${turn.valid_until}`;
}

function describeDelivery({ seq, kind, source, state }: Delivery): Shown {
  return field('message', `${seq} ${kind} from ${source} ${state}`);
}
