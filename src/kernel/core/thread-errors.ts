import { RyeError } from './errors.ts';

/** No thread has this ID. The default hint names the command that lists all threads. */
export function threadNotFound(
  threadId: string,
  hint = 'List the threads with `rye threads list`.',
): RyeError {
  const details = { thread_id: threadId };
  return new RyeError('thread_not_found', `thread not found: ${threadId}`, { hint, details });
}

/** This process has lost the thread to another one. `how` tells what shows it. */
export function takenOver(
  threadId: string,
  { how, ...facts }: { readonly how?: string; readonly epoch?: number | null } = {},
): RyeError {
  const what = how === undefined ? ' by another process' : `: ${how}`;
  return new RyeError('thread_locked', `thread ${threadId} was taken over${what}`, {
    hint: 'Another process runs this thread now; this one must stop.',
    details: { thread_id: threadId, ...facts },
  });
}

/** Another process has resumed the thread between the look at it and the act. */
export function continuedElsewhere(threadId: string): RyeError {
  return new RyeError(
    'thread_locked',
    `thread ${threadId} was continued by another process just now`,
    { hint: `See: rye threads show ${threadId}`, details: { thread_id: threadId } },
  );
}

/** The thread has a living owner: `who`, such as "process 12 on desk". */
export function runBy(threadId: string, who: string, facts: object): RyeError {
  return new RyeError('thread_locked', `thread ${threadId} is run by ${who}`, {
    hint: WAIT_OR_CANCEL,
    details: { thread_id: threadId, ...facts },
  });
}

/** The log has a living writer: `who`, such as "process 12 on desk, epoch 3,". */
export function writesLog(
  threadId: string,
  who: string,
  {
    hint = WAIT_OR_CANCEL,
    ...facts
  }: { readonly hint?: string; readonly [fact: string]: unknown } = {},
): RyeError {
  const details = { thread_id: threadId, ...facts };
  const message = `${who} writes the log of thread ${threadId}`;
  return new RyeError('thread_locked', message, { hint, details });
}

const WAIT_OR_CANCEL = 'Wait for it to end, or cancel the thread with `rye threads cancel`.';
