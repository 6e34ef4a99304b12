import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { ThreadPlan } from '../core/plan.ts';
import type { ToolDefinition } from '../providers/provider.ts';
import type { ThreadDocument } from './thread-document.ts';

/** Renders the files of a thread; pure, from the `export` room. */
export interface ThreadRenderer {
  capabilities(plan: ThreadPlan, definitions: readonly ToolDefinition[]): string;
  knowledge(facts: KnowledgeFacts): string;
  /** The beginning of the entry of a thread that is running. */
  liveHead(facts: Omit<KnowledgeFacts, 'events' | 'finishedAt'>): string;
  /** One event as Markdown blocks; none if people need not read it. */
  entry(event: LogEvent | UnknownEvent): readonly string[];
}

export interface KnowledgeFacts {
  readonly document: ThreadDocument;
  readonly events: readonly (LogEvent | UnknownEvent)[];
  readonly description: string;
  readonly capabilitiesRef: string;
  readonly finishedAt: string;
}
