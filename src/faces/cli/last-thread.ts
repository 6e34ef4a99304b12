import type { Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadDetails } from '../../kernel/app/api/threads.ts';
import { RyeError } from '../../kernel/core/errors.ts';

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
