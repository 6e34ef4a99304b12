import { isoTime } from '../../core/clock.ts';
import { type Delivery, type DeliveryMode, INLINE_BYTES } from '../../core/delivery.ts';
import { RyeError } from '../../core/errors.ts';
import { isFinal, type ThreadRecord } from '../../core/thread.ts';
import { threadNotFound } from '../../core/thread-errors.ts';
import type { ResolveParams } from '../../storage/store.ts';
import type { Launching, Recovering, Stored, Supervising } from '../ports.ts';
import { recoverThread } from '../recovery/recover.ts';
import { deathOf } from '../run/liveness.ts';
import { assertDescendant, chainEnd } from './children.ts';
import { deliveryBody } from './delivery-log.ts';
import { launchResume } from './resume-process.ts';

/** Maximum bytes of a message; longer text belongs in a file. */
const MAX_BYTES = 256 * 1024;

export interface SendRequest {
  readonly threadId: string;
  readonly message: string;
  readonly mode: DeliveryMode;
  /** The thread that sends; absent: a person does. */
  readonly from?: string | undefined;
}

/** A queued delivery and one sentence about when the model will see it. */
export interface SentDelivery {
  readonly delivery: Delivery;
  readonly outlook: string;
}

/**
 * Queues a message for a thread or its continuation. A thread may write only to its parent and to its descendants:
 * `not_descendant`.
 */
export async function sendDelivery(
  env: Supervising,
  { threadId, message, mode, from }: SendRequest,
): Promise<SentDelivery> {
  if (from !== undefined) await assertMayWrite(env, from, threadId);
  assertMessage(message);
  const addressee = await chainEnd(env.store.registry, threadId);
  if (!addressee) {
    throw threadNotFound(threadId);
  }
  if (mode === 'active' && addressee.status !== 'running') {
    throw new RyeError(
      'illegal_transition',
      `thread ${addressee.thread_id} does not run: it is ${addressee.status}`,
      { hint: 'Send the message with --mode auto: it waits until the thread is resumed.' },
    );
  }
  const sender = from === undefined ? 'person' : 'background';
  const body = deliveryBody({ class: sender, source: from ?? 'person', text: message }, undefined);
  const delivery = await env.store.deliveries.enqueue({
    deliveryId: env.ids.uuid(),
    threadId,
    class: sender,
    kind: from === undefined ? 'steer' : 'message',
    mode,
    source: from ?? 'person',
    text: message,
    requiresArtifact: Buffer.byteLength(body) > INLINE_BYTES,
    now: isoTime(env.clock.now()),
  });
  const { onFinished } = env.config;
  await wakeFinished(env, delivery.thread_id);
  return { delivery, outlook: outlookOf(addressee, { mode, sender, onFinished }) };
}

/**
 * Settles a delivery as a person decides. A crashed thread is recovered first, because its log may already decide.
 */
export async function settleDelivery(
  env: Recovering & Launching,
  request: ResolveParams,
): Promise<Delivery> {
  const { deliveries, registry } = env.store;
  const { threadId, seq, as } = request;
  const delivery = (await deliveries.list(threadId)).find((one) => one.seq === seq);
  const thread = delivery && (await registry.get(delivery.thread_id));
  const { recovery } = env.config;
  if (thread && deathOf(env, thread, recovery.staleSeconds)) {
    await recoverThread(env, thread.thread_id);
  }
  const settled = await deliveries.resolve(request);
  if (as === 'retry') await wakeFinished(env, settled.thread_id);
  return settled;
}

async function assertMayWrite(env: Pick<Stored, 'store'>, from: string, to: string): Promise<void> {
  const { registry } = env.store;
  const own = await registry.chain(from);
  const parents = await Promise.all(
    own.flatMap(({ parent_id: id }) => (id === null ? [] : [registry.chain(id)])),
  );
  if (parents.flat().some(({ thread_id }) => thread_id === to)) return;
  await assertDescendant(registry, from, to);
}

function assertMessage(message: string): void {
  if (message.trim() === '') {
    throw new RyeError('invalid_input', 'the message is empty', {
      hint: 'Write the text for the thread.',
    });
  }
  const size = Buffer.byteLength(message);
  if (size <= MAX_BYTES) return;
  throw new RyeError('invalid_input', `the message has ${size} bytes, more than ${MAX_BYTES}`, {
    hint: 'Write it to a file of the project and send the path.',
  });
}

interface Prospect {
  readonly mode: DeliveryMode;
  readonly sender: 'person' | 'background';
  readonly onFinished: 'hold' | 'resume';
}

function outlookOf(
  { thread_id: id, status }: ThreadRecord,
  { mode, sender, onFinished }: Prospect,
): string {
  if (isFinal(status) || status === 'suspended') {
    const resumes = onFinished === 'resume' && (status === 'completed' || status === 'error');
    const state = status === 'suspended' ? 'is suspended' : 'has finished';
    return resumes
      ? `rye resumes ${id} to deliver it`
      : `${id} ${state} and will see it when you resume it: rye threads resume ${id}`;
  }
  const waits = mode === 'idle' || mode === 'follow-up';
  if (sender === 'background' || waits) return `${id} will see it when its model has finished`;
  return `${id} will see it before its next model call`;
}

/** Starts a process that resumes a finished thread with waiting messages, if the configuration allows it. */
export async function wakeFinished(env: Supervising, threadId: string): Promise<void> {
  const { onFinished } = env.config;
  if (onFinished === 'hold') return;
  const thread = await chainEnd(env.store.registry, threadId);
  // a cancelled thread is never resumed automatically
  if (thread?.status !== 'completed' && thread?.status !== 'error') return;
  if (!(await env.store.deliveries.isAnyWaiting(thread.thread_id))) return;
  await launchResume(env, thread);
}
