import { afterEach, describe, expect, it, onTestFinished } from 'vitest';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { text, toolUse, type WireTurn } from '../helpers/wire-server.ts';
import { lab as openThreadLab } from '../threads/lab.ts';

const DAY = 86_400_000;
const DONE: WireTurn = { steps: [text('done')] };
const realNow = Date.now;

/** Offsets the wall clock of this process; time passes from there. */
function jump(ms: number): void {
  Date.now = () => realNow() + ms;
}

afterEach(() => {
  Date.now = realNow;
});

async function lab(): Promise<Lab> {
  const made = await openLab();
  onTestFinished(() => made.remove());
  return made;
}

/** A thread of three turns; the clock jumps while the model thinks in the second, and again in the third. */
async function runThrough(here: Lab, jumps: readonly number[]): Promise<ThreadResult> {
  let asked = 0;
  await here.model(() => {
    const to = jumps[asked - 1];
    asked += 1;
    if (to !== undefined) jump(to);
    return asked > 3
      ? DONE
      : { steps: [toolUse('rye_file_system_ls', { path: '.' }, `c${asked}`)] };
  });
  here.signed(
    'directives/job.md',
    directive('job', {
      limits: 'turns="9" spend="0.5" duration_seconds="600"',
      permissions: '<execute><tool>rye/file-system/ls</tool></execute>',
    }),
  );
  return await here.run('job', { threadId: 'one' });
}

describe('a clock that jumps while a thread runs', () => {
  it.each([
    { name: 'a day on', jumps: [DAY] },
    { name: 'a day back', jumps: [-DAY] },
    { name: 'to 1971 and then to 2100', jumps: [-50 * 365 * DAY, 75 * 365 * DAY] },
  ])(
    // Requirement: clock-jumps-harmless
    '$name: no limit is reached, no time is invented, and the record verifies',
    async ({ jumps }) => {
      const here = await lab();
      const result = await runThrough(here, jumps);
      expect(result).toMatchObject({ success: true, status: 'completed' });
      expect(result.cost.elapsed_seconds).toBeGreaterThanOrEqual(0);
      expect(result.cost.elapsed_seconds).toBeLessThan(600);
      const events = await here.events('one');
      expect(events.map(({ seq }) => seq)).toEqual(events.map((_event, index) => index + 1));
      const durations = events.flatMap(({ event_type: type, payload }) =>
        type === 'tool_settled' ? [(payload as { duration_ms: number }).duration_ms] : [],
      );
      expect(durations.every((ms) => ms >= 0 && ms < 60_000)).toBe(true);
      expect((await here.rye().threads.verify('one')).ok).toBe(true);
      // the finished thread is found and resumed at any later clock value
      Date.now = realNow;
      const next = await here.rye().recovery.resume({ threadId: 'one', message: 'Continue.' });
      expect(next.success).toBe(true);
    },
  );

  it('signatures do not expire, and a revocation of tomorrow counts today', async () => {
    const here = await lab();
    here.signed('directives/job.md', directive('job'));
    const { keyId } = here.key();
    jump(-50 * 365 * DAY);
    await expect(here.rye().threads.plan({ directiveId: 'job' })).resolves.toMatchObject({
      integrity: 'verified',
    });
    jump(DAY);
    await here.rye().keys.rotate();
    await here.rye().keys.revoke(keyId);
    Date.now = realNow;
    await expect(here.rye().threads.plan({ directiveId: 'job' })).rejects.toMatchObject({
      code: 'key_revoked',
    });
  });

  it('starts of other threads leave those alone that live', async () => {
    const here = await openThreadLab();
    const { thread_id: id } = await here.job('a');
    await here.until('the gate', async () => (await here.record(id)).status === 'running');
    for (const by of [DAY, -DAY]) {
      jump(by);
      expect((await here.open().threads.execute({ directiveId: 'hello' })).success).toBe(true);
    }
    Date.now = realNow;
    expect((await here.record(id)).status).toBe('running');
    here.openGate('a');
    const { threads } = await here.rye.children.wait([id]);
    expect(threads.map(({ status }) => status)).toEqual(['completed']);
  });
});
