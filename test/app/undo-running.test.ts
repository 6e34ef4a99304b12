import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { defineTool } from '../../src/kernel/app/program/define-tool.ts';
import { libraryLab } from './library-lab.ts';

const write =
  '<step name="write"><execute item_type="tool" item_id="rye/file-system/write"><param name="path">made.txt</param><param name="content">made</param></execute></step>';
const wait = '<step name="wait"><execute item_type="tool" item_id="team/wait"/></step>';

it('an undo of a running thread is refused with the next command, and works once it has ended', async () => {
  let release: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  let reached: () => void = () => {};
  const waiting = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const tool = defineTool({
    description: 'Waits.',
    inputSchema: { type: 'object', properties: {} },
    traits: { reads_only: true, network: false, risk: 'safe' },
    execute: async () => {
      reached();
      await held;
      return 'waited';
    },
  });
  const lab = await libraryLab();
  await lab.directive('work', ['rye/file-system/write', 'team/wait'], {
    metadata: '<limits turns="9"/>',
    process: `<process>${write}${wait}</process>`,
  });
  const rye = lab.open({ tools: { 'team/wait': tool } });
  const running = rye.run({ directiveId: 'team/work', provider: 'literal', threadId: 'busy' });
  await waiting;
  const made = path.join(lab.project, 'made.txt');
  for (const request of [{}, { force: true }, { dryRun: true }]) {
    await expect(rye.trees.undoFiles('busy', request)).rejects.toMatchObject({
      code: 'thread_locked',
      message: 'thread busy is running and may still change files',
      hint: expect.stringContaining('rye threads cancel busy') as string,
    });
  }
  expect(existsSync(made)).toBe(true);
  release();
  expect(await running).toMatchObject({ kind: 'completed' });
  expect((await rye.trees.undoFiles('busy')).files).toEqual([
    { path: 'made.txt', action: 'removed' },
  ]);
  expect(existsSync(made)).toBe(false);
});
