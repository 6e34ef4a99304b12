import { isoTime } from '../core/clock.ts';
import { sendDelivery, settleDelivery } from '../threads/family/deliver.ts';
import type { DeliveriesService } from './api/threads.ts';
import { threadEnv } from './thread-env.ts';
import type { Workspace } from './workspace.ts';

/** Sends messages to threads and settles them. */
export function deliveriesOf(workspace: Workspace): Omit<DeliveriesService, 'list'> {
  const env = async () => await threadEnv(workspace, { allowUnsigned: false });
  const { clock, ids } = workspace;
  return {
    send: async (threadId, message, { mode = 'auto', from } = {}) =>
      await sendDelivery(await env(), { threadId, message, mode, from }),
    resolve: async (threadId, seq, as) => {
      const request = { threadId, seq, as, newId: ids.uuid(), now: isoTime(clock.now()) };
      return await settleDelivery(await env(), request);
    },
  };
}
