import { isoTime } from '../../core/clock.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import type { Launching, Process, Stored } from '../ports.ts';
import { awaitedApprovals, awaitedThreads, isWaiting } from '../run/waiting.ts';
import { chainEnd } from './children.ts';
import { launchResume, type Resumer, resumeWaitingAncestors } from './resume-process.ts';

/** Time after which a thread that did not continue is resumed again, in milliseconds. */
const AGAIN_MS = 30_000;

/**
 * Resumes threads whose requests were decided or have expired, in other processes. Only threads of the own key: a person
 * who decides about the thread of another key can't resume it, because it would be another run.
 */
export class DecisionTaker {
  readonly #env: Stored & Process & Launching;
  /** When each run that waits was last resumed, by the monotonic clock. */
  readonly #tried = new Map<string, number>();

  constructor(env: Stored & Process & Launching) {
    this.#env = env;
  }

  /** Looks at every thread that waits for people. Resolves to the ids of those that it resumed. */
  async takeUpAll(): Promise<readonly string[]> {
    return await this.#takeUp(await this.#env.store.registry.list({ status: 'suspended' }));
  }

  /** Looks at these threads, and at those whose end they wait for. */
  async takeUp(threadIds: readonly string[]): Promise<readonly string[]> {
    const { registry } = this.#env.store;
    const threads = await Promise.all(threadIds.map((id) => chainEnd(registry, id)));
    return await this.#takeUp(threads.flatMap((one) => one ?? []));
  }

  async #takeUp(threads: readonly ThreadRecord[]): Promise<readonly string[]> {
    const requests = new Set(threads.filter(isWaiting).flatMap(awaitedApprovals));
    const resumed: string[] = [];
    for (const id of requests) {
      const thread = await this.#decidedThread(id);
      if (thread && (await this.#resume(thread))) resumed.push(thread.thread_id);
    }
    return resumed;
  }

  /** The thread that waits for a request about which there is nothing left to decide, if it runs under the own key. */
  async #decidedThread(id: string): Promise<ThreadRecord | undefined> {
    const { store, clock, signer } = this.#env;
    const stored = await store.approvals.get(id);
    if (!stored) return undefined;
    const { thread_id: threadId, worker_key_id: worker, expires_at: expiry } = stored.request;
    const isOpen = stored.state === 'pending' && isoTime(clock.now()) < expiry;
    if (isOpen || worker !== signer().keyId) return undefined;
    const thread = await chainEnd(store.registry, threadId);
    return thread && isWaiting(thread) && awaitedApprovals(thread).includes(id)
      ? thread
      : undefined;
  }

  async #resume(thread: ThreadRecord): Promise<boolean> {
    const key = `${thread.thread_id}#${thread.epoch}`;
    const now = this.#env.clock.monotonic();
    const last = this.#tried.get(key);
    if (last !== undefined && now - last < AGAIN_MS) return false;
    this.#tried.set(key, now);
    return (await launchResume(this.#env, thread)) !== undefined;
  }
}

/** Time in which a process that was started takes its thread; a slower one is not waited for. */
const TAKEN_MS = 10_000;
const TAKEN_LOOK_MS = 30;

/**
 * Resumes threads that wait for one which has ended: the process that ended it may have died before it woke them. Returns
 * once the threads that are `neededNow` are taken. Only threads of the own key are resumed. In a store of a fleet, whose
 * workers look for such threads, only threads above those that have just `ended`.
 */
export async function wakeUnwoken(
  env: Stored & Process & Launching,
  { ended = [], neededNow = [] }: { ended?: readonly string[]; neededNow?: readonly string[] } = {},
): Promise<void> {
  const { registry, maintenance } = env.store;
  if (!maintenance) {
    for (const id of ended) await resumeWaitingAncestors(env, id);
    return;
  }
  for (const thread of await registry.list({ status: 'suspended' })) {
    if (!isWaiting(thread) || !(await hasNews(env, thread))) continue;
    const { thread_id: threadId, chain_root_id: root } = thread;
    const before = await registry.runOf(threadId);
    const resumer = await launchResume(env, thread);
    const isNeeded = neededNow.some((id) => id === threadId || id === root);
    if (resumer && isNeeded) await taken(env, { threadId, before, resumer });
  }
}

async function hasNews(env: Stored & Process, thread: ThreadRecord): Promise<boolean> {
  const { registry, approvals } = env.store;
  const ends = await Promise.all(
    awaitedThreads(thread).map(async (id) => await chainEnd(registry, id)),
  );
  if (!ends.some((end) => end && isFinal(end.status))) return false;
  const asked = await Promise.all(awaitedApprovals(thread).map((id) => approvals.get(id)));
  const own = env.signer().keyId;
  return asked.every((stored) => !stored || stored.request.worker_key_id === own);
}

async function taken(
  { store, clock }: Stored & Process,
  { threadId, before, resumer }: { threadId: string; before: number; resumer: Resumer },
): Promise<void> {
  const deadline = clock.monotonic() + TAKEN_MS;
  while (clock.monotonic() < deadline) {
    const hasEnded = resumer.hasEnded();
    if (hasEnded || (await store.registry.runOf(threadId)) !== before) return;
    await clock.sleep(TAKEN_LOOK_MS);
  }
}
