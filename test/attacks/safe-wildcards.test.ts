import { expect, it, onTestFinished } from 'vitest';
import { reply, toolUse } from '../helpers/wire-server.ts';
import { directive, openLab, settledCode, shellTool } from './lab.ts';

const DONE = reply('Done.');
const tool = (risk: string): string =>
  shellTool('echo {}', `description: A tool.\ntraits: {risk: ${risk}}`);
const JOB = directive('job', { permissions: '<execute><tool>demo/*</tool></execute>' });

async function prepared() {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  lab.signed('tools/demo/a.sh', tool('safe'));
  lab.signed('directives/job.md', JOB);
  return lab;
}
const call = (id: string) => ({
  steps: [toolUse('rye_execute', { item_type: 'tool', item_id: id })],
});

it('a wildcard over safe signed tools alone needs no acknowledgement, and its tools run', async () => {
  const lab = await prepared();
  await lab.model([call('demo/a'), DONE]);
  const result = await lab.run('job');
  expect(result.status).toBe('completed');
  const settled = (await lab.events(result.thread_id)).find(
    ({ event_type: type }) => type === 'tool_settled',
  );
  expect(settled?.payload).toMatchObject({ outcome: 'ok' });
});

it('one elevated tool makes it elevated', async () => {
  const lab = await prepared();
  lab.signed('tools/demo/b.sh', tool('elevated'));
  await expect(lab.rye().threads.plan({ directiveId: 'job' })).rejects.toMatchObject({
    code: 'acknowledge_required',
  });
});

it.each(['elevated', 'safe'])('a %s tool that is signed while it runs is refused', async (risk) => {
  const lab = await prepared();
  await lab.model([call('demo/a'), call('demo/b'), DONE]);
  const result = await lab.run('job', {
    onEvent: ({ event_type: type }) => {
      if (type === 'turn_started') lab.signed('tools/demo/b.sh', tool(risk));
    },
  });
  expect(await settledCode(lab, result, 1)).toBe('acknowledge_required');
});
