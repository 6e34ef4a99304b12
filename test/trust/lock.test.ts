import { expect, it } from 'vitest';
import { acceptedPins, type FoundLock, type Pin } from '../../src/kernel/trust/lock.ts';

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
