import { resolve } from 'node:path';
import { expect, it } from 'vitest';
import { systemClock } from '../../src/kernel/app/system.ts';
import type { Clock } from '../../src/kernel/core/clock.ts';
import { directive } from '../attacks/lab.ts';
import { family, starts } from './family.ts';
import { calls, house, marks, toolUse } from './house.ts';

const HOUR_MS = 3_600_000;
/** Far more than a run takes here, and far less than the hour that a person takes. */
const LIMIT = 'turns="12" spend="1" duration_seconds="900"';

/** A clock that a test can set ahead; sleeps take their real time. */
function jumpingClock(): Clock & { jump(ms: number): void } {
  let ahead = 0;
  return {
    ...systemClock,
    now: () => systemClock.now() + ahead,
    monotonic: () => systemClock.monotonic() + ahead,
    jump: (ms) => {
      ahead += ms;
    },
  };
}

it('the duration of no thread above runs while a child in the process waits for a person', async () => {
  const here = await family({
    first: [calls(starts('middle'))],
    middle: [calls(starts('ask-child'))],
    'ask-child': [calls(marks('mark'))],
  });
  for (const name of ['first', 'middle', 'ask-child']) {
    const text = here.read(`directives/${name}.md`).split('\n').slice(1).join('\n');
    const limited = text.replace(/<limits [^/]*/, `$& duration_seconds="900" `);
    here.signed(`directives/${name}.md`, limited);
  }
  const clock = jumpingClock();
  const outcome = await here.rye({ clock }).run({
    directiveId: 'first',
    onApproval: () => {
      clock.jump(HOUR_MS);
      return { decision: 'approve' };
    },
  });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(here.file('mark')).toBe('ran\n');
  const { threads } = (await here.json(['threads', 'list'])) as {
    threads: readonly { directive: string; cost: { elapsed_seconds: number } }[];
  };
  expect(threads).toHaveLength(3);
  for (const { directive: name, cost } of threads) {
    expect(cost.elapsed_seconds, name).toBeLessThan(900);
  }
}, 240_000);

it('the duration runs on while another child of the same answer works', async () => {
  const clock = jumpingClock();
  const here = await family({
    first: [calls(starts('ask-child'), starts('free'))],
    'ask-child': [calls(marks('mark'))],
    free: [calls(toolUse('rye_bash', { command: 'until test -e over; do sleep 0.05; done' }))],
  });
  const text = here.read('directives/first.md').split('\n').slice(1).join('\n');
  here.signed('directives/first.md', text.replace(/<limits [^/]*/, `$& duration_seconds="900" `));
  const rye = here.rye({ clock });
  let jumped = false;
  const outcome = await rye.run({
    directiveId: 'first',
    onApproval: async () => {
      const isWorking = async (): Promise<boolean> =>
        (await rye.threads.list()).some(({ directive: name }) => name === 'free');
      while (!(await isWorking())) await systemClock.sleep(20);
      clock.jump(HOUR_MS);
      jumped = true;
      here.write('../over', '');
      return { decision: 'approve' };
    },
  });
  expect(jumped).toBe(true);
  expect(JSON.stringify(outcome)).toContain('limit_duration_seconds');
}, 240_000);

it('the duration does not run while a question of an MCP server is open', async () => {
  const here = await house(calls(toolUse('mcp_gate_deploy', {})));
  const program = resolve(import.meta.dirname, '../fixtures/mcp/asking.mjs');
  const args = [program, here.path('../answers')];
  const gate = { command: process.execPath, args, timeout_seconds: 120 };
  here.signed('config/mcp.yaml', JSON.stringify({ servers: { gate } }));
  here.signed(
    'directives/deployer.md',
    directive('deployer', {
      limits: LIMIT,
      permissions:
        '<execute><tool>mcp/gate/*</tool></execute><acknowledge risk="elevated">Deploys.</acknowledge>',
    }),
  );
  const clock = jumpingClock();
  const outcome = await here.rye({ clock }).run({
    directiveId: 'deployer',
    onApproval: () => {
      clock.jump(HOUR_MS);
      return { decision: 'answer', answer: { region: 'us' } };
    },
  });
  expect(outcome).toMatchObject({ kind: 'completed' });
  expect(here.file('answers')).toContain('"region":"us"');
}, 240_000);
