import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { hostname } from 'node:os';
import { systemCodeOf } from '../core/errors.ts';
import type { Owner, ProcessTable } from './store.ts';

/**
 * Identity of processes: pid and kernel start time together, so that a reused pid is not taken for its predecessor.
 * Linux: field 22 of `/proc/<pid>/stat` (clock ticks since boot) with the boot id; elsewhere `ps -o lstart=`.
 */
export function createProcessTable(): ProcessTable {
  const host = hostname();
  let self: Owner | undefined;
  const identify = (pid: number): Owner | undefined => {
    const processStart = startOf(pid);
    return processStart === undefined ? undefined : { pid, processStart, host };
  };
  return {
    self() {
      self ??= identify(process.pid) ?? { pid: process.pid, processStart: 'unknown', host };
      return self;
    },
    identify,
    isAlive(owner) {
      if (owner.host !== host) return true;
      const start = startOf(owner.pid);
      return (
        start !== undefined && (start === owner.processStart || owner.processStart === 'unknown')
      );
    },
  };
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
