import { copyFileSync, readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { reply, type WireTurn } from '../helpers/wire-server.ts';

const MODEL = { model: 'claude-haiku-5-5', provider: 'anthropic' } as const;

let lab: Lab;
let store: Store;
/** Called with each request; the model replies with what it returns, else `Done.`. */
let onAsked: () => WireTurn | undefined | Promise<WireTurn | undefined>;

beforeEach(async () => {
  lab = await openLab();
  onAsked = () => undefined;
  await lab.model(async () => (await onAsked()) ?? reply('Done.'));
  lab.signed('directives/work.md', directive('work', { limits: 'turns="9" spend="1.00"' }));
  store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
});

afterEach(async () => {
  store.close();
  await lab.remove();
});

/** A thread with two runs; the second has other limits. */
async function twoRuns() {
  const { thread_id: id } = await lab.run('work', MODEL);
  await lab
    .rye()
    .recovery.resume({ threadId: id, message: 'again', limits: { turns: 20 }, raiseLimits: true });
  const folder = path.join(lab.project, '.ai/state/threads', id);
  const plans = () => readdirSync(folder).filter((name) => /^plan(-.*)?\.json$/.test(name));
  return { id, folder, plans };
}

describe('a thread of two runs', () => {
  it('verifies, also with the plan of a run that never began', async () => {
    const { id, folder, plans } = await twoRuns();
    expect(plans()).toHaveLength(2);
    copyFileSync(path.join(folder, 'plan.json'), path.join(folder, 'plan-0123456789abcdef.json'));
    const verified = await lab.rye().threads.verify(id);
    expect(verified.ok).toBe(true);
    expect(JSON.stringify(verified)).not.toContain('does not belong');
  });

  it('is archived by the end of the last run, and continued by a successor', async () => {
    const { id, folder, plans } = await twoRuns();
    const rye = lab.rye();
    const before = await lab.events(id);
    const first = await store.registry.endOf(id, 1);
    const last = await store.registry.get(id);
    expect(last?.completed_at).not.toBe(first?.completed_at);
    const end = Date.parse(last?.completed_at ?? '');
    const later = lab.rye({ clock: { ...systemClock, now: () => end + 1000 } }).recovery;
    // the first run is older than that, the second is not
    expect((await later.collect({ olderThanMs: 1000 })).archived).toEqual([]);
    expect((await later.collect({ olderThanMs: 999 })).archived).toMatchObject([
      { thread_id: id, completed_at: last?.completed_at },
    ]);
    expect(plans()).toHaveLength(2);
    const archive = path.join(folder, 'transcript.jsonl.gz');
    const bytes = readFileSync(archive);
    expect(await lab.events(id)).toEqual(before);
    expect((await rye.threads.verify(id)).ok).toBe(true);
    expect((await rye.threads.show(id)).document?.runs).toHaveLength(2);
    const next = await rye.recovery.resume({ threadId: id, message: 'once more' });
    expect(next).toMatchObject({ success: true });
    expect(next.thread_id).not.toBe(id);
    expect(readFileSync(archive).equals(bytes)).toBe(true);
    expect((await rye.threads.verify(id)).ok).toBe(true);
    expect(await store.registry.get(id)).toMatchObject({ continuation_thread_id: next.thread_id });
  });

  it('ends the second run when that is canceled, and not for a request of the first', async () => {
    const { thread_id: id } = await lab.run('work', MODEL);
    await store.registry.requestCancel(id, 'too late', '2027-01-01T00:00:00.000Z');
    const rye = lab.rye();
    expect(await rye.recovery.resume({ threadId: id, message: 'again' })).toMatchObject({
      status: 'completed',
    });
    onAsked = async () => {
      onAsked = () => undefined;
      await rye.children.cancel(id, { reason: 'enough' });
      return 'hang' as const;
    };
    expect(await rye.recovery.resume({ threadId: id, message: 'and again' })).toMatchObject({
      thread_id: id,
      status: 'cancelled',
    });
    expect(await store.registry.endOf(id, 2)).toMatchObject({ status: 'completed' });
  });

  it('is resumed by one of two at once after an error', async () => {
    onAsked = () => ({ status: 400, error: { type: 'invalid_request_error', message: 'no' } });
    const failed = await lab.run('work', MODEL);
    onAsked = () => undefined;
    expect(failed.status).toBe('error');
    const outcomes = await Promise.allSettled(
      ['x', 'y'].map(
        async (message) => await lab.rye().recovery.resume({ threadId: failed.thread_id, message }),
      ),
    );
    expect(outcomes.filter(({ status }) => status === 'rejected')).toMatchObject([
      { reason: { code: 'thread_locked', message: expect.stringContaining(failed.thread_id) } },
    ]);
    expect(await store.registry.runOf(failed.thread_id)).toBe(2);
  });
});
