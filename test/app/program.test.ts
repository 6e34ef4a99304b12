import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Preset } from '../../src/kernel/app/presets.ts';
import type { ThreadPlan } from '../../src/kernel/core/plan.ts';
import { runThreadProcess } from '../../src/open-rye.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

const WORK = { directiveId: 'team/work' };
const GUARDED: Preset = { handlers: { tool_gate: () => ({ block: 'not here' }) } };
const WITH_TOOL: Preset = {
  tools: {
    'shop/price': {
      description: 'A price.',
      inputSchema: { type: 'object' },
      execute: () => 7,
    },
  },
};
const ACKNOWLEDGED =
  '<permissions><acknowledge risk="elevated">A test.</acknowledge></permissions>';
const REFUSED = { code: 'program_required' };

describe('what a program brings along', () => {
  it.each([
    ['a handler that decides', GUARDED, 'the handlers tool_gate'],
    ['a tool', WITH_TOOL, 'the tools shop/price'],
  ])('%s is not lost in a process of its own: none is started', async (_, preset, named) => {
    const lab = await libraryLab();
    await lab.directive('work', ['shop/*'], { metadata: ACKNOWLEDGED });
    const rye = lab.open({ preset });
    await expect(rye.children.launch(WORK)).rejects.toMatchObject({
      ...REFUSED,
      message: expect.stringContaining(named) as string,
      hint: expect.stringContaining('docs/library.md') as string,
    });
    const tool = { toolId: 'shop/price', acknowledge: ['elevated' as const] };
    await expect(rye.children.launchTool(tool)).rejects.toMatchObject(
      preset.tools ? REFUSED : { code: 'item_not_found' },
    );
    // a preset of one request counts as much
    await expect(lab.open().children.launch({ ...WORK, preset })).rejects.toMatchObject(REFUSED);
    expect(await rye.threads.list()).toEqual([]);
  });

  it('is named in the plan where it decides, and not where it only sees', async () => {
    const lab = await libraryLab();
    const grants = '<execute><tool optional="true">shop/price</tool></execute>';
    const metadata = `<permissions>${grants}</permissions>${ACKNOWLEDGED}`;
    await lab.directive('work', [], { metadata });
    await lab.directive('other');
    const partsOf = async (preset: Preset): Promise<ThreadPlan['program']> =>
      (await lab.open({ preset }).threads.plan(WORK)).program;
    expect(await partsOf(GUARDED)).toEqual({ handlers: ['tool_gate'], tools: [] });
    expect(await partsOf(WITH_TOOL)).toEqual({ handlers: [], tools: ['shop/price'] });
    const other = { directiveId: 'team/other' };
    expect((await lab.open({ preset: WITH_TOOL }).threads.plan(other)).program).toBeUndefined();
    expect(await partsOf({ handlers: { event: () => undefined } })).toBeUndefined();
  });

  it('is not lost when a model starts a child that runs by itself', async () => {
    const child = { item_type: 'directive', item_id: 'team/child', parameters: {}, async: true };
    const lab = await libraryLab([calls(toolUse('rye_execute', child, 'a')), reply('Done.')]);
    await lab.directive('child');
    await lab.directive('work', [], {
      metadata: '<permissions><execute><directive>team/child</directive></execute></permissions>',
    });
    const handlers: Preset['handlers'] = { tool_transform: () => undefined };
    expect(await lab.open().run({ ...WORK, handlers })).toMatchObject({ kind: 'completed' });
    expect(JSON.stringify(lab.server.requests[1]?.body.messages)).toContain(
      'would run the thread without the handlers tool_transform',
    );
  });

  // Requirement: handlers-per-program-and-run
  it('is not lost when the thread is resumed elsewhere, and observers are told there too', async () => {
    const lab = await libraryLab([reply('First.'), reply('Second.')]);
    await lab.directive('work');
    const run = await lab.open({ preset: GUARDED }).run({ ...WORK, behavior: { nudge: false } });
    const threadId = String(run.threadId);
    const message = 'Go on.';
    await expect(lab.open().recovery.resume({ threadId, message })).rejects.toMatchObject(REFUSED);
    const told: string[] = [];
    const seeing: Preset = {
      handlers: {
        ...GUARDED.handlers,
        thread_finished: ({ payload }) => void told.push(payload.status),
      },
    };
    const resumed = await lab.open({ preset: seeing }).recovery.resume({ threadId, message });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Second.' });
    expect(told).toEqual(['completed']);
  });
});

it('a launched thread that another program runs after all ends instead of running unguarded', async () => {
  const lab = await libraryLab();
  await lab.directive('work');
  const idle = path.join(lab.project, 'idle.mjs');
  writeFileSync(idle, 'setInterval(() => undefined, 1000);');
  const rye = lab.open({ preset: GUARDED, program: [idle] });
  const { thread_id: id, pid } = await rye.children.launch(WORK);
  onTestFinished(() => void (pid !== null && process.kill(pid, 'SIGKILL')));
  const { signal } = new AbortController();
  await expect(lab.open().children.runLaunched(id, { signal })).rejects.toMatchObject(REFUSED);
  expect(await rye.threads.show(id)).toMatchObject({
    thread: { status: 'error', error: { code: 'program_required' } },
  });
});

it.each([
  [[]],
  [['__run-thread', 'work-1']],
  [['--project', '/p', '--user-space', '/u', 'run', 'hello']],
  [['--project', '/p', '--user-space', '/u', '--yes', '__run-thread', 'work-1']],
])('a program that rye did not start for a thread runs none: %j', async (args) => {
  const argv = ['node', 'worker.mjs', ...args];
  await expect(runThreadProcess({ argv, env: {}, preset: {} })).rejects.toMatchObject({
    code: 'usage',
  });
});
