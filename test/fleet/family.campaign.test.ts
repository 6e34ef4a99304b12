import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireBody,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { type FleetLab, fleetLab, writeDirective, writeTool } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const STARTS = `<execute><directive>*</directive></execute><execute><tool>rye/agent/*</tool></execute>`;
const RISK = '<acknowledge risk="elevated">Tests.</acknowledge>';
const WAIT = toolUse('rye_agent_threads_orchestrator', { operation: 'wait_threads' }, 'wait');

const starts = (id: string, call: string) =>
  toolUse('rye_execute', { item_type: 'directive', item_id: id, async: true }, call);

/** A fleet whose model answers by the name of the directive that asks. */
async function family(
  answer: (name: string, body: WireBody) => WireTurn | Promise<WireTurn>,
): Promise<FleetLab> {
  const model = await startWireServer(
    async ({ body }) =>
      await answer(/I am (\w+)/.exec(JSON.stringify(body.messages[0]))?.[1] ?? '', body),
  );
  onTestFinished(async () => await model.close());
  return await fleetLab(server, {
    ANTHROPIC_API_KEY: 'sk-ant-fleet-0123456789',
    ANTHROPIC_BASE_URL: model.url,
  });
}

it('a parent that waits for its children holds no slot, and continues when the last one has ended', async () => {
  let asked = 0;
  const lab = await family((name) => {
    if (name === 'child') return reply('A child.', { input_tokens: 1000, output_tokens: 100 });
    asked += 1;
    if (asked === 1)
      return calls(starts('child', 'one'), starts('child', 'two'), starts('child', 'three'));
    return asked === 2 ? calls(WAIT) : reply('All three ended.');
  });
  const { here, env } = lab;
  await writeDirective(here, 'parent', { permissions: STARTS + RISK, body: 'I am parent.' });
  await writeDirective(here, 'child', { body: 'I am child.', spend: '0.10' });
  // one slot: the children run only if the parent gives it back
  await lab.worker({ args: ['--slots', '1', '--wait-inline', '0s'] });
  const run = await here.rye(['run', 'parent', '--fleet', '--wait', '--json'], { env });
  expect(JSON.parse(run.stdout)).toMatchObject({ success: true, result: 'All three ended.' });
  const { threads } = await here.json(['threads', 'list', '--all']);
  expect(threads).toHaveLength(4);
  const rows = await lab.sql.query('SELECT thread_id, status FROM budget_ledger');
  expect(rows.rows.map(({ status }) => status as string)).toEqual(Array(4).fill('released'));
  const { rows: legs } = await lab.sql.query(
    "SELECT count(*)::int AS legs FROM rye_queue.workflow_status WHERE status = 'SUCCESS'",
  );
  // three children, and a parent that was parked once or twice
  expect((legs[0] as { legs: number }).legs).toBeLessThanOrEqual(6);
  for (const { thread_id: id } of threads as { thread_id: string }[])
    expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
});

it('a person approves on another machine, and the thread continues at a worker', async () => {
  let asked = 0;
  const lab = await family(() => {
    asked += 1;
    return asked === 1 ? calls(toolUse('mark', {}, 'toolu_1')) : reply('Done.');
  });
  const { here, env } = lab;
  const mark = path.join(here.home, 'marked');
  await writeTool(here, 'mark', `echo marked >> ${mark}`);
  await writeDirective(here, 'job', {
    permissions: '<execute><tool ask="true">mark</tool></execute>',
  });
  const first = await lab.worker({ label: 'first' });
  const run = await here.rye(['run', 'job', '--fleet', '--wait', '--json'], { env });
  expect(run.code).toBe(8);
  // another worker, with another key, carries the decision out
  await first.leave();
  const { thread_id: id, error } = JSON.parse(run.stdout) as {
    readonly thread_id: string;
    readonly error: { readonly details: { readonly approvals: readonly string[] } };
  };
  expect(existsSync(mark)).toBe(false);
  await lab.worker({ label: 'second' });
  const approved = await here.rye(['approve', error.details.approvals[0] ?? '', '--json']);
  expect(approved).toMatchObject({ code: 0, stdout: expect.stringContaining('true') });
  await lab.until("SELECT status = 'completed' FROM threads WHERE thread_id = $1", [id]);
  expect(readFileSync(mark, 'utf8')).toBe('marked\n');
  expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
});

it('cancel and steer reach a thread on a worker', async () => {
  const bodies: string[] = [];
  let reached: () => void = () => undefined;
  const asked = new Promise<void>((resolve) => {
    reached = resolve;
  });
  const lab = await family(async (name, body) => {
    bodies.push(JSON.stringify(body.messages));
    if (name === 'endless') return calls(toolUse('hold', {}, 'toolu_1'));
    if (bodies.length > 1) return reply('Done.');
    reached();
    return calls(toolUse('wait_for_file', {}, 'toolu_2'));
  });
  const { here, env } = lab;
  const go = path.join(here.home, 'go');
  await writeTool(here, 'hold', 'sleep 600');
  await writeTool(here, 'wait_for_file', `while [ ! -e ${go} ]; do sleep 0.05; done`);
  const permissions = '<execute><tool>hold</tool><tool>wait_for_file</tool></execute>';
  await writeDirective(here, 'steered', { permissions, body: 'I am steered.' });
  await writeDirective(here, 'endless', { permissions, body: 'I am endless.' });
  await lab.worker();
  await here.json(['run', 'steered', '--fleet', '--thread-id', 'steered'], { env });
  await asked;
  expect(await here.rye(['threads', 'steer', 'steered', 'Mind the gap.'])).toMatchObject({
    code: 0,
  });
  await here.rye(['run', 'hello', '--json']);
  const { writeFileSync } = await import('node:fs');
  writeFileSync(go, '');
  expect(await here.json(['threads', 'wait', 'steered'])).toMatchObject({ success: true });
  expect(bodies.some((body) => body.includes('Mind the gap.'))).toBe(true);

  await here.json(['run', 'endless', '--fleet', '--thread-id', 'endless'], { env });
  await lab.until("SELECT status = 'running' FROM threads WHERE thread_id = 'endless'");
  expect(await here.rye(['threads', 'cancel', 'endless'])).toMatchObject({ code: 0 });
  const waited = await here.json(['threads', 'wait', 'endless']);
  expect(waited).toMatchObject({ threads: [{ status: 'cancelled' }] });
  // a queued thread ends at once, without a worker
  await here.json(['fleet', 'pause', 'default']);
  await here.json(['run', 'endless', '--fleet', '--thread-id', 'queued'], { env });
  expect(await here.rye(['threads', 'cancel', 'queued'])).toMatchObject({ code: 0 });
  expect(await here.json(['threads', 'wait', 'queued'])).toMatchObject({
    threads: [{ status: 'cancelled' }],
  });
});
