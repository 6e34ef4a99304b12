import { afterEach, describe, expect, it } from 'vitest';
import type { Clock } from '../../src/kernel/core/clock.ts';
import type { IdSource } from '../../src/kernel/core/ids.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { appendCases } from './appends.ts';
import { approvalCases, requestedApproval, signedDecision } from './approvals.ts';
import { chainCases } from './chains.ts';
import { deliveryCases } from './deliveries.ts';
import {
  countingIds,
  fulfilled,
  headerFor,
  STOPPED,
  T1,
  threadParams,
  writerOptions,
} from './fixtures.ts';
import { launchCases } from './launches.ts';
import { ledgerCases } from './ledger.ts';
import { headCases, logCases, tornLogCases } from './logs.ts';
import { ownerCases } from './owners.ts';
import { registryCases } from './registry.ts';
import { searchIndexCases } from './search-index.ts';
import { steerCases } from './steering.ts';

/** Situations that not every store can be in. Cases that need an absent one are skipped. */
export interface StoreSituations {
  /** Opens the data of an open store once more, as another process does. */
  readonly openAgain?: (store: Store) => Store | Promise<Store>;
  /** Leaves `text` after the end of a thread's log, as a crash in the middle of a write does. */
  readonly tear?: (store: Store, threadId: string, text: string) => void | Promise<void>;
}

/**
 * Declares the tests of the port `Store`. `open` returns an empty store for each call; it may be the function that
 * `openRye({ store })` takes, if it does not use the path of the project. The suite closes what it opens.
 */
export function describeStore(
  name: string,
  open: (sources: { readonly clock: Clock; readonly ids: IdSource }) => Store | Promise<Store>,
  { openAgain, tear }: StoreSituations = {},
): void {
  const stores: Store[] = [];
  const opened = async (store: Store | Promise<Store>): Promise<Store> => {
    stores.push(await store);
    return await store;
  };
  const openEmpty = async (): Promise<Store> =>
    await opened(open({ clock: STOPPED, ids: countingIds() }));

  const openTwo = async (
    again: NonNullable<typeof openAgain>,
  ): Promise<readonly [Store, Store]> => {
    const store = await openEmpty();
    return [store, await opened(again(store))];
  };
  const parts: [part: string, declare: () => void][] = [
    ['registry', () => registryCases(openEmpty)],
    ['chains', () => chainCases(openEmpty)],
    ['queue of threads', () => launchCases(openEmpty)],
    ['entries of programs', () => appendCases(openEmpty)],
    ['heads', () => headCases(openEmpty)],
    ['ledger', () => ledgerCases(openEmpty)],
    ['approvals', () => approvalCases(openEmpty)],
    ['deliveries', () => deliveryCases(openEmpty)],
    ['steering', () => steerCases(openEmpty)],
    ['logs', () => logCases(openEmpty)],
    ['owners', () => ownerCases(openEmpty)],
    ['search index', () => searchIndexCases(openEmpty)],
  ];
  if (tear) parts.push(['torn logs', () => tornLogCases(openEmpty, tear)]);
  if (openAgain) parts.push(['two processes', () => sharedCases(() => openTwo(openAgain))]);

  describe.each(parts)(`the store contract: ${name}: %s`, (_part, declare) => {
    afterEach(() => {
      for (const store of stores.splice(0)) store.close();
    });
    declare();
  });
}

function sharedCases(open: () => Promise<readonly [Store, Store]>): void {
  /** Asks both stores at once, several times. */
  const race = async <T>(
    stores: readonly Store[],
    ask: (store: Store, index: number) => Promise<T>,
  ): Promise<readonly PromiseSettledResult<T>[]> =>
    await Promise.allSettled([...stores, ...stores].map((store, index) => ask(store, index)));

  it('see the same data, and decide everything once', async () => {
    const stores = await open();
    const [one, two] = stores;
    const registered = await race(stores, ({ registry }) => registry.register(threadParams('a-1')));
    expect(fulfilled(registered, 'thread_id_taken')).toBe(1);
    const claimed = await race(stores, ({ registry, owners }) =>
      registry.claim('a-1', owners.self(), T1),
    );
    expect(fulfilled(claimed, 'thread_locked')).toBe(1);
    expect(await two.registry.get('a-1')).toEqual(await one.registry.get('a-1'));
    await one.ledger.register('root', 100);
    const reserved = await race(stores, ({ ledger }, index) =>
      ledger.reserve(`c${index}`, 40, 'root'),
    );
    expect(fulfilled(reserved, 'budget_insufficient')).toBe(2);
    expect(await two.ledger.remaining('root')).toBe(20);
  });

  it('record the decisions of several people about one request, and close it once', async () => {
    const stores = await open();
    const [one, two] = stores;
    await race(stores, ({ approvals }) => approvals.add([requestedApproval('apr-1')]));
    await race(stores, ({ approvals }, index) =>
      approvals.decide('apr-1', signedDecision('apr-1', `signature ${index}`), T1),
    );
    const found = await two.approvals.get('apr-1');
    expect(found?.decisions.map(({ signed }) => signed.signature).toSorted()).toEqual(
      [0, 1, 2, 3].map((index) => `signature ${index}`),
    );
    const closed = await race(stores, ({ approvals }) => approvals.close('apr-1', 'approved', T1));
    const done = closed.filter((outcome) => outcome.status === 'fulfilled' && outcome.value);
    expect(done).toHaveLength(1);
    expect(await one.approvals.list({ state: 'pending' })).toEqual([]);
    expect(await one.approvals.get('apr-1')).toEqual(await two.approvals.get('apr-1'));
  });

  it('write a log one after the other, and the later epoch ends the earlier one', async () => {
    const [one, two] = await open();
    const options = writerOptions(one);
    const writer = await one.logs.create(headerFor('t-1'), options);
    await expect(two.logs.reopen('t-1', options)).rejects.toMatchObject({ code: 'thread_locked' });
    expect(await two.logs.holder('t-1')).toEqual(options.owner);
    const taker = await two.logs.reopen('t-1', { ...options, epoch: 2 });
    const late = async (): Promise<void> => {
      writer.checkpoint();
      writer.append([{ event_type: 'token_delta', payload: { text: 'late' } }]);
      await writer.sync();
    };
    await expect(late()).rejects.toMatchObject({ code: 'thread_locked' });
    await taker.close();
    expect(await one.logs.verify('t-1', options)).toMatchObject({ ok: true, unverified_bytes: 0 });
  });
}
