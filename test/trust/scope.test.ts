import { expect, it } from 'vitest';
import { type KeyScope, maySign, maySignRecords } from '../../src/kernel/trust/scope.ts';

const RECORDS: readonly (readonly [string, KeyScope, boolean])[] = [
  ['signs all', { purposes: ['sign'] }, true],
  ['signs some ids', { purposes: ['sign'], ids: ['reports/*'] }, false],
  ['signs every id by a glob', { purposes: ['sign'], ids: ['**'] }, false],
  ['signs threads', { purposes: ['sign'], types: ['thread'] }, true],
  ['signs tools', { purposes: ['sign'], types: ['tool'] }, false],
  ['approves', { purposes: ['approve'] }, false],
];

it.each(RECORDS)('a key that %s: records of threads', (_what, scope, expected) => {
  expect(maySignRecords(scope)).toBe(expected);
  for (const kind of ['capabilities', 'thread-file']) {
    expect(maySign(scope, { kind, id: 'reports/a' })).toBe(expected);
  }
});
