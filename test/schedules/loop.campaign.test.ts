import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { beforeAll, describe, expect, it } from 'vitest';
import type { ThreadStatus } from '../../src/kernel/core/thread.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { type LoopLab, loopLab } from './loop-lab.ts';

// the build may take most of the time of a test on a busy machine
beforeAll(async () => {
  await cliPackage();
}, 300_000);

const FILE = '.ai/config/schedules.yaml';

const NOW = '2027-03-01T02:00:00.000Z';

/** Puts a thread into the registry that runs in this process, or is in another status. */
async function register(
  { store }: LoopLab,
  threadId: string,
  { status, continuationOf }: { readonly status?: ThreadStatus; readonly continuationOf?: string },
): Promise<void> {
  await store.registry.register({
    threadId,
    directive: 'team/job',
    parentId: null,
    model: 'm',
    now: NOW,
    owner: store.owners.self(),
    isClaimed: true,
    ...(continuationOf === undefined ? {} : { continuationOf }),
  });
  if (status === undefined) return;
  const { epoch } = (await store.registry.get(threadId)) ?? { epoch: 0 };
  await store.registry.finish(threadId, { status, now: NOW, cost: NO_COST, result: '', epoch });
}

/** Waits until a thread of a schedule has completed. */
async function completed(here: LoopLab, threadId: string): Promise<void> {
  await here.until(`the end of ${threadId}`, async () => {
    const record = await here.store.registry.get(threadId);
    return record?.status === 'completed';
  });
}

