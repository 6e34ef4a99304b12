import { copyFileSync, mkdirSync, readdirSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { libraryLab } from '../app/library-lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { reply } from '../helpers/wire-server.ts';

it('a registry and a ledger that lost a run have its cost again', async () => {
  const lab = await libraryLab([reply('One.'), reply('Two.')]);
  await lab.directive('work');
  const folder = path.join(lab.project, '.ai/state/threads');
  const kept = path.join(lab.project, 'kept');
  mkdirSync(kept);
  const copy = (from: string, to: string): void => {
    for (const name of readdirSync(to)) {
      if (name.includes('.db')) removeFolder(path.join(to, name));
    }
    for (const name of readdirSync(from)) {
      if (name.includes('.db')) copyFileSync(path.join(from, name), path.join(to, name));
    }
  };
  const first = lab.open();
  await first.run({ directiveId: 'team/work', threadId: 'job', behavior: { nudge: false } });
  first.close();
  copy(folder, kept);
  const second = lab.open();
  const { cost } = await second.recovery.resume({ threadId: 'job', message: 'Again.' });
  second.close();
  copy(kept, folder);
  const third = lab.open();
  await third.recovery.recover();
  expect((await third.threads.show('job')).thread).toMatchObject({ result: 'Two.' });
  const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
  onTestFinished(() => store.close());
  const [row] = await store.ledger.rows({ thread_id: 'job' });
  expect(row?.actual).toBe(Math.round(cost.own.spend * 1e6));
});
