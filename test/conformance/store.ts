import { describe, expect, it } from 'vitest';
import { NO_COST } from '../../src/core/usage.ts';
import type { RegisterParams, Store } from '../../src/storage/store.ts';
import { headerFor, said, testKey } from '../log/support.ts';

const T0 = '2026-02-17T10:00:00.000Z';
const T1 = '2026-02-17T10:00:01.000Z';
const COST = { ...NO_COST, turns: 2, spend: 0.25 };

function params(threadId: string, changes: Partial<RegisterParams> = {}): RegisterParams {
  const base = { directive: 'demo/count', parentId: null, model: 'm', now: T0, owner: null };
  return { threadId, ...base, ...changes };
}

/** What every Store must do. `open` gives an empty store for each call. */
export function describeStore(name: string, open: () => Store): void {
  describe(`${name}: registry`, () => {
    it('registers a thread once and gives it back', async () => {
      const { registry } = open();
      const record = await registry.register(params('a-1'));
      expect(record).toEqual({
        thread_id: 'a-1',
        directive: 'demo/count',
        parent_id: null,
        status: 'created',
        created_at: T0,
        updated_at: T0,
        completed_at: null,
        pid: null,
        process_start: null,
        host: null,
        epoch: 0,
        heartbeat_at: null,
        model: 'm',
        cost: NO_COST,
        spawn_count: 0,
        result: null,
        outputs: null,
        error: null,
        continuation_of: null,
        continuation_thread_id: null,
        chain_root_id: null,
        cancel_requested: null,
      });
      expect(await registry.get('a-1')).toEqual(record);
      expect(await registry.get('a-2')).toBeUndefined();
      await expect(registry.register(params('a-1'))).rejects.toMatchObject({
        code: 'thread_id_taken',
      });
    });

    it('runs a thread from claim to end, through the state machine only', async () => {
      const { registry, owners } = open();
      const owner = owners.self();
      await registry.register(params('a-1'));
      const claimed = await registry.claim('a-1', owner, T1);
      expect(claimed).toMatchObject({
        status: 'running',
        epoch: 1,
        ...owners.columns(owner),
        heartbeat_at: T1,
      });
      await registry.heartbeat('a-1', 1, T1, { cost: COST });
      expect((await registry.get('a-1'))?.cost).toEqual(COST);
      const done = await registry.finish('a-1', {
        status: 'completed',
        now: T1,
        cost: COST,
        result: 'fine',
        outputs: { n: 3 },
        epoch: 1,
      });
      expect(done).toMatchObject({
        status: 'completed',
        completed_at: T1,
        result: 'fine',
        outputs: { n: 3 },
      });
      for (const status of ['running', 'error', 'completed'] as const) {
        await expect(
          registry.finish('a-1', { status, now: T1, cost: COST, result: '', epoch: 1 }),
          // Requirement: finished-runs-again
        ).rejects.toMatchObject({ code: 'illegal_transition' });
      }
      await expect(registry.claim('a-1', owner, T1)).rejects.toMatchObject({
        code: 'illegal_transition',
      });
      await expect(registry.claim('nope', owner, T1)).rejects.toMatchObject({
        code: 'thread_not_found',
      });
    });

    it('keeps the error of a thread that failed, and suspends and goes on', async () => {
      const { registry, owners } = open();
      await registry.register(params('a-1'));
      await registry.claim('a-1', owners.self(), T0);
      const end = { now: T1, cost: COST, result: '' };
      const held = await registry.finish('a-1', { ...end, status: 'suspended', epoch: 1 });
      expect(held.completed_at).toBeNull();
      expect(await registry.claim('a-1', owners.self(), T1)).toMatchObject({
        status: 'running',
        epoch: 2,
      });
      const error = { code: 'limit_turns', message: 'too many' } as const;
      expect(
        await registry.finish('a-1', { ...end, status: 'error', error, epoch: 2 }),
      ).toMatchObject({
        status: 'error',
        error,
        outputs: null,
      });
    });

    it('gives a running thread only away when its owner is dead, and fences that owner', async () => {
      const { registry, owners } = open();
      const self = owners.self();
      await registry.register(params('a-1'));
      await registry.claim('a-1', self, T0);
      await expect(registry.claim('a-1', self, T1)).rejects.toMatchObject({
        code: 'thread_locked',
      });
      await registry.register(params('a-2'));
      const gone = owners.ofRecord({ ...owners.columns(self), process_start: 'before' });
      await registry.claim('a-2', gone ?? self, T0);
      expect((await registry.claim('a-2', self, T1)).epoch).toBe(2);
      await expect(registry.heartbeat('a-2', 1, T1, { cost: COST })).rejects.toMatchObject({
        code: 'thread_locked',
      });
      await expect(
        registry.finish('a-2', { status: 'error', now: T1, cost: COST, result: '', epoch: 1 }),
      ).rejects.toMatchObject({ code: 'thread_locked' });
    });

    it('gives a thread away whose owner lives but has said nothing since it was looked at', async () => {
      const { registry, owners } = open();
      const self = owners.self();
      await registry.register(params('a-1'));
      await registry.claim('a-1', self, T0);
      await registry.heartbeat('a-1', 1, T1);
      await expect(registry.claim('a-1', self, T1, T0)).rejects.toMatchObject({
        code: 'thread_locked',
      });
      expect(await registry.claim('a-1', self, T1, T1)).toMatchObject({ epoch: 2 });
      await expect(registry.heartbeat('a-1', 1, T1)).rejects.toMatchObject({
        code: 'thread_locked',
      });
    });

    it('lists newest first, by every filter, and children oldest first', async () => {
      const { registry, owners } = open();
      await registry.register(params('root-1', { directive: 'demo/root' }));
      for (let child = 1; child <= 3; child += 1) {
        await registry.register(
          params(`child-${child}`, { parentId: 'root-1', directive: `demo/c${child}` }),
        );
      }
      await registry.register(params('odd-1', { directive: 'demo/[x]?', now: T1 }));
      await registry.claim('root-1', owners.self(), T1);
      await registry.finish('child-1', {
        status: 'cancelled',
        now: T1,
        cost: COST,
        result: '',
        epoch: 0,
      });
      const ids = async (filter: Parameters<typeof registry.list>[0]): Promise<readonly string[]> =>
        (await registry.list(filter)).map(({ thread_id }) => thread_id);
      expect(await ids({})).toEqual(['odd-1', 'child-3', 'child-2', 'child-1', 'root-1']);
      expect(await ids({ limit: 2 })).toEqual(['odd-1', 'child-3']);
      expect(await ids({ active: true })).toEqual(['odd-1', 'child-3', 'child-2', 'root-1']);
      expect(await ids({ active: false })).toEqual(['child-1']);
      expect(await ids({ status: 'running' })).toEqual(['root-1']);
      expect(await ids({ directive: 'demo/c*' })).toEqual(['child-3', 'child-2', 'child-1']);
      expect(await ids({ directive: 'demo/[x]?*' })).toEqual(['odd-1']);
      expect(await ids({ directive: 'demo/root', parentId: 'x' })).toEqual([]);
      expect((await registry.listChildren('root-1')).map(({ thread_id }) => thread_id)).toEqual([
        'child-1',
        'child-2',
        'child-3',
      ]);
    });

    it('finds ids by their start or end, literally', async () => {
      const { registry } = open();
      for (const id of ['demo/a-100', 'demo/a-101', 'demo/b_x-100'])
        await registry.register(params(id));
      expect(await registry.findIds('demo/a', 9)).toEqual(['demo/a-101', 'demo/a-100']);
      expect(await registry.findIds('100', 9)).toEqual(['demo/b_x-100', 'demo/a-100']);
      expect(await registry.findIds('b%x', 9)).toEqual([]);
      expect(await registry.findIds('demo/b.x', 9)).toEqual([]);
      expect(await registry.findIds('demo', 2)).toHaveLength(2);
    });

    it('counts spawns in the transaction that registers the child', async () => {
      const { registry } = open();
      await registry.register(params('p-1'));
      const child = (id: string): RegisterParams => params(id, { parentId: 'p-1', maxSpawns: 3 });
      const outcomes = await Promise.allSettled(
        ['a', 'b', 'c', 'd', 'e'].map(async (id) => await registry.register(child(id))),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
      await expect(registry.register(child('f'))).rejects.toMatchObject({
        code: 'limit_spawns',
        details: { current: 3, max: 3 },
      });
      expect((await registry.get('p-1'))?.spawn_count).toBe(3);
      await expect(registry.register(params('x', { parentId: 'none' }))).rejects.toMatchObject({
        code: 'thread_not_found',
      });
      expect(await registry.get('x')).toBeUndefined();
    });

    it('keeps the first reason of a cancellation', async () => {
      const { registry } = open();
      await registry.register(params('a-1'));
      expect(await registry.cancelRequested('a-1')).toBeUndefined();
      await registry.requestCancel('a-1', 'by hand', T1);
      await registry.requestCancel('a-1', 'again', T1);
      expect(await registry.cancelRequested('a-1')).toBe('by hand');
      await expect(registry.requestCancel('b', 'x', T1)).rejects.toMatchObject({
        code: 'thread_not_found',
      });
    });

    it('carries a cancellation over to what continues a running thread, not to what resumes one', async () => {
      const { registry, owners } = open();
      for (const id of ['a-1', 'a-2', 'a-3']) await registry.register(params(id));
      await registry.claim('a-1', owners.self(), T0);
      await registry.requestCancel('a-1', 'by hand', T1);
      await registry.linkContinuation('a-1', 'a-2', T1, 1);
      expect(await registry.cancelRequested('a-2')).toBe('by hand');
      await registry.register(params('b-1'));
      await registry.claim('b-1', owners.self(), T0);
      await registry.register(params('b-2'));
      await registry.linkContinuation('b-1', 'b-2', T1, 1);
      await registry.requestCancel('b-1', 'who looked before it went on', T1);
      expect(await registry.cancelRequested('b-2')).toBe('who looked before it went on');
      await registry.claim('a-2', owners.self(), T1);
      await registry.finish('a-2', {
        status: 'cancelled',
        now: T1,
        cost: NO_COST,
        result: '',
        epoch: 1,
      });
      await registry.linkContinuation('a-2', 'a-3', T1);
      expect(await registry.cancelRequested('a-3')).toBeUndefined();
    });

    it('links continuations in both directions and walks the chain from any member', async () => {
      const { registry, owners } = open();
      await registry.register(params('a-1'));
      await registry.claim('a-1', owners.self(), T0);
      await expect(registry.linkContinuation('a-1', 'a-2', T1)).rejects.toMatchObject({
        code: 'thread_not_found',
      });
      expect((await registry.get('a-1'))?.status).toBe('running');
      await registry.register(params('a-2', { continuationOf: 'a-1' }));
      expect(await registry.listContinuations('a-1')).toMatchObject([{ thread_id: 'a-2' }]);
      // an owner that the thread was taken from links nothing
      await expect(registry.linkContinuation('a-1', 'a-2', T1, 0)).rejects.toMatchObject({
        code: 'thread_locked',
      });
      await registry.linkContinuation('a-1', 'a-2', T1, 1);
      await registry.register(params('a-3'));
      await registry.claim('a-2', owners.self(), T1);
      await registry.linkContinuation('a-2', 'a-3', T1);
      expect(await registry.get('a-1')).toMatchObject({
        status: 'continued',
        continuation_thread_id: 'a-2',
      });
      expect(await registry.get('a-3')).toMatchObject({
        continuation_of: 'a-2',
        chain_root_id: 'a-1',
      });
      for (const member of ['a-1', 'a-2', 'a-3']) {
        expect((await registry.chain(member)).map(({ thread_id }) => thread_id)).toEqual([
          'a-1',
          'a-2',
          'a-3',
        ]);
      }
      await registry.claim('a-3', owners.self(), T1);
      await expect(registry.linkContinuation('a-3', 'a-1', T1)).rejects.toMatchObject({
        code: 'illegal_transition',
      });
      await expect(registry.chain('none')).rejects.toMatchObject({ code: 'thread_not_found' });
    });
  });

  describe(`${name}: ledger`, () => {
    it('takes no report of an owner that was fenced, and the next one of its successor', async () => {
      const { ledger } = open();
      await ledger.register('root', 1_000_000);
      await ledger.report('root', 100, 1);
      await ledger.fence('root', 2);
      await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
      await ledger.fence('root', 1);
      await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
      expect(await ledger.subtreeSpend('root')).toBe(100);
      await ledger.report('root', 300, 2);
      expect(await ledger.subtreeSpend('root')).toBe(300);
      await ledger.fence('nobody', 3);
    });

    it('registers, reserves, reports and releases; sums are derived', async () => {
      const { ledger } = open();
      await ledger.register('root', 1_000_000);
      await ledger.register('root', 1_000_000);
      await ledger.reserve('child', 400_000, 'root');
      await ledger.reserve('grandchild', 300_000, 'child');
      expect(await ledger.remaining('root')).toBe(600_000);
      expect(await ledger.remaining('child')).toBe(100_000);
      await ledger.report('grandchild', 250_000, 1);
      await ledger.report('root', 100_000, 1);
      await ledger.report('root', 50_000, 1);
      expect(await ledger.remaining('root')).toBe(500_000);
      expect(await ledger.subtreeSpend('root')).toBe(350_000);
      await ledger.release('grandchild');
      await ledger.release('grandchild');
      expect(await ledger.remaining('child')).toBe(150_000);
      await ledger.release('child');
      expect(await ledger.remaining('root')).toBe(650_000);
      expect(await ledger.rows()).toEqual([
        {
          thread_id: 'root',
          parent_id: null,
          max: 1_000_000,
          reserved: 0,
          actual: 100_000,
          status: 'active',
        },
        {
          thread_id: 'child',
          parent_id: 'root',
          max: 400_000,
          reserved: 400_000,
          actual: 0,
          status: 'released',
        },
        {
          thread_id: 'grandchild',
          parent_id: 'child',
          max: 300_000,
          reserved: 300_000,
          actual: 250_000,
          status: 'released',
        },
      ]);
    });

    it('hands what is left over to a successor, without a moment in which others could take it', async () => {
      const { ledger } = open();
      await ledger.register('root', 1000);
      await ledger.reserve('old', 400, 'root');
      await ledger.reserve('grandchild', 100, 'old');
      await ledger.report('old', 150, 1);
      expect(await ledger.handOver('old', 'new', 1000)).toBe(150);
      expect(await ledger.remaining('root')).toBe(600);
      expect(await ledger.remaining('new')).toBe(150);
      await expect(ledger.handOver('old', 'third', 1)).rejects.toMatchObject({
        code: 'budget_insufficient',
      });
      await ledger.report('root', 250, 1);
      expect(await ledger.handOver('root', 'next', 10)).toBe(10);
      expect(await ledger.rows()).toContainEqual({
        thread_id: 'next',
        parent_id: null,
        max: 10,
        reserved: 0,
        actual: 0,
        status: 'active',
      });
    });

    it('refuses what does not fit or is not there, and changes nothing then', async () => {
      const { ledger } = open();
      await ledger.register('root', 100);
      await ledger.reserve('a', 60, 'root');
      const before = await ledger.rows();
      await expect(ledger.reserve('b', 41, 'root')).rejects.toMatchObject({
        code: 'budget_insufficient',
      });
      await expect(ledger.reserve('b', 1, 'none')).rejects.toMatchObject({
        code: 'budget_unregistered',
      });
      await expect(ledger.reserve('b', -1, 'root')).rejects.toMatchObject({
        code: 'invalid_limit',
      });
      await expect(ledger.reserve('b', 0.5, 'root')).rejects.toMatchObject({
        code: 'invalid_limit',
      });
      await expect(ledger.report('none', 1, 1)).rejects.toMatchObject({
        code: 'budget_unregistered',
      });
      await expect(ledger.remaining('none')).rejects.toMatchObject({ code: 'budget_unregistered' });
      await ledger.release('none');
      expect(await ledger.rows()).toEqual(before);
      await ledger.reserve('b', 40, 'root');
    });

    it('does not give out twice what is asked for at once', async () => {
      const { ledger } = open();
      await ledger.register('root', 100);
      const outcomes = await Promise.allSettled(
        Array.from(
          { length: 10 },
          async (_, index) => await ledger.reserve(`c${index}`, 30, 'root'),
        ),
      );
      expect(outcomes.filter(({ status }) => status === 'fulfilled')).toHaveLength(3);
      expect(await ledger.remaining('root')).toBe(10);
    });
  });

  describe(`${name}: logs`, () => {
    it('go from create to verify', async () => {
      const { logs, owners } = open();
      const { signer, verifier } = testKey();
      const owner = owners.self();
      const options = { signer, verifier, durability: 'always', owner, epoch: 1 } as const;
      const writer = await logs.create(headerFor('a/b-1'), options);
      writer.append([said('one')]);
      await writer.close();
      const again = await logs.reopen('a/b-1', options);
      again.append([said('two')]);
      again.checkpoint();
      const expected = again.state();
      await again.close();
      expect((await logs.read('a/b-1')).events.map(({ event_type }) => event_type)).toEqual([
        'checkpoint',
        'message',
        'checkpoint',
        'message',
        'checkpoint',
      ]);
      expect(await logs.verify('a/b-1', { verifier, expected })).toMatchObject({ ok: true });
      expect((await logs.tail('a/b-1', 1)).map(({ seq }) => seq)).toEqual([5]);
    });
  });
}
