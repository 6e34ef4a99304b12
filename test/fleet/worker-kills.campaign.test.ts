import { existsSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { modelledLab, writeDirective, writeTool } from './lab.ts';

let server: PostgresServer;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

it.each(['leg', 'worker', 'both'])(
  'after kill -9 of the %s another leg goes on, and no call runs twice',
  async (victim) => {
    const lab = await modelledLab(server, [
      calls(toolUse('mark', {}, 'toolu_1')),
      calls(toolUse('hold', {}, 'toolu_2')),
      reply('Done.'),
    ]);
    const { here, env } = lab;
    const mark = path.join(here.home, 'marked');
    const pid = path.join(here.home, 'pid');
    await writeTool(here, 'mark', `echo marked >> ${mark}`);
    // the call that is in flight at the kill, and whose result tells the model so
    await writeTool(here, 'hold', `echo "$PPID" > ${pid}; sleep 600`);
    await writeDirective(here, 'job', {
      permissions: '<execute><tool>mark</tool><tool>hold</tool></execute>',
    });
    const first = await lab.worker({ label: 'first' });
    await first.id();
    const submitted = await here.json(['run', 'job', '--fleet', '--thread-id', 'long'], { env });
    expect(submitted).toMatchObject({ success: true, status: 'created' });
    await lab.until('SELECT count(*) = 1 FROM threads WHERE pid IS NOT NULL');
    await waitForFile(pid);
    const { rows } = await lab.sql.query<{ pid: number }>('SELECT pid FROM threads');
    if (victim !== 'leg') await lab.worker({ label: 'second' }).then(async (one) => await one.id());
    if (victim !== 'worker') process.kill(rows[0]?.pid ?? 0, 'SIGKILL');
    if (victim !== 'leg') await first.kill();
    const waited = await here.json(['threads', 'wait', 'long']);
    expect(waited).toMatchObject({ success: true, threads: [{ result: 'Done.' }] });
    expect(readFileSync(mark, 'utf8')).toBe('marked\n');
    const logs = (await here.rye(['threads', 'logs', 'long', '--json'])).stdout;
    expect(logs).toContain('interrupted');
    expect(await here.json(['verify', 'thread', 'long'])).toMatchObject({ success: true });
  },
);

async function waitForFile(file: string): Promise<void> {
  const { setTimeout: delay } = await import('node:timers/promises');
  const end = Date.now() + 60_000;
  while (!existsSync(file)) {
    if (Date.now() > end) throw new Error(`${file} was never written`);
    await delay(20);
  }
}
