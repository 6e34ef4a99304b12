import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { systemCodeOf } from '../core/errors.ts';
import type { Owner, OwnerColumns, OwnerState, Owners } from './store.ts';

/** The columns of an owner that is a process; `host`, `pid` and `process_start` together name it. */
export type OwnerProcess = {
  readonly [Column in keyof OwnerColumns]: NonNullable<OwnerColumns[Column]>;
};

/** The start time of a process whose start can't be read. */
const UNKNOWN = 'unknown';

/**
 * Owners that are processes, named by pid and kernel start time, so that a reused pid is not taken for its predecessor.
 * Linux: field 22 of `/proc/<pid>/stat` (clock ticks since boot) with the boot id; elsewhere `ps -o lstart=`.
 */
export function processOwners(): Owners {
  const host = hostname();
  let self: Owner | undefined;
  const ofProcess = (pid: number): Owner | undefined => {
    const start = startOf(pid);
    return start === undefined ? undefined : ownerOf({ pid, process_start: start, host });
  };
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
      const { pid, process_start: known, host: on } = processOf(owner);
      if (on !== host) return 'unknown';
      const start = startOf(pid);
      return start !== undefined && (start === known || known === UNKNOWN) ? 'alive' : 'gone';
    },
    pidOf(owner) {
      const { pid, host: on } = processOf(owner);
      return on === host ? pid : undefined;
    },
    describe(owner) {
      const { pid, host: on } = processOf(owner);
      return on === host ? `process ${pid}` : `process ${pid} on ${on}`;
    },
  };
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

function startOf(pid: number): string | undefined {
  if (!Number.isSafeInteger(pid) || pid <= 0) return undefined;
  return process.platform === 'linux' ? linuxStart(pid) : psStart(pid);
}

function linuxStart(pid: number): string | undefined {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8');
    // the command name in parentheses may hold spaces and parentheses: count from the last one
    const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    // a zombie has ended, its parent only has not asked yet
    if (fields[0] === 'Z' || fields[0] === 'X') return undefined;
    const boot = readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim();
    return `${boot}:${fields[19] ?? ''}`;
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT' || systemCodeOf(error) === 'ESRCH') return undefined;
    return 'unknown';
  }
}

function psStart(pid: number): string | undefined {
  try {
    const text = execFileSync('ps', ['-o', 'lstart=', '-p', String(pid)], {
      encoding: 'utf8',
      env: { LC_ALL: 'C', PATH: '/usr/bin:/bin' },
    });
    return text.trim() === '' ? undefined : text.trim();
  } catch {
    return undefined;
  }
}
