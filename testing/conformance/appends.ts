import { expect, it } from 'vitest';
import type { Store } from '../../src/kernel/storage/store.ts';
import { T1 } from './fixtures.ts';

/** Entries of programs that wait for the owner of a log. A store without them passes. */
export function appendCases(open: () => Promise<Store>): void {
  it('keeps entries in the order of their arrival until they are in a log', async () => {
    const { appends } = await open();
    if (appends === undefined) return;
    const entry = (entryId: string, threadId: string) => ({ entryId, threadId, draft: '{"a":1}' });
    const entries = [entry('e-3', 'a-1'), entry('e-1', 'a-2'), entry('e-2', 'a-1')];
    for (const one of entries) await appends.add(one, T1);
    expect(await appends.list(['a-1', 'a-2'])).toEqual(entries);
    expect(await appends.list(['a-1'])).toEqual([entries[0], entries[2]]);
    expect(await appends.list([])).toEqual([]);
    await appends.remove(['e-3', 'unknown']);
    expect(await appends.list(['a-1'])).toEqual([entries[2]]);
  });
}
