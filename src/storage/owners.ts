import { hostname } from 'node:os';
import { type ProcessTable, processTable, UNKNOWN } from './process-table.ts';
import type { Owner, OwnerColumns, OwnerState, Owners } from './store.ts';

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
