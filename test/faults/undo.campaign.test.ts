import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { temporaryWorkspace } from '../helpers/workspace.ts';
import { directive } from '../threads/lab.ts';
import { copyOf, openWorld, ryeIn, startCli, type World } from './world.ts';

const write = (file: string, text: string): string =>
  `<step name="${text}"><execute item_type="tool" item_id="rye/file-system/write"><param name="path">${file}</param><param name="content">${text}</param></execute></step>`;

const CHANGE = directive('change', {
  tools: ['rye/file-system/write'],
  limits: 'turns="9"',
  steps: [write('old.txt', 'one'), write('made/new.txt', 'two'), write('old.txt', 'three')].join(
    '',
  ),
});
const RUN = ['run', 'change', '--thread-id', 't', '--provider', 'literal', '--json'] as const;
const UNDO = ['threads', 'undo', 't', '--json'] as const;

/** Steps of a run in which copies, records and files are written. */
const OF_CHANGES = /^(?:link [0-9a-f]{64}|append file_change.*|rename (?:old|new)\.txt)$/;

let prepared: Awaited<ReturnType<typeof temporaryWorkspace>>;
let changed: World;

beforeAll(async () => {
  await cliPackage();
  prepared = await temporaryWorkspace({});
  mkdirSync(path.join(prepared.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(prepared.project, '.ai/directives/change.md'), CHANGE);
  writeFileSync(path.join(prepared.project, 'old.txt'), 'original');
  expect(await prepared.rye(['sign', 'directive', 'change'])).toMatchObject({ code: 0 });
  changed = copyOf(prepared, 'http://127.0.0.1:1');
  expect(await ryeIn(changed, ...RUN)).toMatchObject({ code: 0 });
});

afterAll(() => {
  prepared.remove();
  remove(changed);
});

function remove({ project }: World): void {
  removeFolder(path.dirname(project));
}

function filesIn({ project }: World): readonly (string | null)[] {
  return ['old.txt', 'made/new.txt'].map((name) => {
    const file = path.join(project, name);
    return existsSync(file) ? readFileSync(file, 'utf8') : null;
  });
}

interface Point {
  readonly step: string;
  readonly nth: number;
}

/** Runs a command in a copy of a world, killed after a step if one is given. */
async function inCopy(
  from: { readonly project: string; readonly home: string },
  args: readonly string[],
  kill?: Point,
): Promise<World> {
  const world = copyOf(from, 'http://127.0.0.1:1');
  const extra = {
    RYE_TEST_TRACE: path.join(world.home, 'trace'),
    ...(kill ? { RYE_TEST_KILL: JSON.stringify({ role: 'parent', ...kill }) } : {}),
  };
  await (await startCli(world, args, { preload: true, extra })).done;
  return world;
}

/** Returns each durable step of a command whose name fits. */
async function pointsOf(
  from: { readonly project: string; readonly home: string },
  args: readonly string[],
  fits: RegExp,
): Promise<readonly Point[]> {
  const world = await inCopy(from, args);
  const steps = readFileSync(path.join(world.home, 'trace'), 'utf8').trimEnd().split('\n');
  remove(world);
  const counts = new Map<string, number>();
  return steps
    .map((step) => {
      const nth = (counts.get(step) ?? 0) + 1;
      counts.set(step, nth);
      return { step, nth };
    })
    .filter(({ step }) => fits.test(step));
}

/** Recovers and undoes; afterwards nothing is left to undo. */
async function expectUndone(world: World): Promise<void> {
  const rye = openWorld(world);
  try {
    expect((await rye.recovery.recover()).failures).toEqual([]);
    await rye.trees.undoFiles('t');
    expect(filesIn(world)).toEqual(['original', null]);
    expect(existsSync(path.join(world.project, 'made'))).toBe(false);
    expect((await rye.trees.undoFiles('t')).files).toEqual([]);
    expect((await rye.threads.verify('t')).ok).toBe(true);
  } finally {
    rye.close();
  }
}

describe('an undo after a crash', () => {
  it('finds every change of a run that was killed while it changed files', async () => {
    const points = await pointsOf(prepared, RUN, OF_CHANGES);
    // two copies of three changes: the new file had nothing to copy
    expect(points.length).toBeGreaterThanOrEqual(8);
    for (const point of points) {
      const world = await inCopy(prepared, RUN, point);
      await expectUndone(world);
      remove(world);
    }
  });

  it('finishes an undo that was killed', async () => {
    expect(filesIn(changed)).toEqual(['three', 'two']);
    const points = await pointsOf(changed, UNDO, /./);
    expect(points.map(({ step }) => step)).toContain('unlink new.txt');
    expect(points.map(({ step }) => step)).toContain('rename old.txt');
    for (const point of points) {
      const world = await inCopy(changed, UNDO, point);
      await expectUndone(world);
      remove(world);
    }
  });
});
