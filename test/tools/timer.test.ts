import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { systemClock } from '../../src/kernel/app/system.ts';
import { startTimer, timeoutSignal } from '../../src/kernel/tools/timer.ts';

const DAY_MS = 86_400_000;
const MONTH_MS = 30 * DAY_MS;

// the timers of the test overflow as Node's timers do
beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test.each([0, 1, 2 ** 31 - 1, 2 ** 31, MONTH_MS, 400 * DAY_MS])(
  'a timer fires after %d ms',
  (ms) => {
    let fired = 0;
    startTimer(ms, () => {
      fired += 1;
    });
    vi.advanceTimersByTime(Math.max(0, ms - 1));
    expect(fired).toBe(ms === 0 ? 1 : 0);
    vi.advanceTimersByTime(1);
    vi.advanceTimersByTime(MONTH_MS);
    expect(fired).toBe(1);
  },
);

test('a timer that was stopped on its way never fires', () => {
  let fired = 0;
  const timer = startTimer(2 * MONTH_MS, () => {
    fired += 1;
  });
  vi.advanceTimersByTime(MONTH_MS);
  timer.stop();
  vi.advanceTimersByTime(2 * MONTH_MS);
  expect(fired).toBe(0);
});

test('the system clock sleeps for a month', async () => {
  let isAwake = false;
  const sleep = async (): Promise<void> => {
    await systemClock.sleep(MONTH_MS);
    isAwake = true;
  };
  const sleeping = sleep();
  await vi.advanceTimersByTimeAsync(MONTH_MS - 1);
  expect(isAwake).toBe(false);
  await vi.advanceTimersByTimeAsync(1);
  await sleeping;
});

test('the signal of a tool with a month of time aborts after it', () => {
  const { signal } = timeoutSignal(MONTH_MS);
  vi.advanceTimersByTime(MONTH_MS - 1);
  expect(signal.aborted).toBe(false);
  vi.advanceTimersByTime(1);
  expect(signal.reason).toMatchObject({ name: 'TimeoutError' });
});
