import type { Clock } from '../../src/kernel/core/clock.ts';
import type { HookDeclaration } from '../../src/kernel/core/hook.ts';
import { parseHooks } from '../../src/kernel/hooks/declaration.ts';

/** Hooks from their written form; `origin` counts lines from 1. */
export function hooksFrom(
  layer: HookDeclaration['layer'],
  ...raw: readonly object[]
): readonly HookDeclaration[] {
  return parseHooks(
    raw.map((value, index) => ({ value, origin: `layer${layer}.yaml:${index + 1}` })),
    layer,
  );
}

/** A clock that does not advance until it is stepped. */
export interface ManualClock extends Clock {
  advance(ms: number): void;
  /** Number of unfinished sleeps. */
  sleeping(): number;
}

export function manualClock(): ManualClock {
  let time = 0;
  const sleepers = new Set<{ readonly until: number; readonly wake: () => void }>();
  return {
    now: () => time,
    monotonic: () => time,
    sleep: (ms, signal) =>
      new Promise((resolve) => {
        const sleeper = {
          until: time + ms,
          wake: () => {
            sleepers.delete(sleeper);
            resolve();
          },
        };
        if (signal?.aborted === true) return resolve();
        sleepers.add(sleeper);
        return signal?.addEventListener('abort', sleeper.wake, { once: true });
      }),
    advance: (ms) => {
      time += ms;
      for (const sleeper of sleepers) if (sleeper.until <= time) sleeper.wake();
    },
    sleeping: () => sleepers.size,
  };
}
