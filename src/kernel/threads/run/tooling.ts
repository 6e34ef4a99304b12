import { Children, type ChildrenOptions } from '../family/children.ts';
import type { OpenTools, Process, Sources, ToolSession } from '../ports.ts';
import type { SubjectEnv } from './approval-subject.ts';
import { HookAsks } from './hook-asks.ts';
import { HookRunner } from './hook-runner.ts';
import type { Recorder } from './recorder.ts';
import type { StartedThread } from './start.ts';

/** The tools of a thread, the hooks that may run them, and the children that both may start. */
export interface Tooling {
  readonly tools: OpenTools;
  readonly hooks: HookRunner;
  readonly children: Children;
}

export interface ToolingOptions
  extends Pick<ChildrenOptions, 'starter' | 'onEvent' | 'onLearned' | 'earlier'>,
    Pick<ToolSession, 'record' | 'keep'> {
  /** Values of secret inputs, by name; none by default. */
  readonly secrets?: Readonly<Record<string, string>>;
  /** Finds out what people have to decide; undefined: nothing that hooks call has an effect. */
  readonly approvals: SubjectEnv | undefined;
  /** Begins the ids of the hooks' calls; by default it names the run. */
  readonly callPrefix?: string;
  /** Replaces the tools, for hooks too. */
  readonly wrap?: (tools: OpenTools) => OpenTools;
}

export async function openTooling(
  env: Process & Pick<Sources, 'items' | 'models' | 'tools'>,
  started: StartedThread,
  recorder: Recorder,
  { record, keep, secrets = {}, wrap, approvals, callPrefix: prefix, ...rest }: ToolingOptions,
): Promise<Tooling> {
  const { plan, threadId } = started;
  const children = new Children({ parent: started, recorder, ...rest });
  const traits = env.models.traits(plan.model);
  const opened = await env.tools.open({ plan, traits, threadId, secrets, children, record, keep });
  const tools = wrap?.(opened) ?? opened;
  const run = started.document.runs?.length ?? 1;
  const callPrefix = prefix ?? (run === 1 ? 'hook-' : `hook-${run}-`);
  const asks = approvals && new HookAsks(approvals, started);
  const hooks = new HookRunner({
    env,
    plan,
    threadId,
    callPrefix,
    tools,
    children,
    recorder,
    asks,
  });
  children.attach(hooks);
  return { tools, hooks, children };
}
