import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import Database from 'better-sqlite3';
import { expect, it, onTestFinished } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import type { EnqueueParams } from '../../src/kernel/storage/deliveries.ts';
import type { OpenTools, ThreadEnv } from '../../src/kernel/threads/ports.ts';
import { ThreadInbox } from '../../src/kernel/threads/run/inbox.ts';
import type { StartedThread } from '../../src/kernel/threads/run/start.ts';
import {
  CAUTIOUS_TRAITS,
  type ResolvedCall,
  type Tool,
  textOutput,
} from '../../src/kernel/tools/tool.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { READS, SimLog, THREAD, World } from './world.ts';

function tool(id: string, readsOnly: boolean): Tool {
  return {
    id,
    description: '',
    inputSchema: {},
    traits: { ...CAUTIOUS_TRAITS, reads_only: readsOnly, network: false },
    execute: () => Promise.resolve(textOutput('')),
  };
}

const READER = tool('r', true);
const SEARCH = tool('tool_search', true);
const NEW_READER = tool('new', true);
const WRITER = tool('w', false);

function call(of: Tool): ResolvedCall {
  return { tool: of, input: {}, need: { verb: 'execute', item_type: 'tool', item_id: of.id } };
}

const RULES = { enabled: true, minIntervalMs: 0, proofMs: 1000 };

/** An inbox with its run open, on real tables. */
async function opened(offered: readonly Tool[], onSync: () => void = () => undefined) {
  const folder = mkdtempSync(path.join(tmpdir(), 'rye-inbox-'));
  onTestFinished(() => removeFolder(folder));
  const world = new World(folder);
  onTestFinished(() => world.store.close());
  await world.register(THREAD, null);
  const { registry, owners, deliveries } = world.store;
  const record = await registry.claim(THREAD, owners.self(), world.time);
  const tools = {
    definitions: () => ({ version: 1, tools: offered.map(({ id }) => ({ name: id })) }),
    set: {
      resolve: (name: string) =>
        Promise.resolve({
          kind: 'resolved',
          call: { tool: offered.find(({ id }) => id === name) },
        }),
    },
  } as unknown as OpenTools;
  const inbox = new ThreadInbox({
    env: {
      store: world.store,
      ids: { entryId: () => world.id('e'), uuid: () => world.id('u') },
      clock: { now: () => world.now },
      files: {},
    } as unknown as ThreadEnv,
    started: {
      threadId: THREAD,
      record,
      plan: { hooks: [], capabilities: [] },
    } as unknown as StartedThread,
    tools,
    rules: RULES,
    observe: () => Promise.resolve([]),
    syncLog: async () => onSync(),
  });
  await inbox.open(new Set(), []);
  const log = new SimLog(folder);
  const write = async (drafts: readonly EventDraft[]): Promise<readonly LogEvent[]> => {
    const events = log.append(drafts);
    await inbox.written(events);
    return events;
  };
  return {
    inbox,
    world,
    write,
    key: { threadId: THREAD, epoch: record.epoch, runId: openRun(world) },
    send: async (id: string, more: Partial<EnqueueParams> = {}) =>
      await deliveries.enqueue({
        deliveryId: id,
        threadId: THREAD,
        class: 'background',
        kind: 'message',
        mode: 'auto',
        source: 'other',
        text: 'news',
        requiresArtifact: false,
        now: world.time,
        ...more,
      }),
    batch: async () => {
      const result = { role: 'tool_result', call_id: 'c', name: 'r', content: [] } as const;
      await write([{ event_type: 'message', payload: { message: { ...result, outcome: 'ok' } } }]);
    },
  };
}

function openRun({ folder }: World): string {
  const database = new Database(path.join(folder, '.ai/state/threads/registry.db'));
  const row = database.prepare(`SELECT run_id FROM runs WHERE status = 'running'`).get();
  database.close();
  return (row as { run_id: string }).run_id;
}

