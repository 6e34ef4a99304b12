import { rmSync } from 'node:fs';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { acceptGuards, unpin } from '../../src/kernel/app/guards.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const HOOKS = 'hooks:\n  - { id: a, event: after_step, action: { emit: x, data: {} } }\n';
const APPROVALS = 'approvers: {}\n';

interface LockFile {
  readonly serial: number;
  readonly files: readonly { readonly id: string }[];
}

async function project(): Promise<Lab> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.rye().init();
  return lab;
}

const lockOf = (lab: Lab): LockFile => JSON.parse(lab.read('lock.json')) as LockFile;
const pinned = (lab: Lab): readonly string[] =>
  lockOf(lab)
    .files.map(({ id }) => id)
    .toSorted();
function opened({ project: projectPath, home: userSpacePath, env }: Lab): Workspace {
  const made = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  onTestFinished(() => made.close());
  return made;
}

/** As on another machine, which has only the files of the project. */
const forgets = (lab: Lab): void => removeFolder(path.join(lab.home, '.ai/state'));

it('the first lock of a project pins every signed power file, later ones what a person signs', async () => {
  const lab = await project();
  const before = pinned(lab);
  lab.signed('config/agent/hooks.yaml', HOOKS);
  lab.write('config/agent/approvals.yaml', APPROVALS);
  await lab.sign('config', 'agent/approvals');
  expect(pinned(lab)).toEqual(['agent/approvals', ...before].toSorted());
  forgets(lab);
  // a valid lock is no first one, also where it was not met before
  await lab.sign('config', 'agent/approvals');
  expect(pinned(lab)).not.toContain('agent/hooks');
  await expect(lab.run('hello')).rejects.toMatchObject({ code: 'guard_changed' });
  rmSync(lab.path('lock.json'));
  forgets(lab);
  await lab.sign('config', 'agent/approvals');
  expect(pinned(lab)).toEqual(['agent/approvals', 'agent/hooks', ...before].toSorted());
});

it('a lock is written again only if its pins change, and its version only rises', async () => {
  const lab = await project();
  lab.write('config/agent/hooks.yaml', HOOKS);
  await lab.sign('config', 'agent/hooks');
  const { serial } = lockOf(lab);
  const text = lab.read('lock.json');
  await lab.sign('config', 'agent/hooks');
  expect(lab.read('lock.json')).toBe(text);
  // the memory of the person knows the version of a lock that is gone
  rmSync(lab.path('lock.json'));
  await acceptGuards(opened(lab));
  expect(lockOf(lab).serial).toBe(serial + 1);
});

it('a file that rye has removed leaves the lock, which is not written for one that it does not have', async () => {
  const lab = await project();
  lab.write('config/agent/hooks.yaml', HOOKS);
  await lab.sign('config', 'agent/hooks');
  const text = lab.read('lock.json');
  await unpin(opened(lab), { type: 'config', id: 'store' });
  expect(lab.read('lock.json')).toBe(text);
  await unpin(opened(lab), { type: 'config', id: 'agent/hooks' });
  expect(pinned(lab)).not.toContain('agent/hooks');
});
