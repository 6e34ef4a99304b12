import type { EventPayloads, LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { isJsonObject, type JsonObject } from '../../kernel/core/json.ts';
import { originalCostOf } from '../../kernel/core/original.ts';
import { formatUsd, NO_USAGE, type Usage } from '../../kernel/core/usage.ts';
import { isKnown } from '../../kernel/log/tree.ts';

/** A log event that is not an entry, in one sentence, shown after the preceding entry. */
export interface Note {
  readonly tone: 'plain' | 'warn' | 'bad' | 'seal';
  readonly text: string;
  /** True for machinery that the page shows only with its details. */
  readonly detail?: boolean;
  /** The child thread that the note is about. */
  readonly child?: string;
}

/** A run of the thread after its first one. */
export interface RunStart {
  readonly run: number | undefined;
  readonly reason: string;
  readonly timestamp: string;
  readonly model: string;
  readonly limits: JsonObject;
}

export interface TurnCost {
  readonly usage: Usage;
  /** USD. */
  readonly spend: number;
}

export interface ChildThread {
  readonly id: string;
  readonly directive: string;
  readonly status: string;
  readonly spend: number | undefined;
}

/** The information of events outside of the tree, by entry and for the thread. */
export interface Annotations {
  /** By the first entry of the run; '' for a run without entries. */
  readonly runs: ReadonlyMap<string, readonly RunStart[]>;
  /** By the id of the preceding entry; '' for notes before the first. */
  readonly notes: ReadonlyMap<string, readonly Note[]>;
  /** By the entry of the answer, or of the summary, that was paid for. */
  readonly costs: ReadonlyMap<string, TurnCost>;
  /** By call id. */
  readonly settled: ReadonlyMap<string, EventPayloads['tool_settled']>;
  readonly children: readonly ChildThread[];
  readonly checkpoints: number;
  /** Keys that signed checkpoints. */
  readonly keys: readonly string[];
}

/** Returns the value if it is a number, else 0: a foreign log may have anything. */
export function numberOr(value: unknown, otherwise = 0): number {
  return typeof value === 'number' && Number.isFinite(value) ? value : otherwise;
}

/** Reads all events once. */
export function annotate(events: readonly (LogEvent | UnknownEvent)[]): Annotations {
  const notes = new Map<string, Note[]>();
  const costs = new Map<string, TurnCost>();
  const settled = new Map<string, EventPayloads['tool_settled']>();
  const children = new Map<string, ChildThread>();
  const keys = new Set<string>();
  const runs = new Map<string, RunStart[]>();
  let starting: RunStart[] = [];
  let checkpoints = 0;
  let entryId = '';
  let answerId = '';
  let spent = 0;
  for (const event of events) {
    if (event.id !== undefined) {
      entryId = event.id;
      if (starting.length > 0 && !isDetail(event)) {
        runs.set(entryId, starting);
        starting = [];
      }
      if (isPaidFor(event)) answerId = event.id;
      const original = originalCost(event);
      if (original) costs.set(event.id, original);
      continue;
    }
    if (event.event_type === 'run_started') starting.push(runStart(event));
    const note = noteOf(event);
    if (note) notes.set(entryId, [...(notes.get(entryId) ?? []), note]);
    if (isKnown(event, 'tool_settled')) settled.set(event.payload.call_id, event.payload);
    else if (isKnown(event, 'checkpoint')) {
      checkpoints += 1;
      keys.add(event.payload.key_id);
    } else if (isKnown(event, 'cost')) {
      const total = numberOr(
        (event.payload.total as Partial<{ spend: number }> | undefined)?.spend,
      );
      const usage = { ...NO_USAGE, ...event.payload.usage };
      costs.set(answerId, { usage, spend: Math.max(0, total - spent) });
      spent = total;
    } else noteChild(children, event);
  }
  if (starting.length > 0) runs.set('', starting);
  const list = [...children.values()];
  return { runs, notes, costs, settled, children: list, checkpoints, keys: [...keys] };
}

/** True for an entry of the machinery, which the page shows only with its details. */
export function isDetail(entry: LogEvent | UnknownEvent): boolean {
  if (isKnown(entry, 'custom_message')) return !entry.payload.display;
  return isKnown(entry, 'custom') || isKnown(entry, 'label') || isKnown(entry, 'title');
}

function runStart({ payload, timestamp }: LogEvent | UnknownEvent): RunStart {
  const { run, reason, model, limits } = payload as JsonObject;
  return {
    run: typeof run === 'number' ? run : undefined,
    reason: typeof reason === 'string' ? reason : '',
    timestamp,
    model: typeof model === 'string' ? model : '',
    limits: isJsonObject(limits) ? limits : {},
  };
}

/** An imported answer was paid for before rye had it. */
function originalCost(event: LogEvent | UnknownEvent): TurnCost | undefined {
  const spend = originalCostOf(event);
  if (spend === undefined || !isKnown(event, 'message')) return undefined;
  const { message } = event.payload;
  return message.role === 'assistant'
    ? { usage: { ...NO_USAGE, ...message.usage }, spend }
    : undefined;
}

function isPaidFor(event: LogEvent | UnknownEvent): boolean {
  if (isKnown(event, 'message')) return event.payload.message.role === 'assistant';
  return isKnown(event, 'compaction') || isKnown(event, 'branch_summary');
}

function noteChild(children: Map<string, ChildThread>, event: LogEvent | UnknownEvent): void {
  if (isKnown(event, 'child_thread_started')) {
    const { child_thread_id: id, directive } = event.payload;
    children.set(id, { id, directive, status: 'running', spend: undefined });
  } else if (isKnown(event, 'child_thread_finished')) {
    const { child_thread_id: id, status, spend } = event.payload;
    const directive = children.get(id)?.directive ?? '';
    children.set(id, { id, directive, status, spend: numberOr(spend) });
  }
}

type NoteTable = {
  readonly [T in LogEvent['event_type']]?: (payload: EventPayloads[T]) => Note | undefined;
};

const NOTES: NoteTable = {
  thread_continued: ({ previous_thread_id: id }) => plainNote(`continued from ${id}`),
  limit_reached: ({ code, current, max }) => ({
    tone: 'bad',
    text: `limit reached: ${code}, ${current} of ${max}`,
  }),
  error_classified: ({ category, message, retryable }) => ({
    tone: retryable ? 'warn' : 'bad',
    text: `${category} error: ${message}`,
  }),
  retry_scheduled: ({ attempt, delay_ms: ms }) =>
    plainNote(`tried again in ${ms} ms (attempt ${attempt})`),
  hook_fired: ({ id, event, matched, outcome, error }) => {
    if (error !== undefined)
      return { tone: 'bad', text: `hook ${id} at ${event} failed: ${error}` };
    if (!matched) return undefined;
    return { ...plainNote(`hook ${id} at ${event}: ${outcome}`), detail: true };
  },
  rule_matched: ({ rule, stream, interrupted }) => ({
    tone: interrupted === true ? 'warn' : 'plain',
    text: `rule ${text(rule)} matched the ${text(stream)} stream${interrupted === true ? ' and cut the answer' : ''}`,
  }),
  child_thread_started: ({ child_thread_id: id, directive }) => ({
    ...plainNote(`child thread ${id} started: ${directive}`),
    child: id,
  }),
  child_thread_finished: ({ child_thread_id: id, status, spend }) => ({
    tone: status === 'completed' ? 'plain' : 'warn',
    text: `child thread ${id} ended: ${status}, ${formatUsd(numberOr(spend))}`,
    child: id,
  }),
  delivery: ({ decision, kind, source, run_id: run }) =>
    plainNote(
      `delivery: ${[decision, kind, source === undefined ? undefined : `from ${text(source)}`, run]
        .filter((part) => part !== undefined)
        .map(text)
        .join(' ')}`,
    ),
  note: (payload) => plainNote(payload.text),
  log_quarantined: ({ bytes, file }) => ({
    tone: 'warn',
    text: `${numberOr(bytes)} unverified bytes were moved to ${text(file)}`,
  }),
  checkpoint: ({ key_id: key, to }) => ({
    tone: 'seal',
    text: `sealed up to byte ${to} with key ${key}`,
    detail: true,
  }),
};

function plainNote(sentence: string): Note {
  return { tone: 'plain', text: sentence };
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : (JSON.stringify(value) ?? '');
}

function noteOf({ event_type: type, payload }: LogEvent | UnknownEvent): Note | undefined {
  if (!Object.hasOwn(NOTES, type)) return undefined;
  // the table pairs a type with its payload, which a look-up by a string loses
  const note = NOTES[type as keyof NoteTable] as
    | ((payload: unknown) => Note | undefined)
    | undefined;
  return note?.(payload);
}
