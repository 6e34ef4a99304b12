import { execFileSync } from 'node:child_process';
import { readFileSync, readlinkSync } from 'node:fs';
import { hostname } from 'node:os';
import { systemCodeOf } from '../core/errors.ts';
import type { Owner, OwnerColumns, OwnerState, Owners } from './store.ts';

/** The start of a process whose start can't be read. */
const UNKNOWN = 'unknown';

/** The ways in which the system tells about its processes. */
export interface ProcessSource {
  readonly platform: NodeJS.Platform;
  readonly pid: number;
  read(path: string): string;
  readLink(path: string): string;
  /** Runs `ps` and returns what it prints. */
  ps(args: readonly string[]): string;
  /** Sends no signal; throws ESRCH if there is no such process. */
  probe(pid: number): void;
}

/** The processes that this one can see. */
interface ProcessTable {
  /**
   * Returns what tells a process from a later one with its pid; undefined if it has ended, {@link UNKNOWN} if it exists
   * and its start can't be read.
   */
  startOf(pid: number): string | undefined;
  /**
   * Returns whether a process with this start would be in this table, which another container has not; undefined if the
   * start does not tell.
   */
  covers(start: string): boolean | undefined;
}

const SYSTEM: ProcessSource = {
  platform: process.platform,
  pid: process.pid,
  read: (path) => readFileSync(path, 'utf8'),
  readLink: (path) => readlinkSync(path),
  ps: (args) =>
    execFileSync('ps', args, {
      encoding: 'utf8',
      env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' },
      stdio: ['ignore', 'pipe', 'ignore'],
    }),
  probe: (pid) => void process.kill(pid, 0),
};

/** Reads the start of processes: on Linux from `/proc`, elsewhere with `ps`. */
export function processTable(source: ProcessSource = SYSTEM): ProcessTable {
  const table = source.platform === 'linux' ? linuxTable(source) : psTable(source);
  return {
    covers: (start) => table.covers(start),
    startOf(pid) {
      if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
      try {
        return table.startOf(pid);
      } catch {
        // no descriptor left, no right, no `ps`: that tells nothing about the process
        return exists(source, pid) ? UNKNOWN : undefined;
      }
    },
  };
}

/** False only if the system knows no such process. Needs no descriptor. */
function exists(source: ProcessSource, pid: number): boolean {
  try {
    source.probe(pid);
    return true;
  } catch (error) {
    return systemCodeOf(error) !== 'ESRCH';
  }
}

/** The kernel and the namespace in which a pid names a process. */
interface Place {
  readonly boot: string;
  readonly namespace: string;
}

const LINUX_START = /^([\da-f-]{36}):\d+(?::(\d+))?$/;

/**
 * Field 22 of `/proc/<pid>/stat` (clock ticks since boot) with the boot id and the PID namespace: containers may share a
 * kernel, a host name and a disk, but not their pids.
 */
function linuxTable(source: ProcessSource): ProcessTable {
  let found: Place | undefined;
  const place = (): Place => {
    if (found) return found;
    // a /proc of another namespace shows other processes under these pids
    if (source.readLink('/proc/self') !== String(source.pid))
      throw new Error('/proc is of another namespace');
    const namespace = source.readLink('/proc/self/ns/pid').replaceAll(/\D/g, '');
    found = { boot: source.read('/proc/sys/kernel/random/boot_id').trim(), namespace };
    return found;
  };
  return {
    startOf(pid) {
      const { boot, namespace } = place();
      const stat = source.read(`/proc/${pid}/stat`);
      // the command name in parentheses may hold spaces and parentheses: count from the last one
      const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
      return isDead(fields[0]) ? undefined : `${boot}:${fields[19] ?? ''}:${namespace}`;
    },
    covers(start) {
      if (start === UNKNOWN) return false;
      const [, boot, namespace] = LINUX_START.exec(start) ?? [];
      // not of Linux, or of a release that did not note the namespace
      if (namespace === undefined) return undefined;
      try {
        const own = place();
        return boot === own.boot ? namespace === own.namespace : undefined;
      } catch {
        return false;
      }
    },
  };
}

