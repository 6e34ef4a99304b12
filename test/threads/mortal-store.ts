import { hostname } from 'node:os';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { ownerOf } from '../../src/kernel/storage/owners.ts';
import type { Store } from '../../src/kernel/storage/store.ts';

/** A process that may die: everything that it does with its store after its death has no effect. */
export interface Mortal {
  readonly store: Store;
  /** Resolves at the death. */
  readonly death: Promise<'dead'>;
  /** Lets the process die at its `steps`-th use of the store from now on, before or after the step took effect. */
  arm(steps: number, isAfter: boolean): void;
  /** Returns whether it has died, and lets it live otherwise. */
  disarm(): boolean;
  /** Closes what the process left open. A dead one writes nothing. */
  bury(): Promise<void>;
}

/** Uses of a store that return at once: a dead process throws there. All others never return. */
const SYNC = new Set(['append', 'checkpoint', 'sync', 'state', 'close', 'location']);
/** Reads in parts, which no death interrupts. */
const STREAMS = new Set(['since', 'follow', 'bytes']);
const PARTS = new Set(['registry', 'ledger', 'logs', 'deliveries', 'heads']);

let processes = 0;

/** Opens a store as a process with an identity that no living process has. */
export function openMortal(projectPath: string): Mortal {
  const real = openStore({ projectPath, clock: systemClock, ids: systemIds });
  processes += 1;
  // above the largest pid that Linux gives
  const self = ownerOf({ pid: 4_200_000 + processes, process_start: 'test:1', host: hostname() });
  const writers: { close(): unknown }[] = [];
  let left = Number.POSITIVE_INFINITY;
  let isAfter = false;
  let isDead = false;
  let die = (): void => undefined;
  const death = new Promise<'dead'>((resolve) => {
    die = () => {
      isDead = true;
      resolve('dead');
    };
  });
  const use = (name: string, call: () => unknown): unknown => {
    const gone = (): unknown => {
      if (SYNC.has(name)) throw new Error('the process is dead');
      return new Promise(() => undefined);
    };
    if (isDead) return gone();
    left -= 1;
    if (left > 0) return settled(call());
    if (!isAfter) {
      die();
      return gone();
    }
    const result = call();
    isDead = true;
    // no process recovers it before its last step took effect
    if (result instanceof Promise) void result.then(settled, () => undefined).then(die);
    else die();
    return gone();
  };
  const settled = (value: unknown): unknown => {
    if (value instanceof Promise)
      return value.then((one) => (isDead ? new Promise(() => undefined) : settled(one)));
    if (!isHandle(value)) return value;
    if ('append' in value) writers.push(value as unknown as { close(): unknown });
    return guarded(value);
  };
  const guarded = <T extends object>(target: T): T =>
    new Proxy(target, {
      get(_target, key) {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== 'function' || STREAMS.has(String(key))) {
          return typeof value === 'function' ? value.bind(target) : value;
        }
        return (...values: unknown[]) => use(String(key), () => value.apply(target, values));
      },
    });
  const store = new Proxy(real, {
    get(_target, key) {
      const value: unknown = Reflect.get(real, key, real);
      if (key === 'owners') return { ...real.owners, self: () => self };
      if (typeof value === 'object' && value !== null && PARTS.has(String(key))) {
        return guarded(value);
      }
      return value;
    },
  });
  return {
    store,
    death,
    arm(steps, after) {
      left = steps;
      isAfter = after;
    },
    disarm() {
      left = Number.POSITIVE_INFINITY;
      return isDead;
    },
    async bury() {
      for (const writer of writers) {
        try {
          await writer.close();
        } catch {
          // its lease is another's
        }
      }
      real.close();
    },
  };
}

function isHandle(value: unknown): value is object {
  return typeof value === 'object' && value !== null && ('append' in value || 'release' in value);
}
