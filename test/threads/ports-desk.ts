import path from 'node:path';
import { onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { prepareThread } from '../../src/kernel/threads/prepare/prepare.ts';
import {
  type StartedThread,
  startThread,
  writerOptions,
} from '../../src/kernel/threads/run/start.ts';
import { headerOf } from '../../src/kernel/threads/thread-document.ts';
import { goneOwner } from '../../testing/conformance/fixtures.ts';
import { type LibraryLab, libraryLab } from '../app/library-lab.ts';
import type { WireScript } from '../helpers/wire-server.ts';

export interface PortsDesk {
  readonly lab: LibraryLab;
  /** The ports of a process that acts on the threads of the project. */
  readonly env: ThreadEnv;
  readonly notices: string[];
}

/** A project with the directive `team/work`, and the ports of a process on it. */
export async function portsDesk(script: WireScript = []): Promise<PortsDesk> {
  const lab = await libraryLab(script);
  await lab.directive('work');
  const home = path.join(lab.project, '..', 'home');
  const base = new Workspace({
    features: FEATURES,
    projectPath: lab.project,
    userSpacePath: home,
    env: { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test', ANTHROPIC_BASE_URL: lab.server.url },
  });
  onTestFinished(() => base.close());
  const notices: string[] = [];
  const made = await threadEnv(base, { allowUnsigned: false });
  return { lab, env: { ...made, onNotice: (text) => void notices.push(text) }, notices };
}

/** Lets one method of a port fail from now on. */
export function fails<T extends object>(port: T, method: keyof T, message = 'the disk is full') {
  Object.assign(port, {
    [method]: async () => {
      throw new Error(message);
    },
  });
}

/** A thread of `team/work` whose process is gone; `log`: what it has written, absent if it had no log yet. */
export async function deadThread(
  env: ThreadEnv,
  {
    log,
    threadId = 'job',
    parentId = null,
  }: {
    readonly log?: readonly EventDraft[];
    readonly threadId?: string;
    readonly parentId?: string | null;
  } = {},
): Promise<StartedThread> {
  const dead = { ...env, owner: goneOwner(env.store) };
  const { plan } = await prepareThread(env, { directiveId: 'team/work' });
  const started = await startThread(
    dead,
    {
      ...plan,
      parent_thread_id: parentId,
      limits: { ...plan.limits, spend: parentId === null ? 1 : 0.5 },
    },
    { threadId },
  );
  if (log === undefined) return started;
  const writer = await env.store.logs.create(
    headerOf(started.document),
    writerOptions(dead, started),
  );
  writer.append([...log]);
  await writer.sync();
  return started;
}

/** The first event of a thread that has begun. */
export const STARTED: EventDraft = {
  event_type: 'thread_started',
  payload: {
    directive: 'team/work',
    model: 'm',
    provider: 'anthropic',
    limits: {},
    integrity: 'verified',
    inputs: {},
  },
};

/** An entry for a log that has to have some. */
export const BEGUN: EventDraft = { event_type: 'note', payload: { text: 'begun' } };

/** The end that a process wrote before it died. */
export function endedAs(status: 'completed' | 'error' | 'continued'): EventDraft {
  const error = { code: 'thread_error', message: 'it failed' } as const;
  const payload = { status, result: '', cost: NO_COST, ...(status === 'error' ? { error } : {}) };
  return { event_type: 'thread_finished', payload };
}
