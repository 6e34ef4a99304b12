import { afterEach, beforeEach, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
  await lab.model([]);
});
afterEach(async () => await lab.remove());

const script = (risk: string): string =>
  `# rye:tool\n# version: 1.0.0\n# description: Prints.\n# traits: {reads_only: true, network: false, timeout_seconds: 10, risk: ${risk}}\n# /rye:tool\necho 1\n`;

it('a wildcard over safe tools of the project needs no acknowledgement, until one of them is not safe', async () => {
  for (const name of ['one', 'two']) lab.write(`tools/t/${name}.sh`, script('safe'));
  await lab.sign('tool', 't/*');
  const permissions = '<execute><tool>t/*</tool></execute>';
  lab.signed('directives/work.md', directive('work', { permissions }));
  const plan = await lab.rye().threads.plan({ directiveId: 'work' });
  const own = plan.tools.filter(({ id }) => id.startsWith('t/'));
  expect(own.map(({ id, risk }) => [id, risk])).toEqual([
    ['t/one', 'safe'],
    ['t/two', 'safe'],
  ]);
  lab.write('tools/t/three.sh', script('elevated'));
  await lab.sign('tool', 't/three');
  await expect(lab.rye().threads.plan({ directiveId: 'work' })).rejects.toMatchObject({
    code: 'acknowledge_required',
    message: expect.stringContaining('rye.execute.tool.t.*') as string,
  });
});
