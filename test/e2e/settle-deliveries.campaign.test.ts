import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { openRye } from '../../src/open-rye.ts';
import { calls, startWireServer, toolUse, type WireServer } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LOOK = calls(toolUse('rye_file_system_ls', { path: '.' }));
/** Each message is settled in its own way. */
const ANSWERS = [
  ['delivered', 'operator_confirmed'],
  ['dropped', 'operator_dropped'],
  ['retry', 'requeued'],
] as const;
const ID = 'watch-1';

interface Row {
  readonly seq: number;
  readonly state: string;
  readonly close_reason: string | null;
  readonly manual_reason: string | null;
  readonly entry_id: string | null;
  readonly attempts: number;
}

interface Place {
  readonly here: Workspace;
  readonly env: Readonly<Record<string, string>>;
  readonly server: WireServer;
}

/** A workspace with a directive whose model looks around once, gets three messages, and then never answers. */
async function place(): Promise<Place> {
  const here = await workspace();
  const server = await startWireServer(async ({ index }) => {
    if (index > 0) return 'hang';
    for (const [as] of ANSWERS) await here.rye(['threads', 'steer', ID, `Note ${as}.`]);
    return LOOK;
  });
  onTestFinished(() => server.close());
  const file = path.join(here.project, '.ai/directives/watch.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const metadata =
    '<metadata><description>d</description><category></category><author>a</author><limits spend="1"/><permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>';
  const xml = `<directive name="watch" version="1.0.0">\n${metadata}\n</directive>`;
  writeFileSync(file, `\`\`\`xml\n${xml}\n\`\`\`\n\nLook around.\n`);
  await here.rye(['sign', 'directive', 'watch']);
  return { here, server, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

async function list({ here }: Place): Promise<readonly Row[]> {
  return (await here.json(['threads', 'deliveries', ID]))['deliveries'] as readonly Row[];
}

/** Kills a process and waits until the system has forgotten it. */
async function killed(pid: number): Promise<void> {
  process.kill(pid, 'SIGKILL');
  const isGone = (): boolean => {
    try {
      return !process.kill(pid, 0);
    } catch {
      return true;
    }
  };
  await expect.poll(isGone).toBe(true);
}

/** Starts the thread in the background; resolves when a request with the messages has been sent. */
async function underWay({ here, env, server }: Place): Promise<number> {
  const started = await here.rye(['run', 'watch', '--async', '--thread-id', ID], { env });
  await server.request(1);
  return (JSON.parse(started.stdout) as { pid: number }).pid;
}

/** Sent, and its process killed. */
async function crashed(at: Place): Promise<void> {
  await killed(await underWay(at));
}

async function recovered(at: Place): Promise<void> {
  await crashed(at);
  expect(await at.here.rye(['threads', 'recover', ID])).toMatchObject({ code: 0 });
}

async function cancelled(at: Place): Promise<void> {
  await underWay(at);
  expect(await at.here.rye(['threads', 'cancel', ID])).toMatchObject({ code: 0 });
  expect((await at.here.rye(['threads', 'wait', ID])).stdout).toContain('cancelled');
}

/** In the log, and cancelled before any request carried it. */
async function unseen({ here, env }: Place): Promise<void> {
  const stop = new AbortController();
  const rye = openRye({
    projectPath: here.project,
    userSpacePath: here.home,
    env: { HOME: here.home, ...env },
  });
  onTestFinished(() => rye.close());
  await rye.threads.execute({
    directiveId: 'watch',
    threadId: ID,
    signal: stop.signal,
    onEvent: ({ event_type: type }) => {
      if (type === 'custom_message') stop.abort('enough');
    },
  });
}

/** Left for a thread that has ended. */
async function waiting({ here, env, server }: Place): Promise<void> {
  const run = ['run', 'watch', '--thread-id', ID, '--limit', 'turns=1'];
  await here.rye(run, { env });
  expect(server.requests).toHaveLength(1);
}

test.each([
  ['waits for a thread that has ended', waiting, ['queued', false]],
  ['is in the log and was in no request', unseen, ['queued', true]],
  ['was sent by a process that was killed', crashed, ['queued', true]],
  ['was sent by a process that was killed, and was recovered', recovered, ['manual', true]],
  ['was sent by a run that was cancelled', cancelled, ['manual', true]],
] as const)(
  'threads deliveries settles a message in each way when it %s',
  async (_what, reach, [state, isInLog]) => {
    const at = await place();
    await reach(at);
    const before = await list(at);
    expect(before.map((row) => [row.state, row.entry_id !== null])).toEqual(
      ANSWERS.map(() => [state, isInLog]),
    );
    for (const [index, [as]] of ANSWERS.entries()) {
      const seq = String(before[index]?.seq);
      const settled = await at.here.rye([
        'threads',
        'deliveries',
        ID,
        '--resolve',
        seq,
        '--as',
        as,
      ]);
      expect(settled).toMatchObject({ code: 0, stderr: '' });
      const outcome = as === 'retry' ? `queued again as message 4` : as;
      expect(settled.stdout).toBe(`Message ${seq} ${outcome}\n`);
    }
    const [again, ...more] = (await list(at)).slice(ANSWERS.length);
    expect(again).toMatchObject({ state: 'queued', entry_id: null, attempts: 0 });
    expect(more).toEqual([]);
    const reasons = (await list(at)).slice(0, ANSWERS.length).map(({ close_reason: one }) => one);
    expect(reasons).toEqual(ANSWERS.map(([, reason]) => reason));
  },
  120_000,
);

test('recovery leaves a message to a person when its process was killed in a request that carried it', async () => {
  const at = await place();
  await recovered(at);
  for (const row of await list(at)) {
    expect(row).toMatchObject({
      state: 'manual',
      manual_reason: 'the model may have seen it, and the run was interrupted',
    });
  }
  const { stdout } = await at.here.rye(['threads', 'deliveries', ID]);
  expect(stdout).toContain('manual');
});

test('threads deliveries refuses a message of a living run and of one that is settled, and its hints work', async () => {
  const at = await place();
  await underWay(at);
  const settle = async () => {
    const args = ['threads', 'deliveries', ID, '--resolve', '1', '--as', 'dropped'];
    return await at.here.rye(args);
  };
  const refused = await settle();
  expect(refused.code).toBe(2);
  expect(refused.stderr).toContain('delivery 1 is in a run that is not over');
  expect(refused.stderr).toContain(`rye threads cancel ${ID}`);
  expect(await at.here.rye(['threads', 'cancel', ID])).toMatchObject({ code: 0 });
  await at.here.rye(['threads', 'wait', ID]);
  expect(await settle()).toMatchObject({ code: 0 });
  const twice = await settle();
  expect(twice.code).toBe(2);
  expect(twice.stderr).toContain('delivery 1 is already settled: operator_dropped');
  expect(twice.stderr).toContain(`rye threads steer ${ID} 'MESSAGE'`);
  expect(await at.here.rye(['threads', 'steer', ID, 'MESSAGE'])).toMatchObject({ code: 0 });
});

test('threads show prints what the active turn may do while it runs, and nothing when it is over', async () => {
  const at = await place();
  const pid = await underWay(at);
  const { stdout } = await at.here.rye(['threads', 'show', ID]);
  expect(stdout).toMatch(
    /^active turn \S+ regular, read_only_low_risk, steerable, epoch 1, observed 2\S+Z, valid until 2\S+Z$/m,
  );
  const { active_turn: turn } = await at.here.json(['threads', 'show', ID]);
  expect(turn).toMatchObject({
    active_run_kind: 'regular',
    requires_approval: false,
    requires_network: false,
    requires_write_access: false,
    risk_class: 'read_only_low_risk',
    steerable: true,
    epoch: 1,
    after_tool_batch: true,
  });
  await killed(pid);
  await at.here.rye(['threads', 'recover', ID]);
  expect((await at.here.json(['threads', 'show', ID]))['active_turn']).toBeNull();
});
