import type { LogEvent, UnknownEvent } from '../../core/events.ts';
import type { ThreadResult } from '../../core/thread.ts';
import type { ModelProvider } from '../../providers/provider.ts';
import { adoptThread, type Handover, secretsOf } from '../family/spawn.ts';
import type { ThreadEnv } from '../ports.ts';
import { childStarter } from './run-directive.ts';
import { runThread } from './run-thread.ts';

export interface LaunchedRun {
  readonly handover: Handover;
  readonly signal: AbortSignal;
  readonly onEvent?: ((event: LogEvent | UnknownEvent) => void) | undefined;
  readonly wrapProvider?: ((provider: ModelProvider) => ModelProvider) | undefined;
}

/** Runs a launched thread to its end in this process, which was started for it. */
export async function runLaunched(
  env: ThreadEnv,
  threadId: string,
  { handover, ...options }: LaunchedRun,
): Promise<ThreadResult> {
  const secrets = await secretsOf(env, threadId, handover);
  const started = await adoptThread(env, threadId);
  return await runThread(env, started, {
    ...options,
    secrets,
    children: childStarter(env, handover.options),
  });
}
