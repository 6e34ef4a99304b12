import { posix } from 'node:path';
import type { JsonObject } from '../core/json.ts';
import type { Tool } from '../tools/tool.ts';
import type { Validated } from './tool-call.ts';

/**
 * Runs up to `limit` calls at a time in the order in which they are given. A call begins after all before it that it may
 * not run beside: later calls of an answer rely on what earlier ones did.
 */
export class Lanes {
  readonly #slots: Slots;
  readonly #lanes: (Lane & { readonly end: Promise<unknown> })[] = [];

  constructor(limit: number) {
    this.#slots = new Slots(Math.max(1, limit));
  }

  async run(call: Validated, work: (call: Validated) => Promise<void>): Promise<void> {
    const lane = laneOf(call);
    const before = this.#lanes
      .filter((earlier) => !mayOverlap(earlier, lane))
      .map(({ end }) => end);
    const end = Promise.allSettled(before).then(() => this.#slots.use(() => work(call)));
    this.#lanes.push({ ...lane, end });
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
  /** Runs beside no other call. */
  readonly isAlone: boolean;
  /** Runs beside calls that are free too. */
  readonly isFree: boolean;
  /** The item of a list that the call is for: items run side by side, as the list asks. */
  readonly item: string | undefined;
  /** Paths that the call writes. */
  readonly paths: ReadonlySet<string>;
}

function laneOf({ requested, tool, input }: Validated): Lane {
  const { sequential, parallel = false, reads_only: readsOnly } = tool.traits;
  const paths = writtenPaths(tool, input);
  return {
    isAlone: sequential || !paths,
    isFree: parallel || readsOnly,
    item: requested.call.batch?.item,
    paths: paths ?? new Set(),
  };
}

function mayOverlap(left: Lane, right: Lane): boolean {
  if (left.isAlone || right.isAlone) return false;
  const areItems = left.item !== undefined && right.item !== undefined && left.item !== right.item;
  if (!areItems && !(left.isFree && right.isFree)) return false;
  return left.paths.size === 0 || ![...right.paths].some((path) => left.paths.has(path));
}

/** Undefined if the tool cannot tell. */
function writtenPaths(tool: Tool, input: JsonObject): ReadonlySet<string> | undefined {
  try {
    return new Set((tool.writes?.(input) ?? []).map((path) => posix.normalize(path)));
  } catch {
    return undefined;
  }
}
