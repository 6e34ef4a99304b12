import { expect, it } from 'vitest';
import { openMemoryStore } from '../../src/kernel/storage/memory-store.ts';
import { removeDead } from '../../src/kernel/threads/recovery/crashed-worktree.ts';
import { removeWorktrees } from '../../src/kernel/threads/recovery/gc-worktrees.ts';
import { ThreadWorktree } from '../../src/kernel/threads/run/isolation.ts';
import { countingIds, STOPPED, threadParams } from '../../testing/conformance/fixtures.ts';

const WORKTREE = { path: '.ai/state/worktrees/t', base: 'abc', result: 'merge' };
const FACTS = { base: 'abc', patch: null, files: [] };

it.each([
  ['completed', 'merged', [], []],
  ['completed', 'merged', ['a.txt'], []],
  ['completed', 'merge_conflict', [], ['a.txt']],
  ['completed', 'merge_conflict', ['a.txt'], ['b.txt']],
  ['error', 'patch', [], []],
  ['cancelled', 'patch', [], []],
] as const)(
  'the changes of a thread that ended as %s: %s (merged %j, in conflict %j)',
  async (kind, status, done, conflicts) => {
    const merged: unknown[] = [];
    const env = {
      fleet: { leg: {} },
      onNotice: () => undefined,
      files: { writePatch: async () => 'changes.patch' },
      worktrees: {
        collect: async () => ({
          files: [{ path: 'a.txt', change: 'modified' }],
          patch: Buffer.from('patch'),
          leftOut: [],
        }),
        merge: async (worktree: unknown) => {
          merged.push(worktree);
          return { conflicts, merged: done };
        },
      },
    } as unknown as ConstructorParameters<typeof ThreadWorktree>[0];
    const started = { threadId: 't', plan: { worktree: WORKTREE }, document: {} };
    const made = new ThreadWorktree(
      env,
      started as unknown as ConstructorParameters<typeof ThreadWorktree>[1],
    );
    const recorder = { record: () => [], settled: async () => undefined };
    const { changes } = await made.end(
      { kind } as unknown as Parameters<ThreadWorktree['end']>[0],
      recorder as unknown as Parameters<ThreadWorktree['end']>[1],
      new AbortController().signal,
    );
    expect(changes?.status).toBe(status);
    expect(merged).toHaveLength(status === 'patch' ? 0 : 1);
    const rest = {
      ...(conflicts.length > 0 && { conflicts }),
      ...(done.length > 0 && { merged: done }),
    };
    if (status === 'merge_conflict') expect(changes).toMatchObject(rest);
  },
);

it('the worktree of a dead thread stays while it has what nothing else has, or a child works in it', async () => {
  const store = openMemoryStore({ clock: STOPPED, ids: countingIds() });
  const removed: unknown[] = [];
  const env = {
    store,
    onNotice: () => undefined,
    worktrees: { remove: async (worktree: unknown) => void removed.push(worktree) },
  } as unknown as Parameters<typeof removeDead>[0];
  const dead = { threadId: 't', plan: { worktree: WORKTREE } };
  const remove = async (changes: object | undefined): Promise<number> => {
    await removeDead(
      env,
      dead as unknown as Parameters<typeof removeDead>[1],
      changes as Parameters<typeof removeDead>[2],
    );
    return removed.splice(0).length;
  };
  await store.registry.register(threadParams('t'));
  expect(await remove(undefined)).toBe(0);
  expect(await remove({ ...FACTS, status: 'patch', left_out: ['large.bin'] })).toBe(0);
  expect(await remove({ ...FACTS, status: 'none' })).toBe(1);
  const owned = { owner: store.owners.self(), isClaimed: true };
  await store.registry.register(threadParams('child', { parentId: 't', ...owned }));
  expect(await remove({ ...FACTS, status: 'none' })).toBe(0);
});

it.each([
  ['in it', WORKTREE.path, 0],
  ['in a folder of it', `${WORKTREE.path}/packages/a`, 0],
  ['in another one whose name begins alike', `${WORKTREE.path}-2`, 1],
  ['in the project', undefined, 1],
])('a worktree is not removed while a thread runs %s', async (_, place, count) => {
  const store = openMemoryStore({ clock: STOPPED, ids: countingIds() });
  const removed: unknown[] = [];
  await store.registry.register(threadParams('t', { owner: store.owners.self(), isClaimed: true }));
  await removeWorktrees({
    store,
    onNotice: () => undefined,
    files: { exists: () => true, readDocument: async () => ({ work_path: place }) },
    worktrees: {
      list: async () => [WORKTREE.path],
      remove: async (worktree: unknown) => void removed.push(worktree),
    },
  } as unknown as Parameters<typeof removeWorktrees>[0]);
  expect(removed).toHaveLength(count);
});