function psTable(source: ProcessSource): ProcessTable {
  return {
    startOf(pid) {
      const line = source.ps(['-o', 'stat=', '-o', 'lstart=', '-p', String(pid)]).trim();
      const [, state, start] = /^(\S+)\s+(.+)$/s.exec(line) ?? [];
      if (start === undefined) throw new Error(`ps tells nothing about ${pid}`);
      return isDead(state) ? undefined : start;
    },
    covers: () => undefined,
  };
}

/** A zombie has ended, its parent only has not asked yet. */
function isDead(state: string | undefined): boolean {
  return state !== undefined && /^[ZX]/.test(state);
}

/** The columns of an owner that is a process; `host`, `pid` and `process_start` together name it. */
export type OwnerProcess = {
  readonly [Column in keyof OwnerColumns]: NonNullable<OwnerColumns[Column]>;
};

/**
 * Owners that are processes, named by pid and kernel start time, so that a reused pid is not taken for its predecessor.
 * One is `gone` only if that is proved: what can't be seen from here is `unknown`.
 */
export function processOwners({
  table = processTable(),
  host = hostname(),
}: {
  readonly table?: ProcessTable;
  readonly host?: string;
} = {}): Owners {
  let self: Owner | undefined;
  const ofProcess = (pid: number): Owner | undefined => {
    const start = table.startOf(pid);
    return start === undefined ? undefined : ownerOf({ pid, process_start: start, host });
  };
  const isHere = ({ process_start: start, host: on }: OwnerProcess): boolean =>
    on === host && table.covers(start) !== false;
  return {
    self() {
      self ??=
        ofProcess(process.pid) ?? ownerOf({ pid: process.pid, process_start: UNKNOWN, host });
      return self;
    },
    ofProcess,
    ofRecord({ pid, process_start, host: on }) {
      if (pid === null) return undefined;
      return ownerOf({ pid, process_start: process_start ?? '', host: on ?? host });
    },
    columns: processOf,
    state(owner): OwnerState {
      if (owner.id === self?.id) return 'alive';
      const found = processOf(owner);
      // the owner of a restored row: no process at all
      if (found.pid <= 0) return 'gone';
      const isCovered = table.covers(found.process_start) ?? found.host === host;
      if (!isCovered) return 'unknown';
      const start = table.startOf(found.pid);
      if (start === undefined) return 'gone';
      if (start === UNKNOWN || found.process_start === UNKNOWN) return 'unknown';
      if (!isSameStart(found.process_start, start)) return 'gone';
      // under another host name, what is seen of it here counts only against it
      return found.host === host ? 'alive' : 'unknown';
    },
    pidOf(owner) {
      const found = processOf(owner);
      return isHere(found) ? found.pid : undefined;
    },
    describe(owner) {
      const found = processOf(owner);
      if (isHere(found)) return `process ${found.pid}`;
      const place = found.host === host ? 'in another container on' : 'on';
      return `process ${found.pid} ${place} ${found.host}`;
    },
  };
}

/** A release that did not note the PID namespace left a start without it. */
function isSameStart(known: string, start: string): boolean {
  return start === known || start.startsWith(`${known}:`);
}

/** Names a process as an owner. */
export function ownerOf({ pid, process_start: start, host }: OwnerProcess): Owner {
  return { id: `${encodeURIComponent(host)}/${pid}/${start}` };
}

/** Returns an owner's columns in the order pid, process_start, host; all null without an owner. */
export function columnsOf(owner: Owner | null): readonly (string | number | null)[] {
  if (!owner) return [null, null, null];
  const { pid, process_start, host } = processOf(owner);
  return [pid, process_start, host];
}

/** The process that an owner is. An id of another form is a process that can't exist. */
export function processOf({ id }: Owner): OwnerProcess {
  const [, host = '', pid = '0', start = ''] = /^([^/]*)\/(-?[\d.]+)\/(.*)$/s.exec(id) ?? [];
  return { pid: Number(pid), process_start: start, host: decodeURIComponent(host) };
}
