import type { ThreadPlan } from '../../core/plan.ts';
import { Children } from '../family/children.ts';
import type { ThreadEnv } from '../ports.ts';
import { HookRunner } from '../run/hook-runner.ts';
import { Recorder } from '../run/recorder.ts';
import type { AskBeforeCompact } from './compact.ts';
import type { OpenEdit } from './edit-log.ts';
import { NO_CHILDREN } from './replay-world.ts';

/**
 * The `before_compact` hooks of a thread that does not run. Its tools are opened only where it has such hooks; what they
 * run is logged as in a running thread. They start no threads.
 */
export function offlineHooks(
  env: ThreadEnv,
  { open, plan }: { readonly open: OpenEdit; readonly plan: ThreadPlan },
): AskBeforeCompact {
  return async (context, signal) => {
    const isAsked = plan.hooks.some(({ event, enabled }) => event === 'before_compact' && enabled);
    if (!isAsked) return { fired: [], drafts: [], instructions: [] };
    const { document, record, writer, begin } = open;
    const threadId = document.thread_id;
    await begin();
    const recorder = new Recorder({ writer, clock: env.clock, deltas: 'off' });
    const parent = { threadId, plan, record, document, parent: undefined };
    const children = new Children({ parent, starter: NO_CHILDREN, recorder, onEvent: undefined });
    const tools = await env.tools.open({ plan, threadId, secrets: {}, children });
    const hooks = new HookRunner({ env, plan, threadId, tools, children, recorder });
    return await hooks.beforeCompact(context, signal);
  };
}
