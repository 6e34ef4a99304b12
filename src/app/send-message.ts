import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import { sendDelivery } from '../threads/family/deliver.ts';
import type { ThreadEnv } from '../threads/ports.ts';
import type { SendMessage } from '../tools/orchestrator/orchestrator.ts';

/** What the tool `send_message` does for a thread. */
export function messageSender(env: ThreadEnv): SendMessage {
  return async ({ to, message, mode }, { threadId: from }): Promise<JsonObject> => {
    const threadId = to === 'parent' ? await parentOf(env, from) : to;
    const { delivery, outlook } = await sendDelivery(env, { threadId, message, mode, from });
    return {
      delivery_id: delivery.delivery_id,
      thread_id: delivery.thread_id,
      state: delivery.state,
      outlook,
    };
  };
}

async function parentOf(env: ThreadEnv, threadId: string): Promise<string> {
  const parent = (await env.store.registry.get(threadId))?.parent_id;
  if (typeof parent === 'string') return parent;
  throw new RyeError('not_descendant', `no thread has started ${threadId}`, {
    hint: 'A message can go to the threads that this one has started.',
  });
}
