import { writeFileSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { threadEnv } from '../../src/app/thread-env.ts';
import { Workspace } from '../../src/app/workspace.ts';
import type { ThreadEnv } from '../../src/threads/ports.ts';
import { assertIntact } from '../../src/threads/recovery/successor.ts';
import { titleThread } from '../../src/threads/session/edit.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

/** A finished thread, and another process that acts right after thread.json was read for the first time. */
async function scene(act: (here: Lab, id: string) => Promise<void>) {
  const here = await openLab();
  onTestFinished(async () => await here.remove());
  await here.model(() => reply('Done.'));
  here.signed('directives/work.md', directive('work'));
  const { thread_id: id } = await here.run('work');
  const { project: projectPath, home: userSpacePath, env } = here;
  const base = new Workspace({ projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  const made = await threadEnv(base, { allowUnsigned: false });
  let reads = 0;
  const readDocument = async (threadId: string) => {
    const document = await made.files.readDocument(threadId);
    reads += 1;
    if (reads === 1) await act(here, id);
    return document;
  };
  const raced: ThreadEnv = { ...made, files: { ...made.files, readDocument } };
  return { here, id, raced };
}

async function titles(here: Lab, id: string): Promise<readonly string[]> {
  const { rows } = await here.rye().trees.view(id, { filter: 'all' });
  return rows.filter(({ kind }) => kind === 'title').map(({ text }) => text);
}

it('an edit holds the lease from its verification to its write', async () => {
  const refused: unknown[] = [];
  const { here, id, raced } = await scene(async (lab, thread) => {
    await lab
      .rye()
      .trees.title(thread, 'of another process')
      .catch((error: unknown) => refused.push((error as { code?: string }).code));
  });
  await titleThread(raced, id, 'mine');
  expect(refused).toEqual(['thread_locked']);
  expect(await titles(here, id)).toEqual(['mine']);
  expect((await here.rye().threads.verify(id)).ok).toBe(true);
  // and gives way when it is done
  await here.rye().trees.title(id, 'of another process');
  expect(await titles(here, id)).toEqual(['mine', 'of another process']);
});

it('a continuation accepts entries that are written during its verification', async () => {
  const { here, id, raced } = await scene(async (lab, thread) => {
    await lab.rye().trees.title(thread, 'of another process');
  });
  const { document } = await assertIntact(raced, id);
  expect(document.transcript).toEqual((await raced.files.readDocument(id)).transcript);
  writeFileSync(raced.store.logs.location(id), 'x', { flag: 'a' });
  await expect(assertIntact(raced, id)).rejects.toMatchObject({ code: 'transcript_tampered' });
  await expect(here.rye().trees.title(id, 'again')).rejects.toMatchObject({
    code: 'transcript_tampered',
  });
});
