import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { prepareThread } from '../../src/kernel/threads/prepare/prepare.ts';
import { asLogged, recoverThread } from '../../src/kernel/threads/recovery/recover.ts';
import { startThread, writerOptions } from '../../src/kernel/threads/run/start.ts';
import { headerOf, type ThreadDocument } from '../../src/kernel/threads/thread-document.ts';
import { goneOwner } from '../../testing/conformance/fixtures.ts';
import { libraryLab } from '../app/library-lab.ts';
import { reply } from '../helpers/wire-server.ts';

/** A project with a directive, and the ports of a process that recovers its threads. */
async function project() {
  const lab = await libraryLab([reply('Done.')]);
  await lab.directive('work');
  const home = path.join(lab.project, '..', 'home');
  const given = { HOME: home, ANTHROPIC_API_KEY: 'sk-ant-test' };
  const base = new Workspace({
    features: FEATURES,
    projectPath: lab.project,
    userSpacePath: home,
    env: given,
  });
  onTestFinished(() => base.close());
  return { lab, env: await threadEnv(base, { allowUnsigned: false }) };
}

it('a crashed thread whose log was changed keeps the cost that the registry was told', async () => {
  const { lab, env } = await project();
  const { registry, logs } = env.store;
  const dead = { ...env, owner: goneOwner(env.store) };
  const { plan } = await prepareThread(env, { directiveId: 'team/work' });
  const started = await startThread(dead, plan, { threadId: 'job' });
  const writer = await logs.create(headerOf(started.document), writerOptions(dead, started));
  writer.append([{ event_type: 'note', payload: { text: 'begun' } }]);
  await writer.sync();
  const now = new Date().toISOString();
  const cost = { ...NO_COST, turns: 2, spend: 0.25 };
  await registry.heartbeat('job', started.record.epoch, now, { cost });
  const file = path.join(lab.project, '.ai/state/threads/job/transcript.jsonl');
  writeFileSync(file, readFileSync(file, 'utf8').replace('begun', 'ended'));
  await recoverThread(env, 'job');
  expect(await registry.get('job')).toMatchObject({
    status: 'error',
    cost: { spend: 0.25, turns: 2 },
  });
});

it('the limits of a run that never began do not count for the record of the one before', async () => {
  const { lab, env } = await project();
  const behavior = { nudge: false };
  await lab.open().run({ directiveId: 'team/work', threadId: 'job', behavior });
  const document = await env.files.readDocument('job');
  const { events } = await env.store.logs.read('job');
  const runs = [{ limits: document.limits }, { limits: { ...document.limits, turns: 99 } }];
  const announced = { ...document, limits: { ...document.limits, turns: 99 }, runs };
  const logged = await asLogged(env, announced as unknown as ThreadDocument, events);
  expect(logged.limits).toEqual(document.limits);
  expect(logged).not.toHaveProperty('runs');
});
