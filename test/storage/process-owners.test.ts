import { describe, expect, test } from 'vitest';
import {
  ownerOf,
  type ProcessSource,
  processOwners,
  processTable,
} from '../../src/kernel/storage/owners.ts';
import type { OwnerState } from '../../src/kernel/storage/store.ts';

const BOOT = '11111111-2222-3333-4444-555555555555';
const OTHER_BOOT = '99999999-2222-3333-4444-555555555555';
const HOST = 'box-1';

function failure(code: string): Error {
  return Object.assign(new Error(code), { code });
}

function refuse(code: string): () => never {
  return () => {
    throw failure(code);
  };
}

/** A Linux host with the processes 1 and 7, in the PID namespace 100. 8 is a zombie. */
function linux(changes: Partial<ProcessSource> = {}): ProcessSource {
  const files = new Map([
    ['/proc/sys/kernel/random/boot_id', `${BOOT}\n`],
    ['/proc/1/stat', stat(1, 'S', 10)],
    ['/proc/7/stat', stat(7, 'S', 70)],
    ['/proc/8/stat', stat(8, 'Z', 80)],
  ]);
  const links = new Map([
    ['/proc/self', '1'],
    ['/proc/self/ns/pid', 'pid:[100]'],
  ]);
  const found = (all: ReadonlyMap<string, string>, path: string): string =>
    all.get(path) ?? refuse('ENOENT')();
  return {
    platform: 'linux',
    pid: 1,
    read: (path) => found(files, path),
    readLink: (path) => found(links, path),
    ps: refuse('ENOENT'),
    probe: (pid) => {
      if (![1, 7, 8].includes(pid)) throw failure('ESRCH');
    },
    ...changes,
  };
}

function stat(pid: number, state: string, ticks: number): string {
  const before = Array.from({ length: 18 }, () => '0').join(' ');
  return `${pid} (a name) with ) in it) ${state} ${before} ${ticks} 0`;
}

/** A host that is not Linux, with the processes 1 and 7; 8 is a zombie. */
function mac(changes: Partial<ProcessSource> = {}): ProcessSource {
  const lines = new Map([
    ['1', 'S    Tue Feb 17 12:00:00 2026\n'],
    ['7', 'S+   Tue Feb 17 13:00:00 2026\n'],
    ['8', 'Z    Tue Feb 17 14:00:00 2026\n'],
  ]);
  return linux({
    platform: 'darwin',
    read: refuse('ENOENT'),
    readLink: refuse('ENOENT'),
    ps: (args) => lines.get(args.at(-1) ?? '') ?? refuse('1')(),
    ...changes,
  });
}

const LINUX_START = `${BOOT}:70:100`;
const MAC_START = 'Tue Feb 17 13:00:00 2026';

/** Returns the state of another process as a process on this host sees it. */
function stateOf(
  source: ProcessSource,
  { pid = 7, start = LINUX_START, host = HOST },
): OwnerState | undefined {
  const owners = processOwners({ table: processTable(source), host: HOST });
  return owners.state(ownerOf({ pid, process_start: start, host }));
}

