import { execFile } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';
import { exclusively } from '../../src/kernel/app/exclusive.ts';
import { systemClock } from '../../src/kernel/app/system.ts';
import { renderTrustedKey } from '../../src/kernel/trust/key-files.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { bundle } from '../helpers/bundle.ts';
import { reply } from '../helpers/wire-server.ts';
import { testKey } from '../trust/keys.ts';

async function open(): Promise<Lab> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  return lab;
}

const rule = (name: string): string =>
  `---\nname: ${name}\ndescription: d\nalwaysApply: true\n---\nRule ${name}.\n`;

it('signing many files at once pins all of them, and runs start', async () => {
  const lab = await open();
  await lab.model(() => reply('Done.'));
  lab.signed('directives/work.md', directive('work'));
  const rounds = [0, 1].map((round) => ['a', 'b', 'c', 'd'].map((name) => name + round));
  for (const names of rounds) {
    for (const name of names) lab.write(`rules/${name}.md`, rule(name));
    await Promise.all(names.map(async (name) => await lab.sign('rule', name)));
    const { files } = JSON.parse(readFileSync(lab.path('lock.json'), 'utf8')) as {
      files: readonly { readonly id: string }[];
    };
    expect(files.map(({ id }) => id)).toEqual(expect.arrayContaining(names));
    expect((await lab.run('work')).status).toBe('completed');
  }
  expect(existsSync(lab.path('state/lease.json'))).toBe(false);
});

it('changes of one file come one after the other, and a failure ends none of the others', async () => {
  const lab = await open();
  const folder = lab.path('alone');
  let value = 0;
  const changes = Array.from({ length: 20 }, async (_, index) => {
    await exclusively({ folder, clock: systemClock }, async () => {
      const read = value;
      await Promise.resolve();
      if (index % 5 === 0) throw new Error('no');
      value = read + 1;
    });
  });
  const ends = await Promise.allSettled(changes);
  expect(ends.filter(({ status }) => status === 'rejected')).toHaveLength(4);
  expect(value).toBe(16);
  expect(existsSync(folder)).toBe(false);
});

it('processes that trust a key in two projects at once keep both', async () => {
  const child = await bundle(path.resolve(import.meta.dirname, 'keys-child.ts'), undefined, {
    opensProjects: true,
  });
  const [lab, other, third] = [await open(), await open(), await open()];
  const { keyId, pem } = testKey(9);
  const key = lab.path('team.pem');
  writeFileSync(key, pem);
  const projects = [lab, other, third].map(({ project }) => realpathSync(project));
  for (const project of projects) {
    // a key that the project brings along is trusted in that project
    const folder = path.join(project, '.ai/config/keys/trusted');
    mkdirSync(folder, { recursive: true });
    const text = renderTrustedKey({
      key: testKey(9),
      owner: 'team',
      scope: { purposes: ['sign'] },
    });
    writeFileSync(path.join(folder, `${keyId}.toml`), text);
  }
  const run = promisify(execFile);
  await Promise.all(
    projects.map(async (project) => await run(process.execPath, [child, lab.home, project, key])),
  );
  const found = (await lab.rye().keys.list()).find(({ key_id: id }) => id === keyId);
  expect(found?.projects?.toSorted()).toEqual(projects.toSorted());
  expect(existsSync(path.join(lab.home, '.ai/state/keys'))).toBe(false);
});
