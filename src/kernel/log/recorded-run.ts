import { type ErrorCode, EXIT, exitCodeOf } from '../core/errors.ts';
import type { EventDraft, LogEvent, LogHeader, UnknownEvent } from '../core/events.ts';
import { compact, type JsonObject } from '../core/json.ts';
import {
  type AssistantMessage,
  type Message,
  type ToolResultMessage,
  textOf,
  toolCallsOf,
} from '../core/message.ts';
import { type Cost, NO_COST } from '../core/usage.ts';
import type { RunPart } from './runs.ts';
import { isKnown, pathTo, type SessionTree, type TreeEntry } from './tree.ts';

/** One step of a run that a replay should repeat, without ids, times and durations. */
export interface RunStep {
  readonly kind:
    | 'system'
    | 'user'
    | 'answer'
    | 'result'
    | 'injected'
    | 'rules'
    | 'compaction'
    | 'end';
  readonly value: JsonObject;
}

/** A step with its place in a log. */
export interface RecordedStep extends RunStep {
  readonly entryId: string | null;
  readonly seq: number;
  /** Records the same again. */
  readonly draft: EventDraft | null;
}

/** One run along one path, as a log records it. */
export interface RecordedRun {
  /** Steps in order, after `historyLeaf`. */
  readonly steps: readonly RecordedStep[];
  /** False if the run was interrupted or the path leaves it, so that its continuation is unknown. */
  readonly hasEnd: boolean;
  /** The model's answers: whole, or as far as they came before a stream rule cut them. */
  readonly answers: readonly AssistantMessage[];
  /** Results by call id, as the tools gave them: without reminders that rules put in front. */
  readonly results: ReadonlyMap<string, ToolResultMessage>;
  /** The entry up to which the path is given, not run again; null: it is run from the start. */
  readonly historyLeaf: string | null;
  /** Used before the first step. */
  readonly spent: Cost;
}

export interface RecordedRunOptions {
  readonly header: LogHeader;
  readonly part: RunPart;
  /** Id of an entry on the path; entries up to it are not replayed. */
  readonly from?: string | undefined;
}

/**
 * Reads one run along the path to the head that it left, up to its end. `tree` is that of the part. A run that continues
 * a path, of the same thread or another one, is replayed from its first turn.
 */
export function recordedRun(
  tree: SessionTree,
  { header, part: { began, events }, from }: RecordedRunOptions,
): RecordedRun {
  const path = pathTo(tree, tree.leafId);
  const indexOf = (id: string | null | undefined): number =>
    path.findIndex((entry) => entry.id === id);
  const start = Math.max(indexOf(from), indexOf(carriedLeaf(header, { began, events }, path))) + 1;
  const historyLeaf = path[start - 1]?.id ?? null;
  const before = Math.max(began, path[start - 1]?.seq ?? 0);
  const isOver = (event: LogEvent | UnknownEvent): boolean =>
    event.seq > before && isKnown(event, 'thread_finished');
  const until = events.find(isOver)?.seq ?? Number.POSITIVE_INFINITY;
  const ran = path.slice(start).filter(({ seq }) => seq < until);
  // a copied path that was never continued has no run itself
  const hasBegun =
    historyLeaf === null ||
    events.some(({ event_type, seq }) => event_type === 'turn_started' && seq > before);
  const end = hasBegun ? endSteps(endOf(events, Math.max(before, seqOfAnswer(ran)))) : [];
  return {
    steps: [...ran.flatMap(recordedStep), ...end],
    hasEnd: end.length > 0,
    answers: ran.flatMap((entry, index) => answerOf(entry, ran.slice(index + 1))),
    results: new Map(ran.flatMap(resultOf)),
    historyLeaf,
    spent: costBefore(events, before),
  };
}

type Finished = Extract<LogEvent, { event_type: 'thread_finished' }>;

/** The end of the run, where it belongs to this path; absent for a crash. */
function endOf(events: readonly (LogEvent | UnknownEvent)[], after: number): Finished | undefined {
  const next = events.find(
    (event) =>
      event.seq > after &&
      (isKnown(event, 'thread_finished') || event.event_type === 'turn_started'),
  );
  return next && isKnown(next, 'thread_finished') ? next : undefined;
}

function seqOfAnswer(path: readonly TreeEntry[]): number {
  const last = path.findLast(
    (entry) => isKnown(entry, 'message') && entry.payload.message.role === 'assistant',
  );
  return last?.seq ?? 0;
}

