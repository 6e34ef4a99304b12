import type { Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadDetails } from '../../kernel/app/api/threads.ts';
import { RyeError } from '../../kernel/core/errors.ts';
import { LIMIT_NAMES, type PartialLimits } from '../../kernel/core/limits.ts';

/** Returns the session of the project that was active last: any, or one of a directive. A child does not count. */
export async function lastSession(
  { threads }: Pick<Rye, 'threads'>,
  directive?: string,
): Promise<string | undefined> {
  const listed = await threads.list({ sessions: true, ...(directive ? { directive } : {}) });
  const [last] = listed
    .filter(({ parent_id: parent }) => parent === null)
    .toSorted((left, right) => right.updated_at.localeCompare(left.updated_at));
  return last && (last.chain?.[0] ?? last.thread_id);
}

/** Returns the thread with which a session ends, by a part of the ID of any of its threads. */
export async function sessionEnd(
  { threads }: Pick<Rye, 'threads'>,
  idPart: string,
): Promise<string> {
  const id = await threads.resolveId(idPart);
  return (await threads.session(id)).at(-1) ?? id;
}

/** Throws `thread_not_found` for `--continue` without a thread to continue. */
export function nothingToContinue(start: string, directive?: string): RyeError {
  const what = directive === undefined ? 'no thread' : `no thread of ${directive}`;
  return new RyeError('thread_not_found', `--continue: this project has ${what}`, {
    hint: `Start one: ${start}`,
  });
}

/** Options that select the model of a thread. */
interface ModelOptions {
  readonly model?: string | undefined;
  readonly provider?: string | undefined;
}

/** Returns the model that the options select for an existing thread; a provider alone has to offer the thread's model. */
export function modelWanted(
  { model, provider }: ModelOptions,
  { document }: Pick<ThreadDetails, 'document'>,
): { readonly model: string; readonly provider?: string } | undefined {
  const wanted = model ?? (provider === undefined ? undefined : document?.model);
  if (wanted === undefined) return undefined;
  return provider === undefined ? { model: wanted } : { model: wanted, provider };
}

/**
 * Returns the limits of one more message of a conversation. It may use the turns, tokens, time and children that the
 * thread started with; the money stays the total of the thread, so `spend` is not among them.
 */
export function messageLimits({ document }: Pick<ThreadDetails, 'document'>): PartialLimits {
  if (document === null) return {};
  return withoutSpend(document.runs?.[0]?.limits ?? document.limits);
}

/** The limits of a thread's start that each message of a conversation is granted. */
export function withoutSpend(limits: Readonly<Record<string, unknown>>): PartialLimits {
  // money and depth are of the whole thread
  const granted = LIMIT_NAMES.filter((name) => name !== 'spend' && name !== 'depth');
  return Object.fromEntries(
    granted.flatMap((name) => {
      const value = limits[name];
      return typeof value === 'number' ? [[name, value]] : [];
    }),
  );
}