describe('an owner is gone only if that is proved', () => {
  const noFile = { read: refuse('EMFILE') };
  test.each<[string, OwnerState, ProcessSource, Parameters<typeof stateOf>[1]]>([
    ['a living process', 'alive', linux(), {}],
    ['an ended process', 'gone', linux(), { pid: 9 }],
    ['a zombie', 'gone', linux(), { pid: 8, start: `${BOOT}:80:100` }],
    ['a reused pid', 'gone', linux(), { start: `${BOOT}:69:100` }],
    ['a process before the restart', 'gone', linux(), { start: `${OTHER_BOOT}:70:100` }],
    ['a restored row without a process', 'gone', linux(), { pid: 0, start: 'gone' }],
    ['a start that an older release noted', 'alive', linux(), { start: `${BOOT}:70` }],
    ['a reused pid of an older release', 'gone', linux(), { start: `${BOOT}:7` }],
    [
      'a pid that is free here, of a container',
      'unknown',
      linux(),
      { pid: 9, start: `${BOOT}:90:200` },
    ],
    ['a pid that is taken here, of a container', 'unknown', linux(), { start: `${BOOT}:90:200` }],
    ['a process of another host', 'unknown', linux(), { start: `${OTHER_BOOT}:70:100`, host: 'x' }],
    ['a living process from before a rename of the host', 'unknown', linux(), { host: 'x' }],
    ['an ended one from before a rename of the host', 'gone', linux(), { pid: 9, host: 'x' }],
    ['no descriptor left', 'unknown', linux(noFile), {}],
    ['no descriptor left, and an ended process', 'unknown', linux(noFile), { pid: 9 }],
    ['no right to read', 'unknown', linux({ read: refuse('EACCES') }), {}],
    ['/proc that hides other users', 'unknown', linux({ probe: refuse('EPERM') }), { pid: 9 }],
    ['no /proc', 'unknown', linux({ readLink: refuse('ENOENT'), read: refuse('ENOENT') }), {}],
    ['/proc of another namespace', 'unknown', linux({ readLink: () => '5' }), {}],
    ['an owner that did not know its start', 'unknown', linux(), { start: 'unknown' }],
    ['the same without its pid', 'unknown', linux(), { pid: 9, start: 'unknown' }],
    ['ps, a living process', 'alive', mac(), { start: MAC_START }],
    ['ps, an ended process', 'gone', mac(), { pid: 9, start: MAC_START }],
    ['ps, a zombie', 'gone', mac(), { pid: 8, start: 'Tue Feb 17 14:00:00 2026' }],
    ['ps, a reused pid', 'gone', mac(), { start: 'Tue Feb 17 09:00:00 2026' }],
    ['ps, another host', 'unknown', mac(), { start: MAC_START, host: 'x' }],
    ['ps that cannot start', 'unknown', mac({ ps: refuse('EAGAIN') }), { start: MAC_START }],
    ['ps that prints nothing', 'unknown', mac({ ps: () => '' }), { start: MAC_START }],
    ['no ps', 'unknown', mac({ ps: refuse('ENOENT') }), { start: MAC_START }],
    [
      'no ps, and an ended process',
      'gone',
      mac({ ps: refuse('ENOENT') }),
      { pid: 9, start: MAC_START },
    ],
  ])('%s: %s', (_what, expected, source, owner) => {
    expect(stateOf(source, owner)).toBe(expected);
  });
});

test('a descriptor that is missing for a moment changes nothing that was known', () => {
  let isFull = false;
  const source = linux();
  const read = (path: string): string => (isFull ? refuse('EMFILE')() : source.read(path));
  const owners = processOwners({ table: processTable({ ...source, read }), host: HOST });
  const other = owners.ofProcess(7);
  const self = owners.self();
  isFull = true;
  expect(other && owners.state(other)).toBe('unknown');
  expect(owners.state(self)).toBe('alive');
  expect(owners.ofProcess(9)).toBeUndefined();
  isFull = false;
  expect(other && owners.state(other)).toBe('alive');
});

test('a process of another container is not one to send a signal to', () => {
  const owners = processOwners({ table: processTable(linux()), host: HOST });
  const inside = ownerOf({ pid: 7, process_start: `${BOOT}:70:200`, host: HOST });
  expect(owners.pidOf(inside)).toBeUndefined();
  expect(owners.describe(inside)).toBe('process 7 in another container on box-1');
});

test.each([
  ['here', HOST, '100', 7, 'process 7'],
  ['on another host with the same boot', 'box-2', '100', undefined, 'process 7 on box-2'],
  ['in another container', HOST, '200', undefined, 'process 7 in another container on box-1'],
  ['in a container of another host', 'box-2', '200', undefined, 'process 7 on box-2'],
])(
  'a process %s is named by where it is, and only one that is here has a pid',
  (_, host, space, pid, told) => {
    const owners = processOwners({ table: processTable(linux()), host: HOST });
    const owner = ownerOf({ pid: 7, process_start: `${BOOT}:70:${space}`, host });
    expect([owners.pidOf(owner), owners.describe(owner)]).toEqual([pid, told]);
  },
);
