import { spawnSync } from 'node:child_process';
import { expect, it } from 'vitest';
import { LegLease } from '../../src/features/fleet/leg-control.ts';
import { machineClock } from '../../src/kernel/app/system.ts';

it('a leg that was stopped gains no time from beats that it reads late', () => {
  const clock = { at: 0, monotonic: () => clock.at };
  const lease = new LegLease(clock, 3000);
  expect(lease.mayStart).toBe(true);
  clock.at = 9000;
  for (const until of [4000, 5000]) lease.receive({ kind: 'beat', until });
  expect(lease.mayStart).toBe(false);
  lease.receive({ kind: 'beat', until: 12_000 });
  expect(lease.mayStart).toBe(true);
});

it('a call waits for a beat that grants it, or for its own end', async () => {
  const clock = { at: 9000, monotonic: () => clock.at };
  const lease = new LegLease(clock, 3000);
  const ended = new AbortController();
  const granted: string[] = [];
  const call = lease.granted(new AbortController().signal).then(() => granted.push('call'));
  const over = lease.granted(ended.signal).then(() => granted.push('over'));
  lease.receive({ kind: 'beat', until: 8000 });
  ended.abort();
  await over;
  expect(granted).toEqual(['over']);
  lease.receive({ kind: 'beat', until: 12_000 });
  await call;
  expect(granted).toEqual(['over', 'call']);
});

it('the clock of leases is the same in all processes of the machine', () => {
  const before = machineClock.monotonic();
  const script = 'process.stdout.write(String(process.hrtime.bigint() / 1000n))';
  const { stdout } = spawnSync(process.execPath, ['-e', script], { encoding: 'utf8' });
  expect(Number(stdout) / 1000).toBeGreaterThanOrEqual(before);
  expect(Number(stdout) / 1000).toBeLessThanOrEqual(machineClock.monotonic());
});