it('latches the tool gate from a steer to the end of the run: nothing but the readers that were offered then', async () => {
  const { inbox, write, send, batch } = await opened([READER, SEARCH]);
  const answers = () =>
    [READER, SEARCH, NEW_READER, WRITER].map((one) => inbox.gate(call(one)) === undefined);
  expect(answers()).toEqual([true, true, true, true]);
  await send('d1');
  await batch();
  await write(await inbox.take('before_turn'));
  expect(answers()).toEqual([true, false, false, false]);
  expect(inbox.gate(call(WRITER))).toContain('only use read-only tools');
  // another one waits: the first is not resolved
  await send('d2');
  await batch();
  expect(await inbox.take('before_turn')).toEqual([]);
  await inbox.close('failed');
  expect(answers()).toEqual([true, true, true, true]);
});

it('rejects a request whose run has changed since, at no cost; asks none of a compaction or a run that is over', async () => {
  const { inbox, world, send, batch, key } = await opened([READER]);
  await send('d1');
  await batch();
  const { deliveries } = world.store;
  const params = {
    key,
    point: {
      observed_at: world.now,
      valid_until: world.now + 1000,
      answer_boundary_passed: false,
      after_tool_batch: true,
      pending_approvals: 0,
      open_tool_calls: 0,
    },
    rules: RULES,
    now: world.time,
    nowMs: world.now,
    ids: { attempt: () => world.id('a'), entry: () => world.id('m') },
  };
  expect(await deliveries.requestSteer(params)).toMatchObject({ outcome: 'steer' });
  await deliveries.updateRun(key, 'regular', { ...READS, requires_write_access: true });
  expect(await deliveries.admitSteer(params)).toBeUndefined();
  const [delivery] = await world.deliveries();
  expect(delivery).toMatchObject({ state: 'queued', attempts: 0, entry_id: null });
  expect(delivery?.tries).toMatchObject([{ state: 'rejected', reason: 'the run has changed' }]);
  await deliveries.updateRun(key, 'compact', READS);
  expect(await deliveries.requestSteer(params)).toMatchObject({ outcome: 'idle', row: 12 });
  await inbox.close('completed');
  expect(await deliveries.requestSteer(params)).toMatchObject({ outcome: 'idle', row: 10 });
});

it('lets one of two admissions win that come at the same time', async () => {
  const { world, send, key } = await opened([READER]);
  await send('d1');
  const admit = async (n: number) =>
    await world.store.deliveries.endRun({
      key,
      end: 'completed',
      requested: new Set(),
      next: {
        runId: `next-${n}`,
        attemptId: `a-${n}`,
        entryId: `e-${n}`,
        traits: READS,
        onlyIfWaiting: true,
      },
      now: world.time,
    });
  const settled = await Promise.allSettled([admit(1), admit(2)]);
  const won = settled.filter((one) => one.status === 'fulfilled' && one.value !== undefined);
  expect(won).toHaveLength(1);
  expect((await world.deliveries())[0]?.tries).toHaveLength(1);
});

it('releases a delivery that the log never had: that was no attempt', async () => {
  const { inbox, world, send } = await opened([READER]);
  await send('d1');
  expect(await inbox.next()).toHaveLength(2);
  await inbox.close('failed');
  const [delivery] = await world.deliveries();
  expect(delivery).toMatchObject({ state: 'queued', attempts: 0, entry_id: null });
  expect(delivery?.tries).toMatchObject([{ kind: 'turn_start', state: 'rejected', run_id: null }]);
});

it('has table constraints that refuse invalid states', async () => {
  const { world, send, key } = await opened([READER]);
  await send('d1');
  const database = new Database(path.join(world.folder, '.ai/state/threads/registry.db'));
  onTestFinished(() => {
    database.close();
  });
  const attempt = (id: string, kind: string, proof: string | null) => () =>
    database
      .prepare(
        `INSERT INTO delivery_attempts (attempt_id, delivery_id, thread_id, generation, kind, marker, state, epoch,
           expected_run_id, expected_revision, proof, created_at)
         VALUES (?, 'd1', ?, ?, ?, ?, 'accept_pending', 1, 'r', 1, ?, '')`,
      )
      .run(id, THREAD, Number(id), kind, id, proof);
  const run = (sql: string) => () => database.prepare(sql).run();
  expect(
    run(`INSERT INTO runs (run_id, thread_id, epoch, kind, status, risk_class, started_at)
         VALUES ('other', '${key.threadId}', 1, 'regular', 'running', 'unknown', '')`),
  ).toThrow('UNIQUE');
  expect(run(`UPDATE deliveries SET state = 'closed', close_reason = 'delivered'`)).toThrow(
    'CHECK',
  );
  expect(run(`UPDATE deliveries SET state = 'closed'`)).toThrow('CHECK');
  expect(run(`UPDATE deliveries SET attempts = 4`)).toThrow('CHECK');
  expect(attempt('1', 'turn_steer', null)).toThrow('CHECK');
  expect(attempt('2', 'turn_steer', '{"risk_class":"elevated"}')).toThrow('CHECK');
  attempt('3', 'turn_steer', '{"risk_class":"read_only_low_risk"}')();
  expect(attempt('4', 'turn_start', null)).toThrow('UNIQUE');
  expect(run(`UPDATE delivery_attempts SET state = 'tracking'`)).toThrow('CHECK');
});

