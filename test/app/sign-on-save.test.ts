import { mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { type SavedItem, signOnSave } from '../../src/kernel/app/sign-on-save.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';

/** Signs what is saved in a project while the test acts. Returns what was told, one line each. */
async function saved(act: (lab: Lab) => void, count: number): Promise<readonly string[]> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  await lab.rye().init();
  const stop = new AbortController();
  const told: SavedItem[] = [];
  const watch = signOnSave({
    projectPath: lab.project,
    signal: stop.signal,
    accepts: (type) => type !== 'config',
    open: async (action) => await action(lab.rye()),
    ready: () => act(lab),
    report: (one) => void told.push(one),
  });
  // the last one is there when it was signed
  await vi.waitUntil(() => told.length >= count, { timeout: 20_000, interval: 20 });
  stop.abort();
  await watch;
  return told
    .map((one) =>
      'outcome' in one
        ? `${one.outcome.type} ${one.outcome.id}: ${one.outcome.status}`
        : `${one.type} ${one.id}: ${one.skipped}`,
    )
    .toSorted();
}

it('what a person saves is signed, and what another key signed is left to them', async () => {
  const lines = await saved((lab) => {
    lab.write('directives/mine.md', directive('mine'));
    lab.signed('directives/theirs.md', directive('theirs'), lab.stranger);
    const own = lab.signed('directives/edited.md', directive('edited'));
    expect(own).toContain('edited');
    lab.write('directives/edited.md', `${lab.read('directives/edited.md')}\nMore.\n`);
    lab.signed('directives/same.md', directive('same'));
    lab.write('config/agent/hooks.yaml', 'hooks: []\n');
    lab.write('directives/broken.md', 'No directive.\n');
  }, 4);
  expect(lines).toEqual([
    expect.stringMatching(/^directive broken: /),
    expect.stringMatching(/^directive edited: (?:signed|updated)/),
    expect.stringMatching(/^directive mine: signed/),
    expect.stringMatching(/^directive theirs: key [0-9a-f]{16} signed it before/),
  ]);
});

it('an item of the user space is not signed because a file of its name was in the project', async () => {
  let text = (): string => '';
  const lines = await saved((lab) => {
    const file = join(lab.home, '.ai/directives/shared.md');
    mkdirSync(dirname(file), { recursive: true });
    writeFileSync(file, directive('shared'));
    text = () => readFileSync(file, 'utf8');
    lab.write('directives/shared.md', directive('shared'));
    rmSync(lab.path('directives/shared.md'));
    lab.write('directives/last.md', directive('last'));
  }, 1);
  expect(lines).toEqual([expect.stringMatching(/^directive last: signed/)]);
  expect(text()).toBe(directive('shared'));
});
