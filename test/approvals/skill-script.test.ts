import { expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { calls, type House, house, payloads, toolUse } from './house.ts';

async function sign(here: House, script: string, helper: string): Promise<void> {
  here.write('skills/deploying/scripts/run.sh', script);
  here.write('skills/deploying/scripts/helper.txt', helper);
  await here.json(['sign', 'skill', 'deploying']);
}

/** A thread that waits for the decision about a script of a skill. */
async function asksForScript() {
  const here = await house(
    calls(toolUse('skills_use', { name: 'deploying' }, 'use')),
    calls(toolUse('skills_run_script', { name: 'deploying', path: 'scripts/run.sh' }, 'run')),
  );
  here.write(
    'skills/deploying/SKILL.md',
    '---\nname: deploying\ndescription: How to deploy.\n---\nRun scripts/run.sh.\n',
  );
  await sign(here, 'echo ran >> mark\n', 'one');
  here.signed(
    'directives/deployer.md',
    directive('deployer', {
      permissions:
        '<fetch><skill>deploying</skill></fetch><execute><skill ask="true">deploying</skill></execute><acknowledge risk="elevated">Tests.</acknowledge>',
    }),
  );
  return { here, ...(await here.asks('deployer')) };
}

it('an approval of a skill script runs the script that was requested', async () => {
  const { here, threadId, id } = await asksForScript();
  await here.json(['approve', id, '--no-resume']);
  // a file that no signature covers is not run
  here.write('skills/deploying/scripts/added.txt', 'unsigned');
  await here.json(['threads', 'resume', threadId]);
  expect(here.file('mark')).toBe('ran\n');
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
}, 240_000);

it.each([
  ['the script', 'echo other >> mark\n', 'one'],
  ['a file beside it', 'echo ran >> mark\n', 'two'],
])(
  '%s was changed and signed again: the decision is void',
  async (_what, script, helper) => {
    const { here, threadId, id } = await asksForScript();
    await here.json(['approve', id, '--no-resume']);
    await sign(here, script, helper);
    const again = await here.json(['threads', 'resume', threadId], 8);
    expect(again['approvals']).not.toEqual([id]);
    expect(here.file('mark')).toBeUndefined();
    expect(payloads(here.log(threadId), 'approval_decided')).toMatchObject([
      { approval_id: id, outcome: 'voided' },
    ]);
  },
  240_000,
);