it.each(['take', 'next', 'close'] as const)(
  'a child that was waited for is no delivery at the next safe point: %s',
  async (point) => {
    const { inbox, world, send, batch } = await opened([READER]);
    await send('d1', { kind: 'child_result', source: 'kid', childRun: 1 });
    await batch();
    inbox.learned({ threadId: 'kid', run: 1 });
    if (point === 'take') expect(await inbox.take('before_turn')).toEqual([]);
    else if (point === 'next') expect(await inbox.next()).toEqual([]);
    else await inbox.close('completed');
    const [only] = await world.store.deliveries.list(THREAD);
    expect(only).toMatchObject({ state: 'closed', close_reason: 'consumed_by_wait' });
  },
);

it('the log is on the disk before a run that answered ends, and another one begins', async () => {
  const order: string[] = [];
  const { inbox, world, send } = await opened([READER], () => void order.push('synced'));
  const { deliveries } = world.store;
  const endRun = deliveries.endRun.bind(deliveries);
  Object.assign(deliveries, {
    endRun: async (...end: Parameters<typeof endRun>) => {
      order.push('ended');
      return await endRun(...end);
    },
  });
  expect(await inbox.next()).toEqual([]);
  await send('d1');
  expect(await inbox.next()).toHaveLength(2);
  expect(order).toEqual(['synced', 'ended']);
});

it('people are heard first, all at a turn and one at the end; hooks are heard with them', async () => {
  const { inbox, send } = await opened([READER]);
  const person = { class: 'person', kind: 'steer', source: 'person' } as const;
  await send('d1');
  await send('p1', person);
  await send('p2', person);
  await send('p3', { ...person, mode: 'follow-up' });
  await send('p4', { ...person, mode: 'idle' });
  const ids = async (point: 'before_turn' | 'at_end'): Promise<readonly unknown[]> =>
    (await inbox.take(point)).flatMap(({ event_type: type, payload }) =>
      type === 'delivery' ? [(payload as { delivery_id?: string }).delivery_id] : [],
    );
  expect(await ids('before_turn')).toEqual(['p1', 'p2']);
  expect(await ids('at_end')).toEqual(['p3']);
  expect(await ids('at_end')).toEqual(['p4']);
  expect(await ids('at_end')).toEqual([]);
});

it('a thread that continues another takes over what waits, and not what a run of that thread has', async () => {
  const { inbox, world, write, send, batch } = await opened([READER]);
  await send('d1');
  await batch();
  await write(await inbox.take('before_turn'));
  await send('d2');
  const { deliveries, registry, owners } = world.store;
  await world.register('next', null);
  const { epoch } = await registry.claim('next', owners.self(), world.time);
  const next = { threadId: 'next', epoch, runId: world.id('u') };
  const traits = {
    requires_approval: false,
    requires_network: false,
    requires_write_access: false,
  };
  const begun = { traits, carried: new Set<string>(), from: [THREAD], now: world.time };
  expect(await deliveries.openRun({ ...next, ...begun })).toEqual([]);
  const place = async (id: string) =>
    (await deliveries.list(id)).map((one) => [one.delivery_id, one.thread_id]);
  expect(await place(THREAD)).toEqual([
    ['d1', THREAD],
    ['d2', 'next'],
  ]);
});
