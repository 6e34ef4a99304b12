import { expect, it } from 'vitest';
import {
  acceptedPins,
  currentPins,
  type FoundLock,
  guardChanges,
  type Memory,
  type Pin,
  type PowerFile,
} from '../../src/kernel/trust/lock.ts';

const pin = (id: string, by: string): Pin => ({
  type: 'directive',
  id,
  sha256: `${by} ${id}`,
  key_id: '0'.repeat(16),
});
const locked = [pin('a', 'lock'), pin('b', 'lock')];
const seen = [pin('b', 'first run'), pin('c', 'first run')];
const lock: FoundLock = {
  state: 'valid',
  lock: { serial: 1, files: locked },
  sha256: 'the lock',
  keyId: '0'.repeat(16),
};

it('the first lock file of a project counts, with what ran before there was one', () => {
  const memory = { serial: 0, files: seen, lock_sha256: null };
  const absent = { state: 'absent' } as const;
  expect(acceptedPins({ lock, memory: undefined })).toEqual(locked);
  expect(acceptedPins({ lock, memory })).toEqual([...locked, pin('c', 'first run')]);
  expect(acceptedPins({ lock: absent, memory })).toEqual(seen);
});

it('a lock file that a person accepted counts until the person accepts another one', () => {
  const memory = { serial: 1, files: seen, lock_sha256: 'an earlier lock' };
  expect(acceptedPins({ lock, memory })).toEqual(seen);
});

const KEY = '0'.repeat(16);

/** The file of a pin of the lock, as it is now. */
function file(id: string, changes: Partial<PowerFile> = {}): PowerFile {
  return {
    type: 'directive',
    id,
    path: id,
    sha256: `lock ${id}`,
    fault: null,
    detail: null,
    keyId: KEY,
    signedAs: null,
    error: null,
    needsSignature: true,
    ...changes,
  };
}

const FAULTS = [
  ['unsigned', 'unsigned', undefined],
  ['key_untrusted', 'untrusted', undefined],
  ['key_out_of_scope', 'untrusted', undefined],
  ['unreadable', 'damaged', undefined],
  ['content_modified', 'damaged', 'damaged'],
  ['signature_invalid', 'damaged', 'damaged'],
  ['key_revoked', 'damaged', 'damaged'],
  ['signed_by_thread', 'damaged', 'damaged'],
] as const;

it.each(FAULTS)(
  'a file with the fault %s is %s if it was accepted, and else %s, where only signed files count',
  (fault, accepted, other) => {
    const memory = undefined;
    const changed = (found: PowerFile): unknown =>
      guardChanges({ lock, memory, files: [file('a'), file('b'), found] })[0]?.change;
    const all = (found: PowerFile) => guardChanges({ lock, memory, files: [found, file('b')] });
    expect(all(file('a', { fault })).map(({ change }) => change)).toEqual([accepted]);
    expect(changed(file('new', { fault }))).toBe(other);
    // what counts without a signature, such as a policy that is stricter, is no guard that was lost
    expect(changed(file('new', { fault, needsSignature: false }))).toBeUndefined();
  },
);

it.each<[string, readonly PowerFile[], readonly string[]]>([
  ['as accepted', [file('a'), file('b')], []],
  ['one is missing', [file('a')], ['b gone']],
  ['one was signed again', [file('a', { sha256: 'new' }), file('b')], ['a changed']],
  ['one was added', [file('a'), file('b'), file('c')], ['c added']],
  [
    'one was signed as another',
    [file('a', { fault: 'item_moved', signedAs: { kind: 'directive', id: 'b' } }), file('b')],
    ['a damaged'],
  ],
])('the files of a project differ from its lock: %s', (_, files, changes) => {
  const found = guardChanges({ lock, memory: undefined, files });
  expect(found.map(({ id, change }) => `${id} ${change}`)).toEqual(changes);
});

it('a file that no lock pins is no change', () => {
  const absent = { state: 'absent' } as const;
  expect(guardChanges({ lock: absent, memory: undefined, files: [file('c')] })).toEqual([]);
  const memory = { serial: 0, files: [], lock_sha256: null };
  expect(guardChanges({ lock: absent, memory, files: [file('c')] })).toEqual([]);
});

const REMEMBERED: Memory = { serial: 1, files: locked, lock_sha256: 'the lock' };

it.each<[string, FoundLock, Memory | undefined, string | undefined]>([
  ['the accepted one', lock, REMEMBERED, undefined],
  ['a first one', lock, { ...REMEMBERED, lock_sha256: null }, undefined],
  ['one that was never met', lock, undefined, undefined],
  ['gone', { state: 'absent' }, REMEMBERED, 'lock_gone'],
  ['gone, and was never met', { state: 'absent' }, undefined, undefined],
  ['invalid', { state: 'invalid', sha256: 'x', reason: 'r' }, undefined, 'lock_damaged'],
  ['of a stranger', { state: 'untrusted', sha256: 'x', keyId: KEY }, REMEMBERED, 'lock_changed'],
  [
    'of a stranger, and was never met',
    { state: 'untrusted', sha256: 'x', keyId: KEY },
    undefined,
    undefined,
  ],
  ['older', { ...lock, sha256: 'x' }, { ...REMEMBERED, serial: 2 }, 'lock_rolled_back'],
  ['another of the same version', { ...lock, sha256: 'x' }, REMEMBERED, 'lock_changed'],
  ['newer', { ...lock, sha256: 'x' }, { ...REMEMBERED, serial: 0 }, 'lock_changed'],
])('the lock of a project is %s', (_, found, memory, change) => {
  const changes = guardChanges({ lock: found, memory, files: [file('a'), file('b')] });
  expect(changes.filter(({ type }) => type === null).map((one) => one.change)).toEqual(
    change === undefined ? [] : [change],
  );
});

it('only what a trusted key signed is pinned', () => {
  const files = [
    file('a'),
    file('b', { fault: 'unsigned' }),
    file('c', { sha256: null }),
    file('d', { keyId: null }),
  ];
  expect(currentPins(files)).toEqual([
    { type: 'directive', id: 'a', sha256: 'lock a', key_id: KEY },
  ]);
});
