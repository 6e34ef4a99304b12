import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { prepareThread } from '../../src/kernel/threads/prepare/prepare.ts';
import { prepareToolRun } from '../../src/kernel/threads/prepare/tool-run.ts';
import { startThread } from '../../src/kernel/threads/run/start.ts';
import { mockModel } from '../../testing/index.ts';
import { libraryLab } from './library-lab.ts';

it('a model that an option names is not looked for at the provider of the directive', async () => {
  const lab = await libraryLab();
  await lab.directive('work', [], { metadata: '<model provider="mock" tier="fast"/>' });
  const rye = lab.open({ providers: { mock: mockModel([]).kind } });
  const request = { directiveId: 'team/work' };
  const placeOf = async (options: object): Promise<string> =>
    (await rye.threads.plan({ ...request, ...options })).model.provider;
  expect(await placeOf({})).toBe('mock');
  expect(await placeOf({ model: 'claude-haiku-5-5' })).toBe('anthropic');
});

it('a tool that a thread starts in the background may do what was accepted for that thread', async () => {
  const lab = await libraryLab();
  await lab.directive('top', ['rye/bash']);
  const home = path.join(lab.project, '..', 'home');
  const env = { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test' };
  const base = new Workspace({
    features: FEATURES,
    projectPath: lab.project,
    userSpacePath: home,
    env,
  });
  onTestFinished(() => base.close());
  const ports = await threadEnv(base, { allowUnsigned: false });
  const run = { toolId: 'rye/bash', params: { command: 'true' } };
  await expect(prepareToolRun(ports, run)).rejects.toMatchObject({ code: 'acknowledge_required' });
  const acknowledge = ['elevated:rye/bash'] as const;
  const { plan } = await prepareThread(ports, { directiveId: 'team/top', acknowledge });
  const { threadId } = await startThread(ports, plan, {});
  const child = await prepareToolRun(ports, { ...run, parentThreadId: threadId });
  expect(child.plan).toMatchObject({
    parent_thread_id: threadId,
    acknowledged: [{ tool: 'rye/bash' }],
  });
});
