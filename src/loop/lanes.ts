import { posix } from 'node:path';
import type { Validated } from './tool-call.ts';

/**
 * Runs up to `limit` calls at a time, started in the order in which they are given. A sequential call runs alone, and
 * calls that write the same path run one after another.
 */
export class Lanes {
  readonly #slots: Slots;
  readonly #lanes: (Lane & { readonly end: Promise<unknown> })[] = [];

  constructor(limit: number) {
    this.#slots = new Slots(Math.max(1, limit));
  }

  async run(call: Validated, work: (call: Validated) => Promise<void>): Promise<void> {
    const paths = writtenPaths(call);
    const before = this.#lanes
      .filter((earlier) => conflicts({ paths }, earlier))
      .map(({ end }) => end);
    const end = Promise.allSettled(before).then(() => this.#slots.use(() => work(call)));
    this.#lanes.push({ paths, end });
    await end;
  }
}

/** Admits a number of tasks at a time, in the order in which they ask. */
class Slots {
  #free: number;
  readonly #queue: (() => void)[] = [];

  constructor(count: number) {
    this.#free = count;
  }

  async use(work: () => Promise<void>): Promise<void> {
    if (this.#free > 0) this.#free -= 1;
    else await new Promise<void>((resolve) => this.#queue.push(resolve));
    try {
      await work();
    } finally {
      const next = this.#queue.shift();
      if (next) next();
      else this.#free += 1;
    }
  }
}

interface Lane {
  /** Paths that the call writes; undefined if it cannot tell, and so runs alone. */
  readonly paths: ReadonlySet<string> | undefined;
}

function conflicts(left: Lane, right: Lane): boolean {
  if (!left.paths || !right.paths) return true;
  for (const path of left.paths) if (right.paths.has(path)) return true;
  return false;
}

function writtenPaths({ tool, input }: Validated): ReadonlySet<string> | undefined {
  if (tool.traits.sequential) return undefined;
  try {
    return new Set((tool.writes?.(input) ?? []).map((path) => posix.normalize(path)));
  } catch {
    return undefined;
  }
}
