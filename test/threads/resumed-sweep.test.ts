import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { ErrorInfo } from '../../src/kernel/core/errors.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { approvalPending } from '../../src/kernel/threads/run/waiting.ts';
import { reply } from '../helpers/wire-server.ts';
import { BEGUN, deadThread, endedAs, portsDesk, STARTED } from './ports-desk.ts';

const now = new Date().toISOString();

type Parent = 'none' | 'runs' | 'waits' | 'is suspended' | 'has ended';

it.each<[Parent, boolean]>([
  ['none', true],
  ['runs', true],
  ['waits', true],
  ['is suspended', false],
  ['has ended', false],
])(
  'with recovery.mode: resume, a crashed child continues while its parent needs it: %s',
  async (parent, continues) => {
    const { lab, env } = await portsDesk(() => reply('Done.'));
    mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
    const mode = 'recovery: { mode: resume }\n';
    writeFileSync(path.join(lab.project, '.ai/config/agent/coordination.yaml'), mode);
    await lab.open().items.sign('config', 'agent/coordination');
    const { registry } = env.store;
    if (parent !== 'none') {
      await deadThread(env, { threadId: 'top', log: [STARTED] });
      const { epoch } = await registry.claim('top', env.owner, now);
      const errors: Partial<Record<Parent, ErrorInfo>> = {
        waits: approvalPending(['apr-1'], ['job']),
        'is suspended': { code: 'thread_suspended', message: 'by a hook' },
      };
      const error = errors[parent];
      const status = error ? 'suspended' : 'completed';
      const end = {
        status,
        now,
        cost: NO_COST,
        result: '',
        epoch,
        ...(error ? { error } : {}),
      } as const;
      if (parent !== 'runs') await registry.finish('top', end);
    }
    const parentId = parent === 'none' ? null : 'top';
    await deadThread(env, { log: [STARTED, BEGUN], parentId });
    await deadThread(env, { threadId: 'over', log: [STARTED, endedAs('completed')] });
    const { recovered, resumed, failures } = await lab.open().recovery.recover();
    expect(failures).toEqual([]);
    expect(recovered.map(({ thread_id: id, action }) => `${id} ${action}`).toSorted()).toEqual([
      'job failed',
      'over finished',
    ]);
    expect(resumed.map(({ thread_id: id, status }) => `${id} ${status}`)).toEqual(
      continues ? ['job completed'] : [],
    );
  },
);
