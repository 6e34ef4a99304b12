import { writeFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { expect, it, onTestFinished } from 'vitest';
import {
  costOf,
  editLog,
  type LogEdit,
  type OpenEdit,
  titleThread,
} from '../../src/features/sessions/edit.ts';
import { FEATURES } from '../../src/features/shipped.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import { NO_USAGE, toMicroUsd } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { assertIntact } from '../../src/kernel/threads/recovery/successor.ts';
import type { ThreadDocument } from '../../src/kernel/threads/thread-document.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

/** Runs a thread to its end; returns its id. */
async function finished(here: Lab): Promise<string> {
  await here.model(() => reply('Done.'));
  here.signed('directives/work.md', directive('work'));
  return (await here.run('work')).thread_id;
}

/** A finished thread, and another process that acts right after thread.json was read for the first time. */
async function scene(act: (here: Lab, id: string) => Promise<void>) {
  const here = await openLab();
  onTestFinished(async () => await here.remove());
  const id = await finished(here);
  const { project: projectPath, home: userSpacePath, env } = here;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
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

/** Makes an edit as a process that dies at a write of thread.json, before it or after it. */
async function dieAt(
  { here, id }: { readonly here: Lab; readonly id: string },
  isLast: (document: ThreadDocument, write: number) => boolean,
  {
    isWritten,
    make,
  }: { readonly isWritten: boolean; readonly make: Parameters<typeof editLog>[2] },
): Promise<void> {
  const { project: projectPath, home: userSpacePath, env } = here;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  const living = await threadEnv(base, { allowUnsigned: false });
  // above the largest pid that Linux gives
  const owner = ownerOf({ pid: 4_199_999, process_start: 'test:1', host: hostname() });
  await new Promise<void>((die, reject) => {
    let writes = 0;
    const writeDocument = async (document: ThreadDocument) => {
      writes += 1;
      if (!isLast(document, writes)) return await living.files.writeDocument(document);
      if (isWritten) await living.files.writeDocument(document);
      die();
      return await new Promise<never>(() => undefined);
    };
    const dying: ThreadEnv = { ...living, owner, files: { ...living.files, writeDocument } };
    editLog(dying, id, make).then(() => reject(new Error('the edit did not die')), reject);
  });
  base.close();
}

const title = (text: string) => ({ event_type: 'title', payload: { title: text } }) as const;

/** A cost of one dollar more. */
function paid({ document }: OpenEdit): LogEdit {
  const before = costOf(document);
  const cost = { ...before, spend: before.spend + 1, output_tokens: before.output_tokens + 5 };
  const usage = { ...NO_USAGE, output_tokens: 5 };
  const payload = { turn: cost.turns, usage, total: cost };
  return { drafts: [{ event_type: 'cost', payload }], cost };
}

it('an edit that dies after it booked a piece leaves no older thread.json', async () => {
  const here = await openLab();
  onTestFinished(async () => await here.remove());
  const id = await finished(here);
  await dieAt({ here, id }, ({ transcript }, write) => write === 3 && transcript === undefined, {
    isWritten: true,
    make: async (open) => {
      await open.book(paid(open));
      return { drafts: [title('too late')] };
    },
  });
  const { checks } = await here.rye().threads.verify(id);
  expect(checks.filter(({ ok }) => !ok)).toEqual([]);
  await here.rye().trees.title(id, 'mine');
  expect(await titles(here, id)).toEqual(['mine']);
});

it.each([
  ['before', false],
  ['after', true],
])(
  'the next edit books what an edit paid that died %s it named its end',
  async (_when, isWritten) => {
    const here = await openLab();
    onTestFinished(async () => await here.remove());
    const id = await finished(here);
    const { spend, output_tokens } = (await here.rye().threads.show(id)).thread.cost;
    await dieAt({ here, id }, ({ transcript }) => transcript !== undefined, {
      isWritten,
      make: paid,
    });
    expect((await here.rye().threads.show(id)).thread.cost.spend).toBe(spend);
    await here.rye().trees.title(id, 'mine');
    const { thread, document } = await here.rye().threads.show(id);
    expect(thread.cost).toMatchObject({ spend: spend + 1, output_tokens: output_tokens + 5 });
    const { own: _own, total: _total, ...cost } = thread.cost;
    expect(document?.cost).toEqual(cost);
    const store = openStore({ projectPath: here.project, clock: systemClock, ids: systemIds });
    onTestFinished(() => store.close());
    const [row] = await store.ledger.rows({ thread_id: id });
    expect(row?.actual).toBe(toMicroUsd(spend + 1));
    expect((await here.rye().threads.verify(id)).ok).toBe(true);
  },
);
