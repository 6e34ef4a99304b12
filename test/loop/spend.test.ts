import { expect, it } from 'vitest';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { EarlierResults } from '../../src/kernel/loop/call-history.ts';
import type { LoopPorts } from '../../src/kernel/loop/ports.ts';
import { Spend } from '../../src/kernel/loop/spend.ts';
import { Stop } from '../../src/kernel/loop/stop.ts';
import { toolOf, VirtualClock } from './scripted.ts';

const LIMITS = { turns: 9, tokens: 1000, spend: 1, duration_seconds: 10, spawns: 1, depth: 1 };
const PRICING = { input: 1, output: 10 };

/** The usage of a run with a budget that notes what it holds. */
function spendOf(budgetLeft = 1_000_000) {
  const clock = new VirtualClock({ auto: false });
  const stop = new Stop(clock, new AbortController().signal);
  const held: number[] = [];
  const reports: unknown[] = [];
  const idle: boolean[] = [];
  const budget: LoopPorts['budget'] = {
    remainingMicroUsd: async () => budgetLeft,
    report: async (...report) => void reports.push(report),
    hold: async (microUsd) => held.push(microUsd) < 3,
  };
  const ports = { budget, clock, onIdle: (isIdle: boolean) => idle.push(isIdle) };
  const spend = new Spend(LIMITS, ports as unknown as LoopPorts, stop);
  return { spend, clock, stop, held, idle, reports };
}

it('counts every token, and sets aside what is spent and not reported with what comes next', async () => {
  const { spend, held } = spendOf();
  spend.charge({ ...NO_USAGE, output_tokens: 1 }, PRICING);
  expect([spend.cost().output_tokens, spend.microUsd]).toEqual([1, 10]);
  expect(await spend.hold(100)).toBe(true);
  await spend.report();
  expect(await spend.hold(100)).toBe(true);
  expect(await spend.hold(100)).toBe(false);
  expect(held).toEqual([110, 100, 100]);
});

it('has what its budget has left, without what was spent and is not reported yet', async () => {
  const { spend } = spendOf(500);
  spend.charge({ ...NO_USAGE, output_tokens: 3 }, PRICING);
  expect(await spend.remainingMicroUsd()).toBe(470);
  await spend.report();
  expect(await spend.remainingMicroUsd()).toBe(500);
});

it('stops the clock of the duration while nothing runs', async () => {
  const { spend, clock, stop, idle } = spendOf();
  clock.advance(4000);
  spend.pause();
  spend.pause();
  clock.advance(60_000);
  expect([spend.secondsLeft(), stop.signal.aborted]).toEqual([6, false]);
  spend.goOn();
  clock.advance(5000);
  expect(spend.secondsLeft()).toBe(1);
  clock.advance(1000);
  await Promise.resolve();
  expect([stop.cause, spend.reachedLimit()?.name]).toEqual(['duration', 'duration_seconds']);
  expect(idle).toEqual([true, false]);
});

it('replays no result from before a call that changes something began', () => {
  const results = new EarlierResults(new Set(['rye_look']));
  const [look, change] = [
    toolOf('rye/look'),
    toolOf('rye/change', { traits: { reads_only: false } }),
  ];
  const seen = [{ type: 'text', text: 'seen' }] as const;
  results.note(look, { at: 1 }, seen);
  expect(results.find(look, { at: 1 })).toEqual(seen);
  results.noteStart(look);
  expect(results.find(look, { at: 1 })).toEqual(seen);
  results.noteStart(change);
  expect(results.find(look, { at: 1 })).toBeUndefined();
});

it('tells its budget what is new, and that a call is over, once', async () => {
  const { spend, reports } = spendOf();
  await spend.report();
  expect(reports).toEqual([]);
  await spend.hold(0);
  await spend.report();
  expect(reports).toEqual([]);
  await spend.hold(100);
  await spend.report(7);
  await spend.report();
  expect(reports).toMatchObject([[0, {}, 7]]);
  // usage that costs nothing is new too
  spend.charge({ ...NO_USAGE, output_tokens: 1 }, null);
  await spend.report();
  await spend.report();
  expect(reports).toHaveLength(2);
});
