import { describe, expect, it } from 'vitest';
import { NO_COST } from '../../src/core/usage.ts';
import type { RegisterParams, Store } from '../../src/storage/store.ts';
import { delta, headerFor, testKey, userMessage } from '../log/support.ts';

const T0 = '2026-02-17T10:00:00.000Z';
const T1 = '2026-02-17T10:00:01.000Z';
const COST = { ...NO_COST, turns: 2, spend: 0.25 };

function params(threadId: string, changes: Partial<RegisterParams> = {}): RegisterParams {
  const base = { directive: 'demo/count', parentId: null, model: 'm', now: T0, owner: null };
  return { threadId, ...base, ...changes };
}

/** The contract of every store. `open` returns an empty store for each call. */
export function describeStore(name: string, open: () => Promise<Store> | Store): void {
  describe(`${name}: registry`, () => {
    it('registers a thread once and gives it back', async () => {
      const { registry } = await open();
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
      const { registry, owners } = await open();
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

    it('keeps the error of a failed thread, and claims a suspended one again', async () => {
      const { registry, owners } = await open();
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
      const { registry, owners } = await open();
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

    it('gives away a thread whose living owner has sent no heartbeat since it was checked', async () => {
      const { registry, owners } = await open();
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
      const { registry, owners } = await open();
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
      const { registry } = await open();
      for (const id of ['demo/a-100', 'demo/a-101', 'demo/b_x-100'])
        await registry.register(params(id));
      expect(await registry.findIds('demo/a', 9)).toEqual(['demo/a-101', 'demo/a-100']);
      expect(await registry.findIds('100', 9)).toEqual(['demo/b_x-100', 'demo/a-100']);
      expect(await registry.findIds('b%x', 9)).toEqual([]);
      expect(await registry.findIds('demo/b.x', 9)).toEqual([]);
      expect(await registry.findIds('demo', 2)).toHaveLength(2);
    });

    it('counts spawns in the transaction that registers the child', async () => {
      const { registry } = await open();
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
      const { registry } = await open();
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
      const { registry, owners } = await open();
      for (const id of ['a-1', 'a-2', 'a-3']) await registry.register(params(id));
      await registry.claim('a-1', owners.self(), T0);
      await registry.requestCancel('a-1', 'by hand', T1);
      await registry.linkContinuation('a-1', 'a-2', T1, 1);
      expect(await registry.cancelRequested('a-2')).toBe('by hand');
      await registry.register(params('b-1'));
      await registry.claim('b-1', owners.self(), T0);
      await registry.register(params('b-2'));
      await registry.linkContinuation('b-1', 'b-2', T1, 1);
      await registry.requestCancel('b-1', 'asked before it continued', T1);
      expect(await registry.cancelRequested('b-2')).toBe('asked before it continued');
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
      const { registry, owners } = await open();
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
      const { ledger } = await open();
      await ledger.register('root', 1_000_000);
      await ledger.report('root', 100, 1);
      await ledger.fence('root', 2);
      await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
      await ledger.fence('root', 1);
      await expect(ledger.report('root', 200, 1)).rejects.toMatchObject({ code: 'thread_locked' });
      expect(await ledger.subtreeSpend('root')).toBe(100);
      await ledger.report('root', 300, 2);
      expect(await ledger.subtreeSpend('root')).toBe(300);
      await ledger.fence('none', 3);
    });

    it('registers, reserves, reports and releases; sums are derived', async () => {
      const { ledger } = await open();
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

    it('hands the remaining budget over to a successor in one transaction', async () => {
      const { ledger } = await open();
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
      const { ledger } = await open();
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
      const { ledger } = await open();
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
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const owner = owners.self();
      const options = { signer, verifier, durability: 'always', owner, epoch: 1 } as const;
      const writer = await logs.create(headerFor('a/b-1'), options);
      writer.append([userMessage('one')]);
      await writer.close();
      const again = await logs.reopen('a/b-1', options);
      again.append([userMessage('two')]);
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

    it('opens one writer at a time, and passes a log to a higher epoch', async () => {
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const owner = owners.self();
      const options = { signer, verifier, durability: 'turn', owner, epoch: 1 } as const;
      const writer = await logs.create(headerFor('t-1'), options);
      await expect(logs.create(headerFor('t-1'), options)).rejects.toMatchObject({
        code: 'thread_locked',
      });
      await expect(logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
      await expect(logs.hold('t-1', owner, 1)).rejects.toMatchObject({ code: 'thread_locked' });
      expect(await logs.holder('t-1')).toEqual(owner);
      expect(await logs.heldEpoch('t-1')).toBe(1);
      const taker = await logs.reopen('t-1', { ...options, epoch: 2 });
      expect(() => writer.append([userMessage('late')])).toThrow(
        expect.objectContaining({ code: 'thread_locked' }),
      );
      taker.append([userMessage('mine')]);
      await taker.close();
      await taker.close();
      expect(await logs.holder('t-1')).toBeUndefined();
      expect(await logs.heldEpoch('t-1')).toBe(0);
      await expect(logs.create(headerFor('t-1'), options)).rejects.toMatchObject({
        code: 'already_exists',
      });
      await expect(logs.reopen('none', options)).rejects.toMatchObject({
        code: 'thread_not_found',
      });
    });

    it('keeps writers away while it is held, and opens under the hold', async () => {
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const owner = owners.self();
      const options = { signer, verifier, durability: 'turn', owner, epoch: 1 } as const;
      await (await logs.create(headerFor('t-1'), options)).close();
      const hold = await logs.hold('t-1', owner, 1);
      await expect(logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
      const writer = await hold.open(options);
      writer.append([userMessage('under the hold')]);
      await writer.close();
      await (await logs.hold('t-1', owner, 1)).release();
      expect(await logs.verify('t-1', { verifier })).toMatchObject({ ok: true });
    });

    it('reads parts, follows new events, and names no log that is missing', async () => {
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const options = {
        signer,
        verifier,
        durability: 'turn',
        owner: owners.self(),
        epoch: 1,
      } as const;
      expect(await logs.size('t-1')).toBeUndefined();
      await expect(logs.read('t-1')).rejects.toMatchObject({ code: 'thread_not_found' });
      await expect(logs.verify('t-1', { verifier })).rejects.toMatchObject({
        code: 'thread_not_found',
      });
      const stop = new AbortController();
      const seen: number[] = [];
      const following = (async () => {
        for await (const { seq } of logs.follow('t-1', { since: 1, signal: stop.signal })) {
          seen.push(seq);
          if (seq === 5) stop.abort();
        }
      })();
      const writer = await logs.create(headerFor('t-1'), options);
      const [first] = writer.append([userMessage('one')]);
      writer.checkpoint();
      const end = writer.head.bytes;
      writer.append([userMessage('two')]);
      expect(writer.isSyncDue).toBe(false);
      await writer.close();
      await following;
      expect(seen).toEqual([2, 3, 4, 5]);
      const seqs: number[] = [];
      for await (const { seq } of logs.since('t-1', 3)) seqs.push(seq);
      expect(seqs).toEqual([4, 5]);
      expect((await logs.read('t-1', { end })).events).toHaveLength(3);
      expect((await logs.readEntries('t-1')).events.map(({ event_type }) => event_type)).toEqual([
        'message',
        'message',
      ]);
      const found = await logs.lookUp('t-1', first?.id ?? '');
      expect('entry' in found || found.opened.events.some(({ id }) => id === first?.id)).toBe(true);
      const bytes: Buffer[] = [];
      for await (const chunk of logs.bytes('t-1', { from: 1, end })) bytes.push(chunk);
      expect(Buffer.concat(bytes)).toHaveLength(end - 1);
      expect(await logs.size('t-1')).toBeGreaterThan(end);
      expect(logs.location('t-1')).toContain('t-1');
    });

    it('takes unsigned bytes off when it opens a log again, and records them', async () => {
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const gone = owners.ofRecord({ ...owners.columns(owners.self()), process_start: 'before' });
      const owner = gone ?? owners.self();
      const options = { signer, verifier, durability: 'turn', owner, epoch: 1 } as const;
      const crashed = await logs.create(headerFor('t-1'), options);
      crashed.append([delta('a piece that no signature covers')]);
      expect(crashed.isSigned).toBe(false);
      const again = await logs.reopen('t-1', { ...options, owner: owners.self() });
      const parts = await logs.quarantined('t-1');
      expect(parts).toMatchObject([{ lines: 1 }]);
      const file = parts[0]?.file ?? '';
      let text = '';
      for await (const chunk of logs.bytes('t-1', { file })) text += chunk.toString('utf8');
      expect(text).toContain('no signature covers');
      await again.close();
      const { events } = await logs.read('t-1');
      expect(events.map(({ event_type }) => event_type)).toContain('log_quarantined');
      expect(await logs.verify('t-1', { verifier })).toMatchObject({
        ok: true,
        unverified_bytes: 0,
      });
    });

    it('archives a log that can still be read and verified', async () => {
      const { logs, owners } = await open();
      const { signer, verifier } = testKey();
      const options = { signer, durability: 'turn', owner: owners.self(), epoch: 1 } as const;
      const writer = await logs.create(headerFor('t-1'), options);
      writer.append([userMessage('one')]);
      await writer.close();
      expect(await logs.isArchived('t-1')).toBe(false);
      await logs.archive('t-1');
      expect(await logs.isArchived('t-1')).toBe(true);
      expect(await logs.size('t-1')).toBeUndefined();
      expect(await logs.verify('t-1', { verifier })).toMatchObject({ ok: true });
      expect((await logs.read('t-1')).events).toHaveLength(3);
    });
  });

  describe(`${name}: owners`, () => {
    it('tell this process, processes that are gone, and those of other hosts apart', async () => {
      const { owners } = await open();
      const self = owners.self();
      const columns = owners.columns(self);
      expect(owners.state(self)).toBe('alive');
      expect(owners.ofRecord(columns)).toEqual(self);
      expect(owners.ofRecord({ pid: null, process_start: null, host: null })).toBeUndefined();
      const gone = owners.ofRecord({ ...columns, process_start: 'before' });
      expect(gone && owners.state(gone)).toBe('gone');
      const elsewhere = owners.ofRecord({ ...columns, host: 'another.host' });
      expect(elsewhere && owners.state(elsewhere)).toBe('unknown');
      expect(elsewhere && owners.pidOf(elsewhere)).toBeUndefined();
    });

    it('of another host keep a thread until they are silent', async () => {
      const { owners, registry } = await open();
      const columns = { ...owners.columns(owners.self()), host: 'another.host' };
      const owner = owners.ofRecord(columns) ?? owners.self();
      await registry.register(params('a-1'));
      expect(await registry.claim('a-1', owner, T0)).toMatchObject(columns);
      await expect(registry.claim('a-1', owners.self(), T1)).rejects.toMatchObject({
        code: 'thread_locked',
      });
      expect(await registry.claim('a-1', owners.self(), T1, T0)).toMatchObject({ epoch: 2 });
    });
  });

  describe(`${name}: deliveries, heads and index`, () => {
    it('delivers a message once, to the run that is open', async () => {
      const { registry, deliveries, owners } = await open();
      await registry.register(params('a-1'));
      const { epoch } = await registry.claim('a-1', owners.self(), T0);
      const message = {
        deliveryId: 'd-1',
        threadId: 'a-1',
        class: 'person',
        kind: 'steer',
        mode: 'auto',
        source: 'person',
        sourceKey: 'k',
        text: 'hello',
        requiresArtifact: false,
        now: T0,
      } as const;
      await deliveries.enqueue(message);
      await deliveries.enqueue({ ...message, deliveryId: 'd-2' });
      expect(await deliveries.list('a-1')).toHaveLength(1);
      expect(await deliveries.isAnyWaiting('a-1')).toBe(true);
      expect(await deliveries.isAnyWaiting('a-2')).toBe(false);
      const key = { threadId: 'a-1', epoch, runId: 'r-1' };
      const traits = {
        requires_approval: false,
        requires_network: false,
        requires_write_access: false,
      };
      await deliveries.openRun({ ...key, traits, carried: new Set(), from: [], now: T0 });
      const admit = { key, modes: ['auto'], newEntryId: () => 'e-1', now: T1 } as const;
      expect(await deliveries.admitPeople(admit)).toMatchObject([
        { delivery_id: 'd-1', entry_id: 'e-1' },
      ]);
      await deliveries.accept(key, ['e-1'], T1);
      expect(await deliveries.isAnyWaiting('a-1')).toBe(false);
      await deliveries.consume(key, { entryIds: ['e-1'], answerId: 'e-2' }, T1);
      const requested = new Set(['e-1']);
      await deliveries.endRun({ key, end: 'completed', requested, now: T1 });
      expect(await deliveries.list('a-1')).toMatchObject([{ delivery_id: 'd-1' }]);
      expect(await deliveries.activeTurn('a-1')).toBeUndefined();
      await registry.claim('a-1', owners.self(), T1, T0);
      await expect(
        deliveries.openRun({ ...key, traits, carried: new Set(), from: [], now: T1 }),
      ).rejects.toMatchObject({ code: 'thread_locked' });
    });

    it('keeps the newest head of a thread', async () => {
      const { heads } = await open();
      const head = {
        thread_id: 'a-1',
        status: 'completed',
        epoch: 1,
        updated_at: T0,
        bytes: 10,
        sha256: 'x',
        events: 2,
        knowledge_sha256: null,
      } as const;
      expect(await heads.find('a-1')).toBeUndefined();
      await heads.note(head);
      await heads.note({ ...head, bytes: 20 });
      expect(await heads.find('a-1')).toEqual({ ...head, bytes: 20 });
      await heads.accept({ ...head, bytes: 5 });
      expect(await heads.find('a-1')).toEqual({ ...head, bytes: 5 });
    });

    it('remembers the folders that were indexed', async () => {
      const { index } = await open();
      await index.updateFolders(
        new Map([
          ['/a', 1],
          ['/b', 2],
        ]),
        [],
      );
      await index.updateFolders(new Map([['/a', 3]]), ['/b']);
      expect(await index.folders()).toEqual(new Map([['/a', 3]]));
      await index.update([], []);
      expect(await index.fingerprints()).toEqual(new Map());
    });
  });
}
