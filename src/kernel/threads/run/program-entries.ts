import { messageOf, RyeError } from '../../core/errors.ts';
import type { EventDraft, EventPayloads, LogEvent, UnknownEvent } from '../../core/events.ts';
import { isJsonObject, parseJson } from '../../core/json.ts';
import type { Message } from '../../core/message.ts';
import type { ThreadPlan } from '../../core/plan.ts';
import { payloadProblem } from '../../log/codec.ts';
import { planCompaction } from '../../log/compaction.ts';
import { foldContext, startedCallIds } from '../../log/context.ts';
import { filesAsDetails } from '../../log/summary-prompt.ts';
import { buildTree, type SessionTree } from '../../log/tree.ts';
import type { QueuedEntry, Store } from '../../storage/store.ts';
import type { HostSkills } from '../ports.ts';
import { compactionSizes } from './compaction.ts';

const APPENDED: ReadonlySet<string> = new Set([
  'message',
  'custom',
  'custom_message',
  'compaction',
]);

/** A compaction as a program gives it; the rest of it depends on the log. */
export type GivenCompaction = Pick<
  EventPayloads['compaction'],
  'summary' | 'first_kept_entry_id' | 'details'
>;

/** The place where entries of programs are appended. */
export interface Place {
  readonly tree: SessionTree;
  readonly plan: ThreadPlan;
}

/** Completes a program's compaction; undefined where the context can't be cut at its first entry. */
export function programCompaction(
  { summary, first_kept_entry_id: first, details }: GivenCompaction,
  { tree, plan }: Place,
): EventPayloads['compaction'] | undefined {
  const sizes = compactionSizes(plan, plan.model);
  const planned = planCompaction(tree, { sizes, firstKept: first ?? undefined });
  if (first === null || !planned) return undefined;
  const { protectedIds, tokensBefore, files } = planned;
  return {
    summary,
    first_kept_entry_id: first,
    tokens_before: tokensBefore,
    ...(protectedIds.length === 0 ? {} : { protected_entry_ids: protectedIds }),
    details: { ...filesAsDetails(files), ...details, reason: 'program' },
    appended: true,
  };
}

/** Returns the draft of an entry that waits; a note if the entry does not fit the log. */
export function queuedDraft({ draft, entryId }: QueuedEntry, place: () => Place): EventDraft {
  const given = parseJson(draft);
  const { event_type: type, payload } = isJsonObject(given) ? given : {};
  const isKnown = typeof type === 'string' && APPENDED.has(type) && isJsonObject(payload);
  if (!isKnown || payloadProblem(type, payload) !== undefined) {
    return refusal(entryId, 'it is not an entry that a program can append');
  }
  // the checks above have found the members of its type
  const found = { event_type: type, payload, id: entryId, durable: true } as unknown as EventDraft;
  if (found.event_type !== 'compaction') return found;
  const whole = programCompaction(found.payload, place());
  return whole
    ? { ...found, payload: whole }
    : refusal(entryId, 'the context can no longer be cut there');
}

const SKILL = '{"event_type":"skill",';

/** True for a row that changes the skills of a run, and is no entry. */
export function isSkillChange({ draft }: QueuedEntry): boolean {
  return draft.startsWith(SKILL);
}

function skillDrafts(
  { draft, entryId }: QueuedEntry,
  skills: HostSkills | undefined,
): readonly EventDraft[] {
  const given = parseJson(draft);
  const payload = isJsonObject(given) ? given['payload'] : undefined;
  const { skill, action } = isJsonObject(payload) ? payload : {};
  if (typeof skill !== 'string') return [];
  try {
    if (action === 'deactivate') return skills?.deactivate(skill) ?? [];
    if (skills) return skills.activate(skill, entryId);
    throw new RyeError('item_not_found', 'the thread has no skills');
  } catch (error) {
    const text = `the skill ${skill} was not activated: ${messageOf(error)}`;
    return [{ event_type: 'note', payload: { text } }];
  }
}

function refusal(entryId: string, why: string): EventDraft {
  const text = `the entry ${entryId} of a program was not appended: ${why}`;
  return { event_type: 'note', payload: { text } };
}

export interface ProgramEntriesOptions {
  readonly appends: Store['appends'];
  /** The thread, and those before it in its chain. */
  readonly threadIds: readonly string[];
  readonly plan: ThreadPlan;
  /** The skills of the thread; absent: it has none. */
  readonly skills?: HostSkills | undefined;
  /** Returns the whole log, signed. */
  readonly readLog: () => Promise<readonly (LogEvent | UnknownEvent)[]>;
}

/** The entries that programs give to a running thread. Its owner writes them at safe points, in the order of their arrival. */
export class ProgramEntries {
  readonly #options: ProgramEntriesOptions;
  /** Entries that were handed out and are not known to be in the log. */
  readonly #taken = new Set<string>();
  #isFirst = true;

  constructor(options: ProgramEntriesOptions) {
    this.#options = options;
  }

  async take(): Promise<readonly EventDraft[]> {
    const { appends, threadIds, plan, readLog } = this.#options;
    const isFirst = this.#isFirst;
    this.#isFirst = false;
    const queued = (await appends?.list(threadIds)) ?? [];
    const rows = queued.filter(({ entryId }) => !this.#taken.has(entryId));
    if (rows.length === 0) return [];
    const needsTree = isFirst || rows.some(({ draft }) => draft.includes('"compaction"'));
    const tree = buildTree(needsTree ? await readLog() : []);
    // an owner that died may have written an entry, and not have noted it
    const drafts = rows
      .filter(({ entryId }) => !tree.byId.has(entryId))
      .flatMap((row) =>
        isSkillChange(row)
          ? skillDrafts(row, this.#options.skills)
          : [queuedDraft(row, () => ({ tree, plan }))],
      );
    for (const { id } of drafts) if (id !== undefined) this.#taken.add(id);
    const others = rows.filter(({ entryId }) => !this.#taken.has(entryId));
    await appends?.remove(others.map(({ entryId }) => entryId));
    return drafts;
  }

  /** Sees what is in the log now. */
  async written(events: readonly LogEvent[]): Promise<void> {
    if (this.#taken.size === 0) return;
    const ids = events.flatMap(({ id }) => (id !== undefined && this.#taken.has(id) ? [id] : []));
    if (ids.length === 0) return;
    await this.#options.appends?.remove(ids);
    for (const id of ids) this.#taken.delete(id);
  }

  /** Returns the context as the log has it. */
  async context(): Promise<readonly Message[]> {
    const events = await this.#options.readLog();
    return foldContext(buildTree(events), { startedCalls: startedCallIds(events) }).messages;
  }
}
