import type { EventDraft } from '../../core/events.ts';
import type { Message } from '../../core/message.ts';
import type { PlannedModel, ThreadPlan } from '../../core/plan.ts';
import { foldContext, startedCallIds } from '../../log/context.ts';
import { placeEvent } from '../../log/cursor.ts';
import { buildTree } from '../../log/tree.ts';
import type { Compaction, LoopPorts } from '../../loop/ports.ts';
import { parseErrorRules } from '../../policy/error-class.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import type { ThreadEnv } from '../ports.ts';
import { compactSession } from '../session/compact.ts';
import { readSigned } from '../verified-log.ts';
import type { HookRunner } from './hook-runner.ts';
import type { Recorder } from './recorder.ts';

export interface CompactPortParts {
  readonly env: ThreadEnv;
  readonly plan: ThreadPlan;
  readonly threadId: string;
  readonly hooks: HookRunner;
  readonly recorder: Recorder;
  readonly provider: (model: PlannedModel) => ModelProvider;
}

/** How the note begins that a compaction came to nothing. */
export const NOT_COMPACTED = 'the context was not compacted';

/**
 * Compaction for the loop: folds the log that is on the disk, so that the context after it is the one that a resume
 * would see. It reads the log once per compaction, not per turn.
 */
export function compactPort(parts: CompactPortParts): NonNullable<LoopPorts['compact']> {
  const { env, plan, threadId, hooks, provider, recorder } = parts;
  return async (request, signal): Promise<Compaction | undefined> => {
    recorder.sign();
    const { events } = await readSigned(env, threadId);
    const tree = buildTree(events);
    const { model, reason, instructions, tokens, turn, cost, remainingMicroUsd } = request;
    const result = await compactSession(
      {
        clock: env.clock,
        random: env.random,
        errorRules: parseErrorRules(plan.settings.error_classification, 'error_classification'),
        provider: () => provider(model),
        ask: (context, asked) => hooks.beforeCompact(context, asked),
        // on the disk before it is sent: a crash must not forget what it may cost
        onRequest: (estimate) => {
          const payload = { turn, purpose: 'summary', request: estimate } as const;
          recorder.record([{ event_type: 'request_started', payload, durable: true }]);
        },
      },
      {
        tree,
        threadId,
        plan,
        model,
        reason,
        instructions,
        tokens,
        turn,
        cost,
        remainingMicroUsd,
      },
      signal,
    );
    if (!result) return undefined;
    const { usage } = result;
    if (result.kind !== 'done') {
      const why = result.kind === 'failed' ? result.error.message : result.reason;
      const text = `${NOT_COMPACTED}: ${why}`;
      return { drafts: [...result.drafts, { event_type: 'note', payload: { text } }], usage };
    }
    const drafts = result.drafts.map(
      (draft): EventDraft =>
        draft.event_type === 'compaction' ? { ...draft, id: env.ids.entryId() } : draft,
    );
    return { drafts, usage, messages: contextAfter(events, drafts, tree.leafId) };
  };
}

/** The context as a reader of the log will fold it once the drafts are written. */
function contextAfter(
  events: Parameters<typeof buildTree>[0],
  drafts: readonly EventDraft[],
  leafId: string | null,
): readonly Message[] {
  let cursor = { seq: events.at(-1)?.seq ?? 0, leafId };
  let made = 0;
  const added = drafts.map((draft) => {
    const placed = placeEvent(cursor, draft, {
      threadId: '',
      timestamp: '',
      entryId: () => {
        made += 1;
        return `new-${made}`;
      },
    });
    cursor = placed.cursor;
    return placed.event;
  });
  const all = [...events, ...added];
  return foldContext(buildTree(all), { startedCalls: startedCallIds(all) }).messages;
}