describe('a loop', () => {
  it('fires at its time, and its threads outlive it', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ cron: '0 3 * * *' });
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T02:59:59Z');
    expect(await here.threads()).toEqual([]);
    await here.clock.reach('2027-03-01T03:00:00Z');
    const id = 'schedule/nightly/20270301T030000Z';
    expect(loop.events).toEqual([
      { event: 'serving', schedules: 1 },
      {
        event: 'fired',
        schedule: 'nightly',
        at: '2027-03-01T03:00:00.000Z',
        thread_id: id,
        status: 'running',
      },
    ]);
    const { pid } = await here.record(id);
    expect(pid).not.toBe(process.pid);
    await loop.stop();
    expect(await here.desk.schedules.list()).toMatchObject([
      {
        next_at: '2027-03-02T03:00:00.000Z',
        last: { at: '2027-03-01T03:00:00.000Z', thread_id: id, status: expect.any(String) },
      },
    ]);
    here.openGate('nightly');
    await completed(here, id);
    expect(await here.rye.threads.verify(id)).toMatchObject({ ok: true });
    expect(await here.desk.schedules.list()).toMatchObject([{ last: { status: 'completed' } }]);
  });

  it.each([
    ['skip', ['missed 07:00'], []],
    ['once', ['missed 06:00', 'fired 07:00'], ['070000']],
    ['all', ['fired 04:00', 'waiting 05:00', 'fired 05:00'], ['040000', '050000']],
  ] as const)('makes up missed times by the policy %s', async (missed, told, fired) => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ missed });
    const first = await here.serve();
    here.openGate('nightly');
    await here.clock.reach('2027-03-01T03:00:00Z');
    await first.stop();
    await completed(here, 'schedule/nightly/20270301T030000Z');
    rmSync(path.join(here.project, 'gate-nightly'));
    here.clock.jump('2027-03-01T07:30:00Z');
    const second = await here.serve();
    if (missed === 'all') {
      // each waits for the one before
      here.openGate('nightly');
      await completed(here, 'schedule/nightly/20270301T040000Z');
      rmSync(path.join(here.project, 'gate-nightly'));
      await here.clock.reach('2027-03-01T07:30:01Z');
    }
    expect(second.told().slice(0, told.length)).toEqual(told);
    const ids = ['030000', ...fired].map((time) => `schedule/nightly/20270301T${time}Z`);
    expect(await here.threads()).toEqual(ids);
    here.openGate('all');
    await second.stop();
  });

  it('makes up a thousand times at most, and reports that it dropped more', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ cron: '* * * * *', missed: 'all' });
    here.clock.jump('2027-03-02T02:30:00Z');
    const loop = await here.serve();
    await here.clock.reach('2027-03-02T02:30:05Z');
    // 1,000 minutes up to 02:30 begin at 09:51 of the day before
    expect(loop.told()).toEqual(['missed all', 'fired 09:51', 'waiting 09:52']);
    here.openGate('all');
    await loop.stop();
  });

  it('skips a time while the last thread runs, and fires with overlap', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({});
    await here.add({ name: 'busy', overlap: true });
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    await here.clock.reach('2027-03-01T04:00:00Z');
    const of = (name: string) =>
      loop.events.flatMap((event) =>
        'schedule' in event && event.schedule === name ? [event.event] : [],
      );
    expect(of('nightly')).toEqual(['fired', 'skipped']);
    expect(of('busy')).toEqual(['fired', 'fired']);
    expect(loop.events.find(({ event }) => event === 'skipped')).toMatchObject({
      at: '2027-03-01T04:00:00.000Z',
      thread_id: 'schedule/nightly/20270301T030000Z',
    });
    here.openGate('all');
    await completed(here, 'schedule/nightly/20270301T030000Z');
    await here.clock.reach('2027-03-01T05:00:00Z');
    expect(of('nightly')).toEqual(['fired', 'skipped', 'fired']);
    await loop.stop();
  });

  it('sees a thread that still runs after a newer one that a person fired has ended', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({});
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    const first = 'schedule/nightly/20270301T030000Z';
    // a person's firing, begun later and ended
    const asked = 'schedule/nightly/asked-1';
    await register(here, asked, { status: 'completed' });
    writeFileSync(
      path.join(here.project, '.ai/state/schedules/nightly/asked.json'),
      JSON.stringify({
        format: 1,
        last: { at: null, fired_at: '2027-03-01T03:30:00.000Z', thread_id: asked, error: null },
      }),
    );
    await here.clock.reach('2027-03-01T04:00:00Z');
    await here.clock.reach('2027-03-01T05:00:00Z');
    expect(loop.told()).toEqual(['fired 03:00', 'skipped 04:00', 'skipped 05:00']);
    here.openGate('all');
    await completed(here, first);
    await loop.stop();
  });

  it.each(['suspended', 'resumed', 'handed off'])(
    'skips a time beside an older thread that is %s',
    async (state) => {
      const here = await loopLab('2027-03-01T02:30:00Z');
      await here.add({ run: { directiveId: 'team/mark' } });
      const old = 'schedule/nightly/20270101T030000Z';
      await register(here, old, { status: state === 'handed off' ? 'completed' : 'suspended' });
      let open = old;
      if (state === 'handed off') {
        open = 'successor';
        await register(here, open, { continuationOf: old });
        await here.store.registry.linkContinuation(old, open, NOW);
      } else if (state === 'resumed') {
        await here.store.registry.claim(old, here.store.owners.self(), NOW);
      }
      const loop = await here.serve();
      await here.clock.reach('2027-03-01T03:00:00Z');
      expect(loop.events.at(-1)).toMatchObject({
        event: 'skipped',
        thread_id: open,
        status: state === 'suspended' ? 'suspended' : 'running',
      });
      expect(here.marks()).toBe(0);
      await loop.stop();
    },
  );

  it('fires again after its clock was ahead, also at a time that has a thread from then', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ run: { directiveId: 'team/mark' } });
    await register(here, 'schedule/nightly/20270301T030000Z', { status: 'completed' });
    const folder = path.join(here.project, '.ai/state/schedules/nightly');
    mkdirSync(folder, { recursive: true });
    writeFileSync(
      path.join(folder, 'loop.json'),
      JSON.stringify({ format: 1, handled_until: '2028-01-01T00:00:00.000Z', last: null }),
    );
    expect(await here.desk.schedules.list()).toMatchObject([
      { next_at: '2027-03-01T03:00:00.000Z' },
    ]);
    const loop = await here.serve();
    expect(here.notices.join()).toContain('The clock was ahead');
    await here.clock.reach('2027-03-01T03:00:00Z');
    const again = 'schedule/nightly/20270301T030000Z-again';
    expect(loop.events.at(-1)).toMatchObject({ event: 'fired', thread_id: again });
    await completed(here, again);
    await here.clock.reach('2027-03-01T03:01:00Z');
    await here.clock.reach('2027-03-01T04:00:00Z');
    expect(loop.told()).toEqual(['fired 03:00', 'fired 04:00']);
    await loop.stop();
  });

  it('fires when its clock goes back while it serves, and for a schedule added in that future', async () => {
    const here = await loopLab('2028-03-01T02:30:00Z');
    await here.add({ overlap: true, run: { directiveId: 'team/mark' } });
    const loop = await here.serve();
    here.clock.jump('2027-03-01T02:59:00Z');
    await here.clock.reach('2027-03-01T03:00:00Z');
    await here.clock.reach('2027-03-01T04:00:00Z');
    expect(loop.told()).toEqual(['fired 03:00', 'fired 04:00']);
    await loop.stop();
  });

  it('fires nothing while the file is changed, unsigned or signed by a stranger', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    here.openGate('all');
    await here.add({});
    const file = path.join(here.project, FILE);
    const signed = readFileSync(file, 'utf8');
    const loop = await here.serve();
    for (const [text, code] of [
      [signed.replace('0 * * * *', '* * * * *'), 'content_modified'],
      [signed.slice(signed.indexOf('\n') + 1), 'unsigned'],
      [signed.replace(/:[0-9a-f]{16}\n/, ':0123456789abcdef\n'), 'key_untrusted'],
    ] as const) {
      writeFileSync(file, text);
      const hour = here.clock.now() + 3_600_000;
      await here.clock.reach(new Date(hour).toISOString());
      expect(loop.told().at(-1)).toBe(`refused ${code}`);
      await expect(here.desk.schedules.list()).rejects.toMatchObject({ code });
      await expect(here.desk.schedules.run('nightly')).rejects.toMatchObject({ code });
      await expect(here.desk.schedules.pause('nightly')).rejects.toMatchObject({ code });
    }
    // each is told once, however often the loop looks
    expect(loop.told()).toHaveLength(3);
    expect(await here.threads()).toEqual([]);
    writeFileSync(file, signed);
    await here.clock.reach('2027-03-01T06:00:00Z');
    expect(loop.told().slice(3)).toEqual(['missed 05:00', 'fired 06:00']);
    await loop.stop();
  });

  it('tells of a directive that may not run, and continues', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    here.openGate('all');
    await here.add({});
    const file = path.join(here.project, '.ai/directives/team/job.md');
    const signed = readFileSync(file, 'utf8');
    writeFileSync(file, `${signed}More.\n`);
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    expect(loop.events.at(-1)).toMatchObject({
      event: 'failed',
      schedule: 'nightly',
      error: { code: 'content_modified' },
    });
    expect(await here.desk.schedules.list()).toMatchObject([
      { last: { thread_id: null, status: null, error: { code: 'content_modified' } } },
    ]);
    writeFileSync(file, signed);
    await here.clock.reach('2027-03-01T04:00:00Z');
    expect(loop.told()).toEqual(['failed 03:00', 'fired 04:00']);
    await loop.stop();
  });

  it('is the only one of its project, and ends when it has lost its place', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({});
    const loop = await here.serve();
    const signal = new AbortController().signal;
    await expect(here.open().schedules.serve({ signal })).rejects.toMatchObject({
      code: 'schedules_locked',
      message: expect.stringContaining(`process ${process.pid} on `),
    });
    rmSync(path.join(here.project, '.ai/state/schedules/.serve/lease.json'));
    void here.clock.reach('2027-03-01T03:00:00Z');
    await expect(loop.ended).rejects.toMatchObject({ code: 'schedules_locked' });
    expect(await here.threads()).toEqual([]);
  });

  it('leaves a time to another loop that is faster', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    here.openGate('all');
    await here.add({});
    let isBlind = true;
    const blind = here.open({
      clock: here.clock,
      store: ({ projectPath, clock, ids }): Store => {
        const store = openStore({ projectPath, clock, ids });
        const { registry } = store;
        const get: typeof registry.get = async (threadId) => {
          const found = await registry.get(threadId);
          if (!isBlind || found === undefined) return found;
          isBlind = false;
          return undefined;
        };
        return {
          ...store,
          registry: new Proxy(registry, {
            get: (target, name) => {
              if (name === 'get') return get;
              const member: unknown = Reflect.get(target, name);
              return typeof member === 'function' ? member.bind(target) : member;
            },
          }),
          close: (options) => store.close(options),
        };
      },
    });
    const first = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    await first.stop();
    await completed(here, 'schedule/nightly/20270301T030000Z');
    rmSync(path.join(here.project, '.ai/state/schedules/nightly'), { recursive: true });
    const second = await here.serve(blind);
    expect(isBlind).toBe(false);
    expect(second.told()).toEqual([]);
    expect(await here.threads()).toEqual(['schedule/nightly/20270301T030000Z']);
    await second.stop();
  });

  it('fires no time again after its state is lost or damaged', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({ missed: 'all', run: { directiveId: 'team/mark' } });
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    await loop.stop();
    await completed(here, 'schedule/nightly/20270301T030000Z');
    const state = path.join(here.project, '.ai/state/schedules/nightly/loop.json');
    rmSync(state);
    const second = await here.serve();
    expect(second.told()).toEqual([]);
    await second.stop();
    expect(existsSync(state)).toBe(true);
    writeFileSync(state, '{');
    here.clock.jump('2027-03-01T05:30:00Z');
    const third = await here.serve();
    await third.stop();
    expect(third.told()).toEqual([]);
    expect(here.marks()).toBe(1);
    expect(await here.threads()).toHaveLength(1);
  });
});
