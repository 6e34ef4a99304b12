import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import type { NewSchedule } from '../../src/kernel/app/api/schedules.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { directive } from '../threads/lab.ts';
import { loopLab } from './loop-lab.ts';

// the build may take most of the time of a test on a busy machine
beforeAll(async () => {
  await cliPackage();
}, 300_000);

const FILE = '.ai/config/schedules.yaml';

describe('rye.schedules', () => {
  it('adds, pauses, resumes and removes in a signed and pinned file, and keeps its comments', async () => {
    const here = await loopLab('2027-03-28T00:15:00Z');
    const file = path.join(here.project, FILE);
    writeFileSync(file, '# ours\nschedules:\n');
    await here.rye.items.sign('config', 'schedules');
    await here.add({ cron: '30 2 * * *', timezone: 'Europe/Berlin', missed: 'once' });
    await here.add({ name: 'second', cron: '0 0 1 1 *' });
    const [first] = await here.desk.schedules.list();
    expect(first).toEqual({
      name: 'nightly',
      cron: '30 2 * * *',
      timezone: 'Europe/Berlin',
      missed: 'once',
      overlap: false,
      paused: false,
      directive: 'team/job',
      inputs: { name: 'nightly' },
      // the clocks go from 02:00 to 03:00
      next_at: '2027-03-28T01:00:00.000Z',
      next_local: '2027-03-28 03:00',
      last: null,
    });
    expect(await here.desk.schedules.pause('nightly')).toMatchObject({
      paused: true,
      next_at: null,
      next_local: null,
    });
    const loop = await here.serve();
    await here.clock.reach('2027-03-28T01:10:00Z');
    expect(loop.events).toEqual([{ event: 'serving', schedules: 1 }]);
    // a paused time is not a missed one
    await here.desk.schedules.resume('nightly');
    await here.clock.reach('2027-03-28T01:20:00Z');
    expect(loop.events.slice(1)).toEqual([{ event: 'serving', schedules: 2 }]);
    await loop.stop();
    expect(await here.desk.schedules.remove('nightly')).toMatchObject({ name: 'nightly' });
    expect((await here.desk.schedules.list()).map(({ name }) => name)).toEqual(['second']);
    const text = readFileSync(file, 'utf8');
    expect(text).toContain('# ours');
    expect(await here.rye.items.verify('config', 'schedules')).toMatchObject([{ ok: true }]);
    expect(await here.rye.lock.status()).toMatchObject({ changes: [], refusal: null });
    for (const change of ['pause', 'resume', 'remove', 'run'] as const)
      await expect(here.desk.schedules[change]('nope')).rejects.toMatchObject({
        code: 'item_not_found',
      });
  });

  it('fires a schedule now as a separate thread, apart from its times', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    here.openGate('all');
    await here.add({});
    const launched = await here.desk.schedules.run('nightly');
    expect(launched).toMatchObject({ thread_id: 'schedule/nightly/asked-20270301T023000000Z' });
    expect(await here.desk.schedules.list()).toMatchObject([
      { last: { at: null, thread_id: launched.thread_id, error: null } },
    ]);
    await here.until('its end', async () => {
      const { status } = await here.record(launched.thread_id);
      return status === 'completed';
    });
    const loop = await here.serve();
    await here.clock.reach('2027-03-01T03:00:00Z');
    expect(loop.told()).toEqual(['fired 03:00']);
    await loop.stop();
  });

  it.each([
    [{ name: 'Nightly!' }, 'invalid_input', 'schedule name'],
    [{ cron: '0 25 * * *' }, 'invalid_input', '25'],
    [{ timezone: 'Europe/Atlantis' }, 'invalid_input', 'Europe/Atlantis'],
    [{ run: { directiveId: 'team/nope' } }, 'item_not_found', 'team/nope'],
    [{ run: { directiveId: 'team/job' } }, 'invalid_input', 'name'],
    [{ run: { directiveId: 'team/draft' } }, 'unsigned', 'team/draft'],
    [
      { run: { directiveId: 'team/secret', inputs: { token: 'hush' } } },
      'usage',
      'the input token is secret',
    ],
    [{ run: { directiveId: 'team/mark', limits: { spend: 5 } } }, 'raise_limits_required', 'spend'],
  ] as const)('refuses %j at once with %s', async (part, code, text) => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    const steps =
      '<step name="mark"><execute item_type="tool" item_id="team/mark"></execute></step>';
    const secret = '<input name="token" type="string" required="true" secret="true">Key.</input>';
    here.write(
      '.ai/directives/team/secret.md',
      directive('team/secret', { tools: ['team/mark'], steps, inputs: secret }),
    );
    await here.sign();
    here.write('.ai/directives/team/draft.md', directive('team/draft', { steps }));
    const schedule = { name: 'nightly', cron: '0 * * * *', run: { directiveId: 'team/mark' } };
    const given: NewSchedule = { ...schedule, ...part };
    const refusal = { code, message: expect.stringContaining(text) };
    await expect(here.desk.schedules.add(given)).rejects.toMatchObject(refusal);
    await expect(here.desk.schedules.timer(given, 'cron')).rejects.toMatchObject(refusal);
    expect(existsSync(path.join(here.project, FILE))).toBe(false);
  });

  it('refuses a second schedule of a name, a thread, and items that only a developer admits', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    await here.add({});
    await expect(here.add({})).rejects.toMatchObject({ code: 'already_exists' });
    const inside = here.open({ env: { HOME: here.home, RYE_THREAD_ID: 'some-thread' } });
    const { signal } = new AbortController();
    for (const act of [
      inside.schedules.run('nightly'),
      inside.schedules.remove('nightly'),
      inside.schedules.pause('nightly'),
      inside.schedules.serve({ signal }),
      inside.schedules.add({ name: 'x', cron: '* * * * *', run: { directiveId: 'team/mark' } }),
    ])
      await expect(act).rejects.toMatchObject({ code: 'approval_refused' });
    const steps =
      '<step name="mark"><execute item_type="tool" item_id="team/mark"></execute></step>';
    here.write(
      '.ai/directives/team/draft.md',
      directive('team/draft', { tools: ['team/mark'], steps }),
    );
    const developer = here.open({ env: { HOME: here.home, RYE_DEV_MODE: '1' } });
    await expect(
      developer.schedules.add({ name: 'y', cron: '* * * * *', run: { directiveId: 'team/draft' } }),
    ).rejects.toMatchObject({ code: 'unsigned' });
  });

  it('prints what timers of the system need, and writes nothing', async () => {
    const here = await loopLab('2027-03-01T02:30:00Z');
    const schedule = { name: 'nightly', cron: '0 3 * * *', run: { directiveId: 'team/mark' } };
    expect(await here.desk.schedules.timer(schedule, 'cron')).toContain(
      `\n0 3 * * * cd ${here.project} && mkdir -p .ai/state && flock -n -o .ai/state/schedule-nightly.lock rye run team/mark`,
    );
    expect(await here.desk.schedules.timer(schedule, 'systemd')).toContain('[Timer]');
    expect(existsSync(path.join(here.project, '.ai/state/schedules'))).toBe(false);
    expect(await here.desk.schedules.list()).toEqual([]);
  });
});

it('rye validate finds the mistakes of a schedule that a person wrote', async () => {
  const here = await loopLab('2027-03-01T02:30:00Z');
  for (const [text, message] of [
    ['schedules: { a: { cron: "0 25 * * *", timezone: UTC, directive: x } }', '25'],
    ['schedules: { a: { cron: "0 3 * * *", timezone: Mars, directive: x } }', 'Mars'],
    ['schedules: { a: { cron: "0 3 * * *", timezone: UTC } }', 'directive is missing'],
    ['schedules: { a: { corn: "0 3 * * *" } }', 'unknown key corn'],
    ['schedules: { A b: { cron: "0 3 * * *", timezone: UTC, directive: x } }', 'A b'],
  ] as const) {
    here.write(FILE, `${text}\n`);
    const [outcome] = await here.rye.items.sign('config', 'schedules');
    expect(outcome?.status, text).toBe('failed');
    expect(JSON.stringify(outcome?.problems)).toContain(message);
  }
});
