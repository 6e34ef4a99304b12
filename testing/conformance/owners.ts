import { expect, it } from 'vitest';
import { type OpenStore, T0, T1, threadParams } from './fixtures.ts';

/** Owners: this process, processes that have ended, other hosts. */
export function ownerCases(open: OpenStore): void {
  it('tell apart this process, processes that are gone, and processes of other hosts', async () => {
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
    await registry.register(threadParams('a-1'));
    expect(await registry.claim('a-1', owner, T0)).toMatchObject(columns);
    await expect(registry.claim('a-1', owners.self(), T1)).rejects.toMatchObject({
      code: 'thread_locked',
    });
    expect(await registry.claim('a-1', owners.self(), T1, T0)).toMatchObject({ epoch: 2 });
  });

  it('have names, pids on this host, and the same identity by every way', async () => {
    const { owners } = await open();
    const self = owners.self();
    expect(owners.self()).toEqual(self);
    expect(owners.ofProcess(process.pid)).toEqual(self);
    expect(owners.ofProcess(2 ** 30)).toBeUndefined();
    expect(owners.pidOf(self)).toBe(process.pid);
    expect(owners.describe(self)).not.toBe('');
    const elsewhere = owners.ofRecord({ ...owners.columns(self), host: 'another.host' });
    expect(elsewhere && owners.columns(elsewhere)).toMatchObject({ host: 'another.host' });
    expect(elsewhere && owners.describe(elsewhere)).toContain('another.host');
    expect(elsewhere).not.toEqual(self);
  });
}
