import { messageOf, RyeError } from '../core/errors.ts';
import type { EventDraft } from '../core/events.ts';
import { type HandlerLists, readDecision } from '../hooks/handlers.ts';
import type { GrantedSkills } from './feature.ts';

/** Maximum duration of a handler. */
const TIMEOUT_MS = 30_000;

export interface ListingOptions {
  readonly handlers: HandlerLists;
  readonly threadId: string;
  /** Records why a handler decided nothing. */
  readonly record: ((drafts: readonly EventDraft[]) => void) | undefined;
}

/** The skills of a run, and their list for the system text, as the handlers of the program leave them. */
export interface SkillListing {
  readonly listed: ReadonlySet<string>;
  readonly catalog: string;
}

/** Asks `skills_resolve`, then `skills_catalog`, each handler about what the earlier ones left. */
export async function listSkills(
  { skills, catalog: render }: GrantedSkills,
  { handlers, threadId: thread_id, record }: ListingOptions,
): Promise<SkillListing> {
  const fail = (name: string, error: unknown, effect: string): void => {
    const text = `a handler of ${name} failed, ${effect}: ${messageOf(error)}`;
    record?.([{ event_type: 'note', payload: { text } }]);
  };
  let left = skills;
  for (const handler of skills.length === 0 ? [] : (handlers.skills_resolve ?? [])) {
    try {
      const context = { thread_id, skills: structuredClone(left) };
      const decided = await inTime((signal) => handler(context, signal));
      const ids: unknown = readDecision('skills_resolve', decided)?.['skills'];
      if (ids === undefined) continue;
      if (!Array.isArray(ids)) throw new RyeError('hook_failed', 'skills is not a list of IDs');
      left = left.filter(({ id }) => ids.includes(id));
    } catch (error) {
      left = [];
      fail('skills_resolve', error, 'so the run has no skills');
    }
  }
  const listed = new Set(left.map(({ id }) => id));
  let catalog = render(listed);
  for (const handler of skills.length === 0 ? [] : (handlers.skills_catalog ?? [])) {
    try {
      const decided = await inTime((signal) => handler({ thread_id, catalog }, signal));
      const changed: unknown = readDecision('skills_catalog', decided)?.['catalog'];
      if (changed === undefined) continue;
      if (typeof changed !== 'string') throw new RyeError('hook_failed', 'catalog is not a text');
      catalog = changed;
    } catch (error) {
      fail('skills_catalog', error, 'so the list of skills is unchanged');
    }
  }
  return { listed, catalog };
}

/** Resolves as the handler does. Rejects with `hook_failed` if it takes too long. */
async function inTime<T>(ask: (signal: AbortSignal) => T): Promise<Awaited<T>> {
  const control = new AbortController();
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => {
      control.abort();
      reject(new RyeError('hook_failed', `it took longer than ${TIMEOUT_MS / 1000} s`));
    }, TIMEOUT_MS);
  });
  try {
    return await Promise.race([ask(control.signal), late]);
  } finally {
    clearTimeout(timer);
  }
}