/** Ends that come from outside, at any time, are no property of the run. */
function endSteps(end: Finished | undefined): readonly RecordedStep[] {
  if (!end) return [];
  const { payload, seq } = end;
  const { status, outputs, error } = payload;
  const isOutside = status === 'cancelled' || status === 'continued';
  if (isOutside || (error && isOutsideCode(error.code))) return [];
  // a suspended run's error names what it waits for; old logs lack it
  const code = status === 'suspended' ? undefined : error?.code;
  const value = compact({ status, outputs, code });
  return [{ kind: 'end', value, entryId: null, seq, draft: null }];
}

const OUTSIDE: ReadonlySet<ErrorCode> = new Set([
  'limit_duration_seconds',
  'thread_crashed',
  'log_write_failed',
  'replay_exhausted',
]);

function isOutsideCode(code: ErrorCode): boolean {
  return OUTSIDE.has(code) || exitCodeOf(code) === EXIT.provider;
}

function carriedLeaf(
  header: LogHeader,
  { began, events }: Pick<RunPart, 'began' | 'events'>,
  path: readonly TreeEntry[],
): string | null {
  const continued = events.findLast(({ event_type }) => event_type === 'thread_continued');
  const isCarried = header.continuation_of !== undefined || header.branched_from !== undefined;
  if (began === 0 && !continued && !isCarried) return null;
  const since = Math.max(began, continued?.seq ?? 0);
  const turn = events.find(({ event_type, seq }) => event_type === 'turn_started' && seq > since);
  const carried = path.filter(({ seq }) => turn === undefined || seq < turn.seq);
  return carried.at(-1)?.id ?? null;
}

function costBefore(events: readonly (LogEvent | UnknownEvent)[], seq: number): Cost {
  let cost: Cost = NO_COST;
  for (const event of events) {
    if (event.seq > seq) break;
    if (isKnown(event, 'cost')) cost = event.payload.total;
  }
  return cost;
}

/** A cut answer is part of the run only where a rule cut it: other cuts come from outside. */
function answerOf(entry: TreeEntry, later: readonly TreeEntry[]): readonly AssistantMessage[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'assistant') return [];
  const { message } = entry.payload;
  if (message.stop_reason !== 'aborted') return [message];
  const next = later.findIndex(
    (one) => isKnown(one, 'message') && one.payload.message.role === 'assistant',
  );
  const until = later.slice(0, next === -1 ? later.length : next);
  return until.some((one) => isKnown(one, 'rule_injection')) ? [message] : [];
}

function resultOf(entry: TreeEntry): readonly (readonly [string, ToolResultMessage])[] {
  if (!isKnown(entry, 'message') || entry.payload.message.role !== 'tool_result') return [];
  const { message } = entry.payload;
  const content = message.content.filter(
    (block, index) => !(index === 0 && block.type === 'text' && isReminder(block.text)),
  );
  return [[message.call_id, { ...message, content }]];
}

function isReminder(text: string): boolean {
  return text.startsWith('<system-reminder');
}

function recordedStep(entry: TreeEntry): readonly RecordedStep[] {
  const { event_type, payload, id, seq } = entry;
  // a known type has its payload in the entry
  const draft = { event_type, payload } as EventDraft;
  const step = stepOf(draft);
  return step ? [{ ...step, entryId: id, seq, draft }] : [];
}

/** Returns the step that an entry is for a comparison; undefined for entries that record no step. */
export function stepOf({ event_type: type, payload }: EventDraft): RunStep | undefined {
  if (type === 'message') return messageStep(payload.message);
  if (type === 'system_prompt') {
    return { kind: 'system', value: { text: payload.text, tools: payload.tools } };
  }
  if (type === 'custom_message') {
    const { custom_type, content } = payload;
    return { kind: 'injected', value: { custom_type, content } };
  }
  if (type === 'rule_injection') {
    return { kind: 'rules', value: { rules: payload.rules.map(({ name }) => name) } };
  }
  return type === 'compaction' ? { kind: 'compaction', value: {} } : undefined;
}

function messageStep(message: Message): RunStep | undefined {
  const text = textOf(message.content);
  switch (message.role) {
    case 'user':
      return { kind: 'user', value: { text } };
    case 'assistant': {
      if (message.stop_reason === 'aborted') return undefined;
      const calls = toolCallsOf(message).map(({ name, input }) => ({ name, input }));
      return { kind: 'answer', value: { text, calls } };
    }
    case 'tool_result': {
      const { name, call_id, outcome } = message;
      return { kind: 'result', value: { name, call_id, outcome: stable(outcome), text } };
    }
  }
}

/** A tool that timed out or was stopped has run; that it takes as long again can't be told. */
function stable(outcome: ToolResultMessage['outcome']): string {
  return outcome === 'timeout' || outcome === 'aborted' ? 'error' : outcome;
}
