import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { WorktreeChanges } from '../../src/kernel/core/isolation.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { directive } from '../threads/lab.ts';
import { copyOf, expectLegal, openWorld, ryeIn, startCli, type World } from './world.ts';

const write = (file: string, text: string): string =>
  `<step name="${text}"><execute item_type="tool" item_id="rye/file-system/write"><param name="path">${file}</param><param name="content">${text}</param></execute></step>`;

const RUN = `run change --thread-id t --provider literal --isolation worktree --isolation-result merge --json`;

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({});
  const { project } = prepared;
  mkdirSync(path.join(project, '.ai/directives'), { recursive: true });
  const steps = [write('made/a.txt', 'A'), write('old.txt', 'B')].join('');
  writeFileSync(
    path.join(project, '.ai/directives/change.md'),
    directive('change', { tools: ['rye/file-system/write'], limits: 'turns="9"', steps }),
  );
  writeFileSync(path.join(project, 'old.txt'), 'original');
  expect(await prepared.rye(['sign', 'directive', 'change'])).toMatchObject({ code: 0 });
  const identity = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];
  for (const args of ['init --quiet', 'add --all', 'commit --quiet -m first']) {
    execFileSync('git', [...identity, ...args.split(' ')], { cwd: project });
  }
});

afterAll(() => prepared.remove());

interface Point {
  readonly step: string;
  readonly nth: number;
}

/** Runs the directive in a copy, killed after a step if one is given. */
async function inCopy(kill?: Point): Promise<World> {
  const world = copyOf(prepared, 'http://127.0.0.1:1');
  const extra = {
    RYE_TEST_TRACE: path.join(world.home, 'trace'),
    ...(kill ? { RYE_TEST_KILL: JSON.stringify({ role: 'parent', ...kill }) } : {}),
  };
  await (await startCli(world, RUN.split(' '), { preload: true, extra })).done;
  return world;
}

function remove({ project }: World): void {
  removeFolder(path.dirname(project));
}

/** Returns the durable steps from the patch to the end of the thread. */
async function pointsOfMerge(): Promise<readonly Point[]> {
  const world = await inCopy();
  const steps = readFileSync(path.join(world.home, 'trace'), 'utf8').trimEnd().split('\n');
  remove(world);
  const points = steps.map((step, at) => ({
    step,
    nth: steps.slice(0, at + 1).filter((one) => one === step).length,
  }));
  const first = steps.findIndex((step) => step.includes('t-changes'));
  const last = steps.findLastIndex((step) => step.includes('thread_finished'));
  expect(first).toBeGreaterThan(0);
  return points.slice(first - 1, last + 2);
}

function filesIn({ project }: World): readonly (string | null)[] {
  return ['made/a.txt', 'old.txt'].map((name) => {
    const file = path.join(project, name);
    return existsSync(file) ? readFileSync(file, 'utf8') : null;
  });
}

function worktreesIn({ project }: World): readonly string[] {
  const folder = path.join(project, '.ai/state/worktrees');
  return existsSync(folder) ? readdirSync(folder).filter((name) => name !== '.gitignore') : [];
}

async function changesIn(rye: Rye): Promise<WorktreeChanges | undefined> {
  return (await rye.threads.show('t')).document?.changes;
}

const BEFORE = [null, 'original'];
const AFTER = ['A', 'B'];

/** Checks that a person sees after recovery every file that the merge had changed. */
async function expectTold(world: World, rye: Rye): Promise<WorktreeChanges> {
  const changes = await changesIn(rye);
  const files = filesIn(world);
  const changed = ['made/a.txt', 'old.txt'].filter((_, at) => files[at] !== BEFORE[at]);
  if (!changes) throw new Error('the changes are unknown');
  if (changes.status === 'merged') expect(files).toEqual(AFTER);
  else if (changes.status === 'merge_interrupted')
    expect(changes.merged).toEqual(expect.arrayContaining(changed));
  else expect([changes.status, changed]).toEqual(['patch', []]);
  expect(existsSync(path.join(world.project, changes.patch ?? ''))).toBe(true);
  return changes;
}

it('a merge that is killed at any step states what it merged, and can be finished or taken back', async () => {
  const points = await pointsOfMerge();
  const seen = new Set<string>();
  for (const point of points) {
    const world = await inCopy(point);
    const rye = openWorld(world);
    try {
      expect((await rye.recovery.recover()).failures).toEqual([]);
      const { status } = await expectTold(world, rye);
      seen.add(status);
      expect(worktreesIn(world)).toEqual([]);
      await expectLegal(world, rye);
      await rye.trees.undoFiles('t');
      expect([point, filesIn(world)]).toEqual([point, BEFORE]);
    } finally {
      rye.close();
      remove(world);
    }
  }
  expect([...seen].toSorted()).toEqual(['merge_interrupted', 'merged', 'patch']);
}, 600_000);

it('a resume finishes a merge that was killed half-way', async () => {
  const points = await pointsOfMerge();
  const half = points.find(({ step }) => step.includes('rename a.txt')) ?? points[0];
  const world = await inCopy(half);
  const rye = openWorld(world);
  try {
    expect(filesIn(world)).toEqual(['A', 'original']);
    const { recovered } = await rye.recovery.recover();
    expect(recovered).toMatchObject([{ thread_id: 't', action: 'failed' }]);
    const shown = await ryeIn(world, 'threads', 'show', 't');
    expect(shown.stdout).toMatch(
      /changes +2 changed files, and only these were merged before the process died: made\/a\.txt; the patch is /,
    );
    const result = await rye.recovery.resume({ threadId: 't' });
    expect(result).toMatchObject({ status: 'completed', changes: { status: 'merged' } });
    expect(filesIn(world)).toEqual(AFTER);
    await rye.trees.undoFiles('t');
    expect(filesIn(world)).toEqual(BEFORE);
  } finally {
    rye.close();
    remove(world);
  }
});
