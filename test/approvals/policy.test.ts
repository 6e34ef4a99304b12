import { expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import { generateKeyPair, readPrivateKey } from '../../src/kernel/trust/keys.ts';
import { directive } from '../attacks/lab.ts';
import { family, starts } from './family.ts';
import { calls, house, marks, toolUse } from './house.ts';

const ME = 'approvers: {me: {key: KEY}}\n';

it('sign, validate and every run refuse a policy that could not be kept', async () => {
  const here = await house();
  const key = here.key().keyId;
  const broken: Readonly<Record<string, readonly [text: string, message: RegExp]>> = {
    'an unknown member': [`${ME}rules: [{tol: rye/bash, ask: me}]\n`, /rules\.0\.tol|"tol"/],
    'an unknown approver': [`${ME}rules: [{tool: rye/bash, ask: [you]}]\n`, /"you"/],
    'an unreachable quorum': [
      `${ME}rules: [{tool: rye/bash, ask: me, quorum: 2}]\n`,
      /2 approvers/,
    ],
    'an unknown key': ['approvers: {ada: {key: "0123456789abcdef"}}\n', /0123456789abcdef of ada/],
    'a pattern that excludes the rule': [
      'approvers: {me: {key: KEY, may: ["pay/*"]}}\nrules: [{tool: rye/bash, ask: me}]\n',
      /`may`/,
    ],
    'a condition over nothing': [
      `${ME}rules: [{tool: rye/bash, when: {path: cost_lef, op: lt, value: 1}, ask: me}]\n`,
      /cost_lef/,
    ],
  };
  for (const [what, [text, message]] of Object.entries(broken)) {
    const file = 'config/agent/approvals.yaml';
    const content = text.replaceAll('KEY', key);
    here.write(file, content);
    for (const command of ['validate', 'sign']) {
      const { code, stdout, stderr } = await here.cli([command, 'config', 'agent/approvals']);
      expect([what, command, code]).toEqual([what, command, 2]);
      expect(stdout + stderr, what).toMatch(message);
    }
    expect(here.read(file)).toBe(content);
    here.signed(file, content);
    const { code, stdout, stderr } = await here.cli(['run', 'pusher']);
    expect([what, code, stdout]).toEqual([what, 2, '']);
    expect(stderr, what).toMatch(message);
  }
  expect(here.bodies).toEqual([]);
});

it('sign and validate refuse a rule that no known tool can match, and name the tool that is meant', async () => {
  const here = await house();
  const file = 'config/agent/approvals.yaml';
  const rules = {
    'tool: bash': /"bash", but no known tool .*/,
    'tool: rye/bahs': /Did you mean/,
    'capability: rye.execute.tool.nothing': /rye\.execute\.tool\.nothing/,
    'tool: mcp/nowhere/*': /mcp\/nowhere/,
  };
  for (const [rule, message] of Object.entries(rules)) {
    here.write(file, `${ME.replace('KEY', here.key().keyId)}rules: [{${rule}, ask: me}]\n`);
    for (const command of ['validate', 'sign']) {
      const { code, stdout, stderr } = await here.cli([command, 'config', 'agent/approvals']);
      expect([rule, command, code]).toEqual([rule, command, 2]);
      expect(stdout + stderr, rule).toMatch(message);
    }
  }
  for (const tool of ['rye_bash', 'rye/*', 'rye/agent/limit', 'skills/run_script']) {
    here.write(file, `${ME.replace('KEY', here.key().keyId)}rules: [{tool: ${tool}, ask: me}]\n`);
    expect([tool, (await here.cli(['sign', 'config', 'agent/approvals'])).code]).toEqual([tool, 0]);
  }
});

it('the first rule that matches counts: conditions know the input, the cost and the rest of the budget', async () => {
  const turns = [
    calls(marks('first')),
    calls(toolUse('rye_bash', { command: 'git push; echo ran >> second' })),
  ];
  const here = await house(...turns);
  here.signed(
    'directives/free.md',
    directive('free', {
      permissions:
        '<execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
    }),
  );
  here.policy({
    rules: [
      { tool: 'rye/bash', when: { path: 'cost_left', op: 'gt', value: 50 }, ask: 'me' },
      {
        tool: 'rye/bash',
        when: { path: 'cost.turns', op: 'gte', value: 2 },
        ask: 'me',
        scope: 'once',
      },
      { tool: 'rye/bash', when: { argument: 'command', matches: 'git push' }, ask: 'me' },
    ],
  });
  const result = await here.json(['run', 'free'], 8);
  expect([here.file('first'), here.file('second')]).toEqual(['ran\n', undefined]);
  const [request] = await here.waiting();
  expect(request).toMatchObject({ rule: 'project rules.1', scopes: ['once'], quorum: 1 });
  await here.json(['approve', request?.id ?? '']);
  await here.until(String(result['thread_id']), 'completed');
  expect(here.file('second')).toBe('ran\n');
});

it('a request about a directive names the most that it may cost', async () => {
  const here = await family({
    parent: [calls(starts('leaf', { limit_overrides: { spend: 0.03 } }))],
    leaf: [],
  });
  here.policy({
    rules: [{ capability: 'rye.execute.directive.*', spend_above: 0.02, ask: 'me' }],
  });
  const { thread_id: parent } = await here.json(['run', 'parent'], 8);
  const requested = here.log(String(parent)).find(isRequested);
  expect(requested?.payload.request).toMatchObject({
    worst_case_usd: 0.03,
    capability: 'rye.execute.directive.leaf',
    item: { id: 'leaf' },
  });
  await here.json(['approve', requested?.payload.request.id ?? '']);
  await here.until(String(parent), 'completed');
});

it('a key that is trusted for some tools only cannot approve others', async () => {
  const here = await house(calls(marks('mark')));
  const { privatePem, publicPem } = generateKeyPair();
  const ada = readPrivateKey(privatePem, 'ada');
  here.write('../ada.pem', publicPem);
  const approvers = { ada: { key: ada.keyId } };
  const trust = [
    'keys',
    'trust',
    'ada.pem',
    '--owner',
    'ada',
    '--for',
    'approve',
    '--yes',
    '--only',
  ];
  await here.json([...trust, 'reports/*']);
  here.policy({ approvers, rules: [{ tool: 'rye/bash', ask: 'ada' }] });
  const { thread_id: thread } = await here.json(['run', 'pusher'], 8);
  const [request] = await here.waiting();
  const id = request?.id ?? '';
  const as = { env: { RYE_SIGNING_KEY: privatePem } };
  // on her own machine her key has every right; the machine that runs the thread limits it
  await here.cli(['approve', id], as);
  await here.json(['threads', 'resume', String(thread)], 8);
  expect(here.file('mark')).toBeUndefined();
  expect(await here.json(['approvals', 'verify', id], 3)).toMatchObject({ success: false });
  await here.json([...trust, 'rye/*']);
  const decided = await here.cli(['approve', id], as);
  expect([decided.code, decided.stderr]).toEqual([0, '']);
  await here.json(['threads', 'resume', String(thread)]);
  expect(here.file('mark')).toBe('ran\n');
});

function isRequested(
  event: LogEvent,
): event is Extract<LogEvent, { event_type: 'approval_requested' }> {
  return event.event_type === 'approval_requested';
}
