import type { EventPayloads, LogEvent, UnknownEvent } from '../../kernel/core/events.ts';
import { type Account, accountOf } from '../../kernel/log/account.ts';
import { isKnown } from '../../kernel/log/tree.ts';
import { type TurnFacts, turnFacts } from '../../kernel/log/turn-facts.ts';

export interface ChildThread {
  readonly id: string;
  readonly directive: string;
  readonly status: string;
  readonly spend: number | undefined;
}

/** The information of events outside of the tree, by entry and for the thread. */
export interface Annotations {
  /** Starts of runs after the first one, by the first entry of the run; '' for a run without entries. */
  readonly runs: ReadonlyMap<string, readonly (LogEvent | UnknownEvent)[]>;
  /** Accounts of events that are no entries, by the id of the preceding entry; '' for those before the first. */
  readonly notes: ReadonlyMap<string, readonly Account[]>;
  /** By the entry of the answer. */
  readonly turns: ReadonlyMap<string, TurnFacts>;
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
  const notes = new Map<string, Account[]>();
  const settled = new Map<string, EventPayloads['tool_settled']>();
  const children = new Map<string, ChildThread>();
  const keys = new Set<string>();
  const runs = new Map<string, (LogEvent | UnknownEvent)[]>();
  let starting: (LogEvent | UnknownEvent)[] = [];
  let checkpoints = 0;
  let entryId = '';
  for (const event of events) {
    if (event.id !== undefined) {
      entryId = event.id;
      if (starting.length > 0 && !isDetail(accountOf(event))) {
        runs.set(entryId, starting);
        starting = [];
      }
      continue;
    }
    if (event.event_type === 'run_started') starting.push(event);
    const note = noteOf(event);
    if (note) notes.set(entryId, [...(notes.get(entryId) ?? []), note]);
    if (isKnown(event, 'tool_settled')) settled.set(event.payload.call_id, event.payload);
    else if (isKnown(event, 'checkpoint')) {
      checkpoints += 1;
      keys.add(event.payload.key_id);
    } else noteChild(children, event);
  }
  if (starting.length > 0) runs.set('', starting);
  const list = [...children.values()];
  const turns = turnFacts(events);
  return { runs, notes, turns, settled, children: list, checkpoints, keys: [...keys] };
}

/** Returns the account of an event that a page shows. */
function noteOf(event: LogEvent | UnknownEvent): Account | undefined {
  const account = accountOf(event);
  return account?.readers.includes('page') || isDetail(account) ? account : undefined;
}

/** True for an event of the machinery, which the page shows only with its details. */
export function isDetail(account: Account | undefined): boolean {
  return account?.readers.includes('details') === true;
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
