import { appendFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { directive } from '../attacks/lab.ts';
import type { WireTurn } from '../helpers/wire-server.ts';
import { calls, type House, house, marks, payloads, reply } from './house.ts';

/** A directive that may run commands without a decision, and start others. */
const FREE = directive('free', {
  limits: 'turns="6" spend="1.00"',
  permissions:
    '<execute><tool>rye/bash</tool></execute><execute><directive>*</directive></execute><acknowledge risk="elevated">Tests.</acknowledge>',
});

const RUN_TOOL = {
  primary: 'execute',
  item_type: 'tool',
  item_id: 'rye/bash',
  params: { command: 'echo ran >> hooked' },
};

/** Opens a house with one hook of the user. */
async function withHook(
  hook: { readonly event: string; readonly action?: object },
  ...turns: readonly WireTurn[]
): Promise<House> {
  const here = await house(...turns);
  here.signed('directives/free.md', FREE);
  const full = { id: 'formatter', timeout_seconds: 120, action: RUN_TOOL, ...hook };
  here.write('~/.ai/config/agent/hooks.yaml', `${JSON.stringify({ hooks: [full] })}\n`);
  return here;
}

/** The record of the hook in the log of a thread. */
function fired(here: House, threadId: string) {
  return payloads(here.log(threadId), 'hook_fired').find(({ id }) => id === 'formatter');
}

// Requirement: approvals-hooks-fail-closed
describe('a tool that a hook runs', () => {
  it.each<readonly [string, string, string, (here: House) => void]>([
    ['a directive', 'pusher', 'directive rye.execute.tool.rye.bash', () => undefined],
    [
      'a rule of the policy',
      'free',
      'project rules.0',
      (here) =>
        here.policy({
          rules: [
            { tool: 'rye/bash', when: { path: 'cost_left', op: 'gt', value: 0.5 }, ask: 'me' },
          ],
        }),
    ],
    [
      'the risk table',
      'free',
      'risk elevated',
      (here) =>
        here.write('~/.ai/config/agent/capability_risk.yaml', 'risk_levels: {elevated: ask}\n'),
    ],
  ])(
    'is refused if %s asks about it, and the thread goes on',
    async (_source, name, rule, arrange) => {
      const here = await withHook({ event: 'after_complete' });
      arrange(here);
      const { code, stdout, stderr } = await here.cli(['run', name, '--json']);
      expect(code, stdout + stderr).toBe(0);
      const threadId = (JSON.parse(stdout) as { thread_id: string }).thread_id;
      const told = fired(here, threadId);
      expect(told).toMatchObject({ outcome: 'failed', code: 'approval_required' });
      for (const part of ['hook formatter', 'rye/bash', rule, 'allow it in the policy']) {
        expect(told?.error).toContain(part);
        expect(stderr).toContain(part);
      }
      expect(here.file('hooked')).toBeUndefined();
      expect(payloads(here.log(threadId), 'tool_call_start')).toEqual([]);
      expect(await here.waiting()).toEqual([]);
      expect(await here.json(['verify', 'thread', threadId])).toMatchObject({ success: true });
    },
    120_000,
  );

  it('runs as before if nothing asks about its input', async () => {
    const here = await withHook({ event: 'after_complete' });
    const when = { argument: 'command', matches: 'git push' };
    here.policy({ rules: [{ tool: 'rye/bash', when, ask: 'me' }] });
    const { thread_id: threadId } = await here.json(['run', 'free']);
    expect(fired(here, String(threadId))).toMatchObject({ outcome: 'ok' });
    expect(here.file('hooked')).toBe('ran\n');
    expect(await here.json(['verify', 'thread', String(threadId)])).toMatchObject({
      success: true,
    });
  });

  it('as a gate refuses the call that it was to judge, which is not asked about', async () => {
    const here = await withHook({ event: 'tool_gate' }, calls(marks('mark')));
    const { thread_id: threadId } = await here.json(['run', 'pusher']);
    const log = here.log(String(threadId));
    expect(payloads(log, 'tool_settled')).toMatchObject([{ outcome: 'blocked' }]);
    expect(payloads(log, 'approval_requested')).toEqual([]);
    expect(JSON.stringify(here.bodies[1]?.messages)).toContain('cannot wait for a person');
    expect([here.file('mark'), here.file('hooked')]).toEqual([undefined, undefined]);
  });

  it('without a decision in the log is found by rye verify thread', async () => {
    const here = await withHook({ event: 'after_complete' });
    const { thread_id: threadId } = await here.json(['run', 'pusher']);
    const file = join(here.project, '.ai/state/threads', String(threadId), 'transcript.jsonl');
    const last = here.log(String(threadId)).at(-1);
    const { command } = RUN_TOOL.params;
    const payload = { call_id: 'hook-1', tool: 'rye/bash', name: 'rye/bash', input: { command } };
    const start = { ...last, event_type: 'tool_call_start', payload: { ...payload, turn: 0 } };
    appendFileSync(file, `${JSON.stringify(start)}\n`);
    const report = JSON.stringify(await here.json(['verify', 'thread', String(threadId)], 3));
    expect(report).toContain('the call hook-1 of rye/bash: it started without a decision');
  });
});

describe('a directive that a hook runs', () => {
  const action = { primary: 'execute', item_type: 'directive', item_id: 'pusher' };

  it('is ended if it asks: its request is withdrawn and cannot be decided', async () => {
    const here = await withHook(
      { event: 'after_complete', action },
      reply('done'),
      calls(marks('mark')),
    );
    const { thread_id: parent } = await here.json(['run', 'free']);
    const log = here.log(String(parent));
    expect(fired(here, String(parent))).toMatchObject({
      outcome: 'failed',
      code: 'approval_required',
    });
    const [end] = payloads(log, 'child_thread_finished');
    expect(end).toMatchObject({ status: 'cancelled' });
    const below = here.log(end?.child_thread_id ?? '');
    const [asked] = payloads(below, 'approval_requested');
    expect(payloads(below, 'approval_decided')).toMatchObject([{ outcome: 'withdrawn' }]);
    expect(await here.waiting()).toEqual([]);
    expect((await here.cli(['approve', asked?.request.id ?? ''])).code).not.toBe(0);
    expect(here.file('mark')).toBeUndefined();
    for (const id of [String(parent), end?.child_thread_id ?? '']) {
      expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
    }
  });

  it('does not start if the policy asks about it', async () => {
    const here = await withHook({ event: 'after_complete', action });
    here.policy({
      rules: [{ tool: 'rye/execute', capability: 'rye.execute.directive.*', ask: 'me' }],
    });
    const { thread_id: parent } = await here.json(['run', 'free']);
    expect(fired(here, String(parent))?.error).toContain('pusher (project rules.0)');
    expect(payloads(here.log(String(parent)), 'child_thread_started')).toEqual([]);
    expect(await here.waiting()).toEqual([]);
  });

  it('that a tool of the hook runs is ended too', async () => {
    const tool = {
      ...RUN_TOOL,
      item_id: 'rye/execute',
      params: { item_type: 'directive', item_id: 'pusher' },
    };
    const here = await withHook(
      { event: 'after_complete', action: tool },
      reply('done'),
      calls(marks('mark')),
    );
    const { thread_id: parent } = await here.json(['run', 'free']);
    expect(fired(here, String(parent))).toMatchObject({ code: 'approval_required' });
    expect(payloads(here.log(String(parent)), 'child_thread_finished')).toMatchObject([
      { status: 'cancelled' },
    ]);
    expect(await here.waiting()).toEqual([]);
    expect(here.file('mark')).toBeUndefined();
  });
});
