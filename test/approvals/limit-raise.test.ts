import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireServer, type WireTurn } from '../helpers/wire-server.ts';
import { openMortal } from '../threads/mortal-store.ts';
import { payloads, readLog } from './house.ts';

let lab: Lab;
let server: WireServer;
let turns: WireTurn[];

const NOTE = toolUse('rye_file_system_write', { path: 'note.txt', content: 'x' });
const LOOK = calls(toolUse('rye_file_system_ls', {}));
/** Almost all of the money that the directive has. */
const USAGE = { input_tokens: 1000, output_tokens: 2700 };

beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
  turns = [];
  server = await lab.model(() => turns.shift() ?? reply('Done.'));
  lab.signed(
    'directives/work.md',
    directive('work', {
      limits: 'turns="9" spend="0.03"',
      permissions:
        '<execute><tool ask="true">rye/file-system/write</tool><tool>rye/file-system/ls</tool></execute><acknowledge risk="elevated">Tests.</acknowledge>',
    }),
  );
});

function onLimit(action: string): void {
  const hook = `  - id: more\n    event: limit\n    condition: { path: limit_name, op: eq, value: spend }\n    action: ${action}\n`;
  lab.signed('config/agent/hooks.yaml', `hooks:\n${hook}`);
}

async function maxOf(threadId: string): Promise<number | undefined> {
  const { store } = openMortal(lab.project);
  const [row] = await store.ledger.rows({ thread_id: threadId });
  store.close();
  return row?.max;
}

it('a spend limit that a hook raises is raised in the loop, the ledger and the record, also over a suspension', async () => {
  onLimit('{ control: escalate, limit: spend, to: 0.06 }');
  turns = [{ ...LOOK, usage: USAGE }, calls(NOTE)];
  const waiting = await lab.run('work');
  expect(waiting).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
  const { thread_id: threadId, approvals = [] } = waiting;
  expect(await maxOf(threadId)).toBe(60_000);
  expect(payloads(readLog(lab.project, threadId), 'limit_raised')).toEqual([
    { limit: 'spend', to: 0.06 },
  ]);
  expect(JSON.parse(lab.read(`state/threads/${threadId}/thread.json`))).toMatchObject({
    limits: { spend: 0.06 },
  });
  const rye = lab.rye();
  await rye.approvals.decide({ id: approvals[0] ?? '', decision: 'approve', resume: false });
  turns = [LOOK, reply('All.')];
  const result = await rye.recovery.resume({ threadId });
  expect(result).toMatchObject({ status: 'completed', result: 'All.' });
  // the raise was made once
  const log = readLog(lab.project, threadId);
  expect([payloads(log, 'limit_raised').length, payloads(log, 'limit_reached').length]).toEqual([
    1, 1,
  ]);
  expect(payloads(log, 'run_started').map(({ limits }) => limits['spend'])).toEqual([0.06]);
  expect((await rye.threads.verify(threadId)).ok).toBe(true);
});

it('a person is asked to raise the spend limit, once, with the hooks that rye ships', async () => {
  onLimit('{ control: ask, to: 0.06 }');
  turns = [{ ...LOOK, usage: USAGE }];
  const waiting = await lab.run('work');
  expect(waiting).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
  const { thread_id: threadId, approvals = [] } = waiting;
  expect(approvals).toHaveLength(1);
  const rye = lab.rye();
  await rye.approvals.decide({ id: approvals[0] ?? '', decision: 'approve', resume: false });
  turns = [LOOK, reply('All.')];
  const result = await rye.recovery.resume({ threadId });
  expect(result).toMatchObject({ status: 'completed', result: 'All.' });
  expect(server.requests).toHaveLength(3);
  expect(await rye.approvals.list({ state: 'all' })).toHaveLength(1);
  expect(await maxOf(threadId)).toBe(60_000);
});

it('a limit that a person does not raise ends the thread', async () => {
  onLimit('{ control: ask, to: 0.06 }');
  turns = [{ ...LOOK, usage: USAGE }];
  const { thread_id: threadId, approvals = [] } = await lab.run('work');
  const rye = lab.rye();
  await rye.approvals.decide({ id: approvals[0] ?? '', decision: 'deny', resume: false });
  const result = await rye.recovery.resume({ threadId });
  expect(result).toMatchObject({ status: 'error', error: { code: 'limit_spend' } });
  expect([server.requests.length, await maxOf(threadId)]).toEqual([1, 30_000]);
});
