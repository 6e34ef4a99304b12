import { execFileSync } from 'node:child_process';
import { existsSync } from 'node:fs';
import { open } from 'node:fs/promises';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { defineTool } from '../../src/index.ts';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import { calls, reply, toolUse, type WireServer } from '../helpers/wire-server.ts';

let lab: Lab;
let rye: Rye;
let server: WireServer;
/** Called while the first call of the batch runs. */
let act: (threadId: string) => Promise<unknown>;

const write = (name: string) =>
  toolUse('rye_file_system_write', { path: name, content: 'x' }, `id_${name.slice(0, 1)}`);

beforeEach(async () => {
  lab = await openLab();
  server = await lab.model([
    calls(toolUse('team_first', {}, 'id_first'), write('second.txt'), write('third.txt')),
    reply('I stop.'),
    reply('More.'),
  ]);
  act = () => Promise.resolve();
  const first = defineTool({
    description: 'Runs first.',
    inputSchema: { type: 'object', properties: {} },
    traits: { reads_only: false, network: false, risk: 'safe' },
    execute: async () => {
      await act('s');
      return 'done';
    },
  });
  rye = lab.rye({ tools: { 'team/first': first } });
  lab.signed(
    'directives/work.md',
    directive('work', {
      limits: 'turns="6" spend="0.50"',
      permissions: '<execute><tool>team/first</tool><tool>rye/file-system/write</tool></execute>',
    }),
  );
});

afterEach(async () => await lab.remove());

async function run(behavior?: { readonly steer_between_calls: boolean }) {
  const model = { model: 'claude-haiku-5-5', provider: 'anthropic' };
  const request = { directiveId: 'work', threadId: 's', ...model };
  return await rye.threads.execute(behavior ? { ...request, behavior } : request);
}

const ON = { steer_between_calls: true };
const made = (name: string): boolean => existsSync(path.join(lab.project, name));

async function events(type: string): Promise<readonly string[]> {
  return (await lab.events('s'))
    .filter((event) => event.event_type === type)
    .map(({ payload }) => JSON.stringify(payload));
}

describe('a message of a person between the calls of a batch', () => {
  it('skips the calls that have not begun, and the model reads it next', async () => {
    act = async (id) => await rye.deliveries.send(id, 'Stop here.');
    expect(await run(ON)).toMatchObject({ status: 'completed', result: 'I stop.' });
    expect([made('second.txt'), made('third.txt')]).toEqual([false, false]);
    const told = JSON.stringify(server.requests[1]?.body.messages.at(-1));
    expect(told).toMatch(
      /done.*Skipped: a person sent a message before this call.*Skipped: .*Stop here\./,
    );
    expect(await events('tool_call_start')).toHaveLength(1);
    const settled = await events('tool_settled');
    expect(settled.map((one) => /"outcome":"(\w+)"/.exec(one)?.[1])).toEqual([
      'ok',
      'skipped',
      'skipped',
    ]);
    expect((await rye.threads.verify('s')).ok).toBe(true);
    expect(await rye.trees.replay('s')).toMatchObject({ difference: null });
    const [delivery] = await rye.deliveries.list('s');
    expect(delivery).toMatchObject({ close_reason: 'delivered' });
  });

  it('waits for the whole batch by default', async () => {
    act = async (id) => await rye.deliveries.send(id, 'Stop here.');
    expect(await run()).toMatchObject({ status: 'completed' });
    expect([made('second.txt'), made('third.txt')]).toEqual([true, true]);
  });

  it('skips no call as a follow-up', async () => {
    act = async (id) => await rye.deliveries.send(id, 'Later.', { mode: 'follow-up' });
    expect(await run(ON)).toMatchObject({ status: 'completed' });
    expect([made('second.txt'), made('third.txt')]).toEqual([true, true]);
    expect(await events('tool_call_start')).toHaveLength(3);
  });

  it('is kept by a crash, after which no skipped call runs', async () => {
    lab.sandbox('off');
    const fifo = path.join(lab.project, 'gate');
    execFileSync('mkfifo', [fifo]);
    lab.signed(
      'directives/shell.md',
      directive('shell', {
        limits: 'turns="6" spend="0.50"',
        permissions: '<execute><tool>rye/bash</tool><tool>rye/file-system/write</tool></execute>',
        metadata: '<behavior steer_between_calls="true"/>',
      }),
    );
    const shell = await lab.model([
      calls(toolUse('rye_bash', { command: `cat ${fifo}` }, 'id_b'), write('second.txt')),
      reply('I stop.'),
    ]);
    const running = runCli(
      [
        ...'run shell --thread-id s --acknowledge elevated --json --model'.split(' '),
        'claude-haiku-5-5',
      ],
      { cwd: lab.project, env: lab.env, spawned: true },
    );
    await shell.request(0);
    // opens once the first call reads it
    const gate = await open(fifo, 'w');
    await rye.deliveries.send('s', 'Stop here.');
    const [thread] = await rye.threads.list();
    process.kill(thread?.pid ?? 0, 'SIGKILL');
    await running;
    await gate.close();
    await rye.recovery.recover({ threadId: 's' });
    const { recovery } = lab.rye();
    expect(await recovery.resume({ threadId: 's' })).toMatchObject({ result: 'I stop.' });
    expect(JSON.stringify(shell.requests[1]?.body.messages)).toContain('Stop here.');
    expect(made('second.txt')).toBe(false);
    expect((await rye.threads.verify('s')).ok).toBe(true);
  });
});
