import { buildTree } from '../../log/tree.ts';
import type { LoopPorts } from '../../loop/ports.ts';
import { restoreHistory } from '../../loop/stream-rules/history.ts';
import type { ThreadEnv } from '../ports.ts';
import { readSigned } from '../verified-log.ts';
import type { StartedThread } from './start.ts';

/**
 * The loop's view of a thread's stream rules; empty where nothing watches. A thread that goes on from a log remembers
 * what its path says was told.
 */
export async function watchRules(
  env: ThreadEnv,
  { threadId, plan }: StartedThread,
  continues: boolean,
): Promise<Pick<LoopPorts, 'watchStream'>> {
  if (!plan.rules || plan.rules.stream.length === 0) return {};
  const history = continues
    ? restoreHistory(buildTree((await readSigned(env, threadId)).events))
    : undefined;
  const session = env.rules.watch(plan, history);
  return session ? { watchStream: (turn) => session.watch(turn) } : {};
}
