import { expect, it } from 'vitest';
import { isCheckpointPayload } from '../../src/kernel/log/checkpoint.ts';

const FACTS = { from: 0, to: 9, sha256: 'a', prev: 'b', key_id: 'c', signature: 'd' };
const FIRST = { ...FACTS, seq: 3, timestamp: '2026-01-01T00:00:00.000Z' };
const SECOND = { ...FACTS, version: 2, epoch: 1 };

it.each<[string, unknown, boolean]>([
  ['of the first form', FIRST, true],
  ['of the second form', SECOND, true],
  ['of a form to come', { ...FIRST, ...SECOND, version: 3 }, false],
  ['of the first form that names itself', { ...FIRST, version: 1 }, false],
  ['of the second form without its epoch', { ...SECOND, epoch: undefined }, false],
  ['of the first form without its time', { ...FIRST, timestamp: undefined }, false],
  ['with half a byte', { ...SECOND, to: 9.5 }, false],
  ['that is a list', [], false],
])('a checkpoint %s', (_name, payload, expected) => {
  expect(isCheckpointPayload(payload)).toBe(expected);
});
