import { existsSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { FEATURES } from '../../src/features/shipped.ts';
import { threadEnv } from '../../src/kernel/app/thread-env.ts';
import { Workspace } from '../../src/kernel/app/workspace.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import type { ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { collectThreads, type Retention } from '../../src/kernel/threads/recovery/gc.ts';
import { text, type WireStep } from '../helpers/wire-server.ts';
import { bash, edit, repository, type UndoDesk, worktrees } from './undo-desk.ts';

const ALL = { olderThanMs: -1, dryRun: false };
const ISOLATED = { kind: 'worktree', result: 'merge' } as const;

/** The ports of another process that collects, with these changes. */
async function collector(
  { lab }: UndoDesk,
  change: (env: ThreadEnv) => Partial<ThreadEnv>,
): Promise<{ readonly env: ThreadEnv; readonly notices: readonly string[] }> {
  const { project: projectPath, home: userSpacePath, env } = lab;
  const base = new Workspace({ features: FEATURES, projectPath, userSpacePath, env });
  onTestFinished(() => base.close());
  const made = await threadEnv(base, { allowUnsigned: false });
  const notices: string[] = [];
  const onNotice = (notice: string): void => void notices.push(notice);
  return { env: { ...made, onNotice, ...change(made) }, notices };
}

/** Collects all that is old, and acts while the log of this thread is archived. */
async function collectWhile(
  desk: UndoDesk,
  archived: string,
  act: () => Promise<void>,
): Promise<Retention> {
  const { env } = await collector(desk, ({ store }) => {
    const archive = async (id: string) => {
      if (id === archived) await act();
      return await store.logs.archive(id);
    };
    return { store: { ...store, logs: { ...store.logs, archive } } };
  });
  return await collectThreads(env, ALL);
}

const open = (desk: UndoDesk): string => join(desk.lab.project, 'open');

/** A tool that shows that it runs, and waits until it may continue. */
function waiting({ lab }: UndoDesk, then = 'true'): WireStep {
  const [here, exit] = [join(lab.project, 'arrived'), join(lab.project, 'open')];
  return bash(`touch '${here}'; while [ ! -e '${exit}' ]; do sleep 0.02; done; ${then}`);
}

/** The same, which then changes a file of the worktree. */
function gate(desk: UndoDesk): WireStep {
  return waiting(desk, 'echo kept >> a.txt');
}

async function arrived({ lab }: UndoDesk): Promise<void> {
  await vi.waitUntil(() => existsSync(join(lab.project, 'arrived')), { timeout: 60_000 });
}

// without the sandbox: commands tell that they have begun by a file outside of their worktree
it('leaves the worktree of a thread alone that started after the threads were listed', async () => {
  const desk = await repository();
  desk.lab.sandbox('off');
  const old = await desk.run([text('Old.')]);
  let running: Promise<ThreadResult> | undefined;
  await collectWhile(desk, old, async () => {
    desk.turns.push([edit('a.txt', 'one', 'ONE')], [gate(desk)]);
    running = desk.lab.run('work', { isolation: ISOLATED });
    await arrived(desk);
  });
  expect(worktrees(desk)).toHaveLength(1);
  writeFileSync(open(desk), '');
  expect(await running).toMatchObject({ status: 'completed', changes: { status: 'merged' } });
  expect(desk.get('a.txt')).toBe('ONE\ntwo\nthree\nfour\nfive\nkept\n');
});

it('leaves the worktree of a thread alone that is resumed while it is collected', async () => {
  const desk = await repository();
  desk.lab.sandbox('off');
  const old = await desk.run([text('Old.')]);
  desk.turns.push([edit('a.txt', 'one', 'ONE')]);
  const limits = { turns: 1 };
  const failed = await desk.lab.run('work', { isolation: ISOLATED, limits });
  expect(failed.status).toBe('error');
  let running: Promise<ThreadResult> | undefined;
  await collectWhile(desk, old, async () => {
    desk.turns.push([gate(desk)]);
    const { recovery } = desk.lab.rye();
    running = recovery.resume({ threadId: failed.thread_id, limits: { turns: 5 } });
    await arrived(desk);
  });
  expect(worktrees(desk)).toHaveLength(1);
  writeFileSync(open(desk), '');
  const ended = await running;
  expect(ended).toMatchObject({ status: 'completed', changes: { status: 'merged' } });
  expect(desk.get('a.txt')).toBe('ONE\ntwo\nthree\nfour\nfive\nkept\n');
});

it('keeps a worktree that has the only copy of the changes, and removes it without changes', async () => {
  const desk = await repository();
  const { lab } = desk;
  lab.sandbox('off');
  const at = (name: string): string => join(lab.project, name);
  for (const changes of [[gate(desk)], [waiting(desk)]]) {
    for (const name of ['arrived', 'open']) desk.drop(name);
    desk.turns.push(changes);
    const running = lab.run('work', { isolation: ISOLATED });
    await arrived(desk);
    renameSync(at('.git'), at('away'));
    writeFileSync(open(desk), '');
    expect((await running).error?.hint).toContain('The changes are still in');
    renameSync(at('away'), at('.git'));
  }
  expect(worktrees(desk)).toHaveLength(2);
  await lab.rye().recovery.collect({ olderThanMs: 0 });
  const [left, ...others] = worktrees(desk);
  expect(others).toEqual([]);
  expect(desk.get(`.ai/state/worktrees/${left}/a.txt`)).toContain('kept');
});

it('continues past a worktree that cannot be removed', async () => {
  const desk = await repository();
  const old = await desk.run([text('Old.')]);
  const { env, notices } = await collector(desk, ({ worktrees: made }) => ({
    worktrees: {
      ...made,
      list: async () => ['.ai/state/worktrees/first', '.ai/state/worktrees/second'],
      remove: async ({ path }) => {
        throw new Error(`no right to remove ${path}`);
      },
    },
  }));
  const { archived, failures } = await collectThreads(env, ALL);
  expect(archived.map(({ thread_id: id }) => id)).toEqual([old]);
  expect(failures).toEqual([]);
  expect(notices).toEqual(
    ['first', 'second'].map((name) => {
      const path = `.ai/state/worktrees/${name}`;
      return `the worktree ${path} was not removed: no right to remove ${path}`;
    }),
  );
});
