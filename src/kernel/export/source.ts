import type { ErrorInfo } from '../core/errors.ts';
import type { LogEvent, LogHeader, UnknownEvent } from '../core/events.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadRun } from '../core/thread.ts';
import type { Cost, SessionCost } from '../core/usage.ts';
import type { LogProblem } from '../log/codec.ts';
import { buildTree, isKnown, pathTo, type SessionTree } from '../log/tree.ts';

/** The data of an export that is not in the log: the members of thread.json that it needs. */
export interface ExportFacts {
  readonly document: {
    readonly thread_id: string;
    readonly directive: string;
    readonly status: string;
    readonly model: string;
    readonly created_at: string;
    readonly parent_thread_id: string | null;
    readonly continuation_of?: string;
    readonly continuation_thread_id?: string;
    readonly cost?: Cost;
    readonly runs?: readonly ThreadRun[];
    readonly imported_from?: {
      readonly format: string;
      readonly session_id: string;
      readonly title?: string;
      readonly started_at?: string;
      readonly ended_at?: string;
      readonly cost?: SessionCost;
    };
    readonly result?: string;
    readonly outputs?: JsonObject;
    readonly error?: ErrorInfo;
  };
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly description: string;
  readonly capabilitiesRef: string;
  readonly finishedAt: string;
}

/** One thing that was checked about a thread's record when it was exported. */
export interface IntegrityCheck {
  readonly name: string;
  readonly ok: boolean;
  readonly detail: string;
}

/** A thread as an exporter gets it: everything is read, nothing is looked up any more. */
export interface ExportSource {
  readonly header: LogHeader;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly tree: SessionTree;
  /** Last entry of the path that linear formats write and that a page opens with; null for an empty one. */
  readonly leafId: string | null;
  readonly facts: Omit<ExportFacts, 'events'>;
  /** The integrity of its items when it ran; undefined if thread.json lacks it. */
  readonly itemIntegrity: string | undefined;
  readonly checks: readonly IntegrityCheck[];
  readonly problems: readonly LogProblem[];
  /** ISO 8601 UTC. */
  readonly exportedAt: string;
  /** Version of rye. */
  readonly version: string;
  /** Number of redacted values; undefined without redaction. */
  readonly redactions?: number;
  /** Returns the address of a thread's page relative to this export, if it exists. */
  readonly pageOf?: (threadId: string) => string | undefined;
}

/** Writes one format, in pieces. The same source always gives the same text. */
export type Exporter = (source: ExportSource) => Iterable<string>;

/**
 * Returns the source with only the path to its leaf. An event that belongs to no entry stays if the entry before it
 * stays; labels of dropped entries are dropped.
 */
export function onlyPath(source: ExportSource): ExportSource {
  const path = pathTo(source.tree, source.leafId);
  const kept = new Set(path.map(({ id }) => id));
  let isKept = true;
  const events = source.events.filter((event) => {
    if (event.id !== undefined) isKept = kept.has(event.id);
    // the end of the thread is the end of every branch
    return isKept || isKnown(event, 'thread_finished');
  });
  const labels = new Map([...source.tree.labels].filter(([id]) => kept.has(id)));
  const { entries, byId, children, problems } = buildTree(events);
  const tree = { entries, byId, children, problems, labels, leafId: source.leafId };
  return { ...source, events, tree };
}
