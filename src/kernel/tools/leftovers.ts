import { readdirSync, readFileSync } from 'node:fs';
import { setTimeout as pause } from 'node:timers/promises';
import { CALL_VARIABLE } from './passed-variables.ts';

/** A process that outlives its call. */
export interface Leftover {
  readonly pid: number;
  readonly name: string;
}

interface Search {
  /** The value of {@link CALL_VARIABLE}. */
  readonly call: string;
  /** The id of the first process of the call. */
  readonly after: number;
}

/**
 * Ends the processes of a call that left its process group: SIGTERM, and SIGKILL after `graceMs`. Returns those that still
 * run. Only Linux tells the environment of a process; elsewhere it does nothing.
 */
export async function endLeftovers({
  graceMs,
  ...search
}: Search & { readonly graceMs: number }): Promise<readonly Leftover[]> {
  let left = leftovers(search);
  if (left.length === 0) return left;
  signal(left, 'SIGTERM');
  const deadline = performance.now() + graceMs;
  for (
    let wait = 5;
    left.length > 0 && performance.now() < deadline;
    wait = Math.min(wait * 2, 100)
  ) {
    await pause(wait);
    left = leftovers(search);
  }
  // one that is about to be killed may start another
  for (let round = 0; left.length > 0 && round < KILL_ROUNDS; round += 1) {
    signal(left, 'SIGKILL');
    await pause(KILL_PAUSE_MS);
    left = leftovers(search);
  }
  return left;
}

const KILL_ROUNDS = 50;
const KILL_PAUSE_MS = 10;

function signal(processes: readonly Leftover[], name: 'SIGTERM' | 'SIGKILL'): void {
  for (const { pid } of processes) {
    try {
      process.kill(pid, name);
    } catch {
      // gone, or of another user
    }
  }
}

/**
 * A process that starts another one and ends is missed by a look that lists the processes before and reads them after that:
 * where processes were started during a look that found none, another look follows.
 */
function leftovers(search: Search): readonly Leftover[] {
  if (process.platform !== 'linux') return [];
  for (let look = 1; ; look += 1) {
    const before = latestProcess();
    const found = lookFor(search);
    if (found.length > 0 || look === LOOKS || latestProcess() === before) return found;
  }
}

const LOOKS = 4;

function lookFor({ call, after }: Search): readonly Leftover[] {
  const mark = `${CALL_VARIABLE}=${call}`;
  // ids rise until they wrap around, so that as a rule there is nothing to read
  const isOver = latestProcess() < after;
  return processIds().flatMap((pid) => {
    if (!isOver && pid <= after) return [];
    const environment = read(`/proc/${pid}/environ`)?.split('\0') ?? [];
    return environment.includes(mark) && isAlive(pid) ? [{ pid, name: nameOf(pid) }] : [];
  });
}

/** Returns the id that was given to a process last; 0 if it is unknown. */
function latestProcess(): number {
  return Number(read('/proc/loadavg')?.trim().split(' ').at(-1) ?? 0);
}

/** Returns the ids of all processes of a system with a /proc. */
export function processIds(): readonly number[] {
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name))
    .map(Number);
}

/** True if a process runs and is no zombie, which holds nothing; with `group`, only if it is in that process group. */
export function isAlive(pid: number, group?: number): boolean {
  const stat = read(`/proc/${pid}/stat`);
  if (stat === undefined) return false;
  // state, parent and process group follow the name in parentheses, see proc(5)
  const [state, , processGroup] = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const isOfGroup = group === undefined || Number(processGroup) === group;
  return isOfGroup && state !== 'Z' && state !== 'X';
}

function nameOf(pid: number): string {
  return read(`/proc/${pid}/comm`)?.trim() ?? '';
}

function read(path: string): string | undefined {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return undefined;
  }
}
