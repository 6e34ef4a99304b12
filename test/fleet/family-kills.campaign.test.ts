import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { writeDirective, writeTool } from './lab.ts';
import { answeredFleet, linesOf, proveFleet } from './proof.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const CHILDREN = ['c0', 'c1', 'c2', 'c3', 'c4', 'c5'];
const PERMISSIONS = `<execute><directive>*</directive></execute><execute><tool>rye/agent/*</tool><tool>mark</tool></execute>
<acknowledge risk="elevated">Tests.</acknowledge>`;

it('a family whose workers are killed ends whole, and its ledger is exact', async () => {
  const lab = await answeredFleet(server, ({ name, results }) => {
    if (name !== 'parent') {
      if (results === 2) return reply('A child.');
      return calls(toolUse('mark', { text: `${name}-${results}` }, `toolu_${name}_${results}`));
    }
    if (results === 0)
      return calls(
        ...CHILDREN.map((id) =>
          toolUse('rye_execute', { item_type: 'directive', item_id: id, async: true }, id),
        ),
      );
    if (results > CHILDREN.length) return reply('All ended.');
    const wait = { operation: 'wait_threads' };
    return calls(toolUse('rye_agent_threads_orchestrator', wait, 'wait'));
  });
  const { here, env, sql } = lab;
  const marks = path.join(here.home, 'marks');
  // in flight at the kill, and long enough for it
  const script = `text="$(cat)"; sleep 0.5; echo "$text" >> ${marks}`;
  await writeTool(here, 'mark', script, { parameters: ['text'] });
  for (const id of CHILDREN)
    await writeDirective(here, id, {
      permissions: '<execute><tool>mark</tool></execute>',
      body: `I am ${id}.`,
      spend: '20.00',
      isSigned: false,
    });
  await writeDirective(here, 'parent', {
    permissions: PERMISSIONS,
    body: 'I am parent.',
    spend: '400.00',
    isSigned: false,
  });
  expect(await here.rye(['sign', 'directive', '*'])).toMatchObject({ code: 0 });
  const workers = [];
  for (const label of ['a', 'b', 'c'])
    workers.push(await lab.worker({ label, args: ['--slots', '2', '--wait-inline', '0s'] }));
  await here.json(['run', 'parent', '--fleet', '--thread-id', 'family'], { env });
  // each start has returned: the parent is parked, or its worker dies while it waits
  await lab.until(`SELECT count(*) = ${CHILDREN.length + 1} AND
    count(*) FILTER (WHERE status = 'created' AND fleet IS NULL) = 0 FROM threads`);
  // a child makes a call
  await lab.until(
    `SELECT bool_or(thread_id <> 'family' AND position('tool_call_start'::bytea in data) > 0) FROM log_pieces`,
  );
  for (const worker of workers.slice(0, 2)) {
    const id = await worker.id();
    const { rows } = await sql.query<{ n: number }>(
      "SELECT count(*)::int AS n FROM threads WHERE worker = $1 AND status = 'running'",
      [id],
    );
    await worker.kill();
    if ((rows[0]?.n ?? 0) > 0)
      await lab.until('SELECT count(*) = 0 FROM workers WHERE worker_id = $1', [id]);
  }
  await lab.worker({ label: 'd', args: ['--slots', '2', '--wait-inline', '0s'] });
  await lab.until("SELECT bool_and(status = 'completed') FROM threads");
  const { threads, highestEpoch } = await proveFleet(lab);
  expect(threads).toBe(CHILDREN.length + 1);
  expect(highestEpoch).toBeGreaterThan(1);
  const lines = linesOf(marks);
  expect(new Set(lines).size).toBe(lines.length);
  // what the ledger has is what the logs booked, to the millionth of a dollar
  const { rows } =
    await sql.query(`SELECT l.thread_id FROM budget_ledger AS l JOIN threads AS t USING (thread_id)
    WHERE l.status <> 'released' OR l.actual <> round((t.cost::json ->> 'spend')::numeric * 1000000)`);
  expect(rows).toEqual([]);
});
