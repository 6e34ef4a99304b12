import { expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { calls, type House, house, marks, payloads, toolUse } from './house.ts';

/** Runs a directive to its end and expects its only call to be refused without a request. */
async function expectRefused(here: House, name = 'pusher'): Promise<string> {
  const { thread_id: id } = await here.json(['run', name]);
  const threadId = String(id);
  const log = here.log(threadId);
  expect(payloads(log, 'approval_requested')).toEqual([]);
  expect(payloads(log, 'tool_settled')).toMatchObject([
    { outcome: 'blocked', code: 'approval_unreachable' },
  ]);
  expect(await here.waiting()).toEqual([]);
  expect(here.file('mark')).toBeUndefined();
  expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
  return JSON.stringify(here.bodies.at(-1)?.messages);
}

it('a call whose quorum needs the key that runs the thread is refused at once where four eyes are asked for', async () => {
  const here = await house(calls(marks('mark')));
  const ada = await here.person('ada');
  const me = { key: here.key().keyId, four_eyes: true };
  here.policy(
    {
      approvers: { me, ada: { key: ada.key.keyId } },
      rules: [{ tool: 'rye/bash', ask: ['me', 'ada'], quorum: 2 }],
    },
    [ada],
  );
  // under another key a thread could ask both
  expect((await here.cli(['validate', 'config', 'agent/approvals'])).code).toBe(0);
  const told = await expectRefused(here);
  expect(told).toContain('no person can approve this call: project rules.0 needs 2 approvers');
  expect(told).toContain('me may not, because that key runs the thread and four_eyes is set');
  expect(told).toContain('Add approvers to agent/approvals.yaml');
}, 240_000);

it('a step that no person can approve ends its directive with the reason', async () => {
  const here = await house();
  const me = { key: here.key().keyId, four_eyes: true };
  here.policy({ approvers: { me }, rules: [{ tool: 'rye/bash', ask: 'me' }] });
  here.signed(
    'directives/step.md',
    directive('step', {
      metadata: '<model provider="literal" />',
      permissions:
        '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
      children:
        '<process><step name="push"><execute item_type="tool" item_id="rye/bash"><param name="command">echo ran >> mark</param></execute></step></process>',
    }),
  );
  const { code, stdout, stderr } = await here.cli(['run', 'step', '--json']);
  expect(code, stdout + stderr).toBe(1);
  expect(stdout).toContain('no person can approve this call');
  expect(here.file('mark')).toBeUndefined();
}, 240_000);

it('a question that no approver may answer is refused at once', async () => {
  const ask = toolUse('rye_agent_ask', { question: 'Where?', schema: { type: 'string' } });
  const here = await house(calls(ask));
  here.policy({
    approvers: { me: { key: here.key().keyId, may: ['rye/bash'] } },
    rules: [{ tool: 'rye/bash', ask: 'me' }],
  });
  here.signed(
    'directives/asker.md',
    directive('asker', {
      limits: 'turns="6" spend="0.10"',
      permissions: '<execute><tool>rye/agent/ask</tool></execute>',
    }),
  );
  expect(await expectRefused(here, 'asker')).toContain(
    'model needs 1 approver for rye.execute.tool.rye.agent.ask, and 0 can decide',
  );
}, 240_000);
