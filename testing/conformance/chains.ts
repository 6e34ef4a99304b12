import { expect, it } from 'vitest';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { type OpenStore, T0, T1, threadParams } from './fixtures.ts';

/** Chains of continuations, and requests to cancel, which follow them. */
export function chainCases(open: OpenStore): void {
  it('keeps the first reason of a cancellation', async () => {
    const { registry } = await open();
    await registry.register(threadParams('a-1'));
    expect((await registry.get('a-1'))?.cancel_requested).toBeNull();
    await registry.requestCancel('a-1', 'by hand', T1);
    await registry.requestCancel('a-1', 'again', T1);
    expect((await registry.get('a-1'))?.cancel_requested).toBe('by hand');
    await expect(registry.requestCancel('b', 'x', T1)).rejects.toMatchObject({
      code: 'thread_not_found',
    });
  });

  it('carries a cancellation over to what continues a running thread, not to what resumes one', async () => {
    const { registry, owners } = await open();
    for (const id of ['a-1', 'a-2', 'a-3']) await registry.register(threadParams(id));
    await registry.claim('a-1', owners.self(), T0);
    await registry.requestCancel('a-1', 'by hand', T1);
    await registry.linkContinuation('a-1', 'a-2', T1, 1);
    expect((await registry.get('a-2'))?.cancel_requested).toBe('by hand');
    await registry.register(threadParams('b-1'));
    await registry.claim('b-1', owners.self(), T0);
    await registry.register(threadParams('b-2'));
    await registry.linkContinuation('b-1', 'b-2', T1, 1);
    await registry.requestCancel('b-1', 'asked before it continued', T1);
    expect((await registry.get('b-2'))?.cancel_requested).toBe('asked before it continued');
    // a request to the continuation stays
    for (const id of ['c-1', 'c-2']) await registry.register(threadParams(id));
    await registry.claim('c-1', owners.self(), T0);
    await registry.requestCancel('c-2', 'at once', T1);
    await registry.linkContinuation('c-1', 'c-2', T1, 1);
    expect((await registry.get('c-2'))?.cancel_requested).toBe('at once');
    await registry.claim('a-2', owners.self(), T1);
    await registry.finish('a-2', {
      status: 'cancelled',
      now: T1,
      cost: NO_COST,
      result: '',
      epoch: 1,
    });
    await registry.linkContinuation('a-2', 'a-3', T1);
    expect((await registry.get('a-3'))?.cancel_requested).toBeNull();
  });

  it('links continuations in both directions and walks the chain from any member', async () => {
    const { registry, owners } = await open();
    await registry.register(threadParams('a-1'));
    await registry.claim('a-1', owners.self(), T0);
    await expect(registry.linkContinuation('a-1', 'a-2', T1)).rejects.toMatchObject({
      code: 'thread_not_found',
    });
    expect((await registry.get('a-1'))?.status).toBe('running');
    await registry.register(threadParams('a-2', { continuationOf: 'a-1' }));
    expect(await registry.list({ continuationOf: 'a-1' })).toMatchObject([{ thread_id: 'a-2' }]);
    // an owner that the thread was taken from links nothing
    await expect(registry.linkContinuation('a-1', 'a-2', T1, 0)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    await registry.linkContinuation('a-1', 'a-2', T1, 1);
    await registry.register(threadParams('a-3'));
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
}
