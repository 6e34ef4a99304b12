import { existsSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { calls, reply, startWireServer, toolUse, type WireScript } from '../helpers/wire-server.ts';
import { directive, type Lab, lab } from './lab.ts';

// Defects of comparable systems that the other tests of this room do not cover.

const HANDS_OFF = 'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n';

const STEP = '<execute item_type="tool" item_id="rye/agent/threads/orchestrator">';
const operation = (params: Readonly<Record<string, string>>): string =>
  `${STEP}${Object.entries(params)
    .map(([name, value]) => `<param name="${name}">${value}</param>`)
    .join('')}</execute>`;

function withModel(here: Lab, url: string): Rye {
  const env = { PATH: process.env['PATH'], HOME: here.home, ANTHROPIC_API_KEY: 'sk-ant-test' };
  return here.open({ env: { ...env, ANTHROPIC_BASE_URL: url } });
}

async function serve(script: WireScript): Promise<string> {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return server.url;
}

test('two threads that start in the same second get different ids, also from several libraries at once', async () => {
  const here = await lab();
  here.openGate('all');
  const ids = await Promise.all(
    [here.rye, here.open(), here.open()].map(async (rye) => {
      const { thread_id } = await rye.children.launch({
        directiveId: 'team/job',
        inputs: { name: 'a' },
      });
      return thread_id;
    }),
  );
  expect(new Set(ids).size).toBe(3);
  for (const id of ids) expect(id).toMatch(/^team\/job-\w{4}$/);
  expect((await here.rye.children.wait(ids)).success).toBe(true);
});

test('a start forgets nothing: the ledger keeps what ended and what runs, and a child can be resumed later', async () => {
  const here = await lab();
  const parent = await here.job('parent');
  const request = { parentThreadId: parent.thread_id, limits: { spend: 0.001 } };
  const child = await here.job('child', request);
  here.openGate('child');
  await here.rye.children.wait([child.thread_id]);
  const before = await here.store.ledger.rows();
  here.openGate('parent');
  await here.rye.children.wait([parent.thread_id]);
  const other = await here.job('child');
  await here.rye.children.wait([other.thread_id]);
  const after = await here.store.ledger.rows();
  expect(after.map(({ thread_id }) => thread_id)).toEqual([
    ...before.map(({ thread_id }) => thread_id),
    other.thread_id,
  ]);
  const resumed = await here.rye.recovery.resume({ threadId: child.thread_id });
  expect(resumed.error).toBeUndefined();
  expect(resumed.success).toBe(true);
});

test('wait_threads has its own timeout: it returns each thread with its status, and the caller continues', async () => {
  const here = await lab();
  const start =
    '<execute item_type="directive" item_id="team/job" async="true"><param name="name">slow</param></execute>';
  here.write(
    '.ai/directives/team/top.md',
    directive('team/top', {
      tools: ['team/gate', 'rye/agent/threads/orchestrator'],
      directives: ['team/job'],
      limits: 'turns="9" spend="0.2" spawns="20" depth="4"',
      outputs:
        '<output name="timed_out" type="boolean" required="true" from="${steps.wait.data.timed_out}">.</output><output name="status" type="string" required="true" from="${steps.wait.data.threads.0.status}">.</output>',
      steps: `<step name="start">${start}</step><step name="wait">${operation({ operation: 'wait_threads', timeout: '0.3' })}</step>`,
    }),
  );
  await here.sign();
  const result = await here.rye.threads.execute({ directiveId: 'team/top' });
  expect(result.error).toBeUndefined();
  expect(result.outputs).toMatchObject({ timed_out: true });
  expect(['created', 'running']).toContain(result.outputs?.['status']);
  here.openGate('slow');
  await here.rye.children.wait(result.children);
});

const TWICE = directive('team/twice', {
  limits: 'turns="9" spend="1" spawns="5" depth="3"',
  tools: ['team/gate'],
  inputs: '<input name="who" type="string" required="true">Whom it is for.</input>',
  steps: '',
});

test('the continuation of a root is a root with the same depth, inputs and overrides', async () => {
  const here = await lab({ coordination: HANDS_OFF });
  here.write('.ai/directives/team/twice.md', TWICE);
  await here.sign();
  here.openGate('all');
  let asked = 0;
  const usage = { input_tokens: 100, output_tokens: 10 };
  const url = await serve(() => {
    asked += 1;
    return asked > 4
      ? reply('Done.', usage)
      : { ...calls(toolUse('team_gate', { name: `g${asked}` })), usage };
  });
  const result = await withModel(here, url).threads.execute({
    directiveId: 'team/twice',
    inputs: { who: 'Ada' },
    limits: { turns: 7, depth: 2 },
  });
  expect(result).toMatchObject({ success: true, result: 'Done.', children: [] });
  const { chain } = await here.rye.threads.show(result.thread_id);
  expect(chain).toHaveLength(5);
  expect(chain.map(({ parent_id }) => parent_id)).toEqual(chain.map(() => null));
  for (const [index, { thread_id }] of chain.entries()) {
    expect((await here.rye.threads.show(thread_id)).document).toMatchObject({
      inputs: { who: 'Ada' },
      limits: { turns: 7 - index, depth: 2 },
    });
  }
});

test('a handoff from a log that was changed fails: no successor, no chain', async () => {
  const here = await lab({ coordination: HANDS_OFF });
  // a tool that writes into the log of the thread that it works for; the sandbox would keep it out
  here.write('../home/.ai/config/agent/resilience.yaml', 'tools: {sandbox: off}\n');
  here.write(
    '.ai/tools/team/gate.mjs',
    `import { appendFileSync } from 'node:fs';
export const __version__ = '1.0.0';
export const __tool_description__ = 'Spoil the record.';
export const __traits__ = { reads_only: false, idempotent: true, network: false, timeout_seconds: 60, risk: 'safe' };
export const CONFIG_SCHEMA = { type: 'object', properties: { name: { type: 'string' } } };
appendFileSync('.ai/state/threads/r/transcript.jsonl', '{"seq":1}\\n');
`,
  );
  here.write('.ai/directives/team/twice.md', TWICE);
  await here.sign();
  const usage = { input_tokens: 1000, output_tokens: 10 };
  const url = await serve(() => ({ ...calls(toolUse('team_gate', { name: 'x' })), usage }));
  const result = await withModel(here, url).threads.execute({
    directiveId: 'team/twice',
    threadId: 'r',
    inputs: { who: 'Ada' },
  });
  expect(result).toMatchObject({ success: false, status: 'error' });
  expect(result.error?.code).toBe('transcript_tampered');
  expect(await here.store.registry.list({})).toHaveLength(1);
  expect((await here.store.ledger.rows()).map(({ status }) => status)).toEqual(['released']);
  expect(existsSync(path.join(here.project, '.ai/state/threads/r/transcript.jsonl'))).toBe(true);
});
