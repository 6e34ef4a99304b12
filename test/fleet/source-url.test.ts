import { expect, it } from 'vitest';
import { assertCommitId, parseSourceUrl, sourceRef } from '../../src/features/fleet/source-url.ts';

it.each([
  ['https://git.example/o/r.git', 'https', 'https://git.example/o/r.git'],
  ['ssh://git@git.example:2222/o/r.git', 'ssh', 'ssh://git@git.example:2222/o/r.git'],
  ['git@git.example:o/r.git', 'ssh', 'git@git.example:o/r.git'],
  ['/srv/r.git', 'file', 'file:///srv/r.git'],
  ['file:///srv/r.git', 'file', 'file:///srv/r.git'],
])('%s is an address for %s', (given, protocol, text) => {
  expect(parseSourceUrl(given)).toEqual({ text, protocol, isStripped: false });
});

it.each([
  'https://token@git.example/r',
  'https://me:word@git.example/r',
  'ssh://me:word@git.example/r',
])('credentials are removed from %s', (given) => {
  const { text, isStripped } = parseSourceUrl(given);
  expect(isStripped).toBe(true);
  expect(text).not.toMatch(/token|word/);
});

it.each([
  'ext::sh -c touch% /tmp/x',
  'ext::sh',
  'fd::17',
  'git::https://x',
  '--upload-pack=touch /tmp/x',
  '-oProxyCommand=id',
  '-x@host:path',
  'ssh://-oProxyCommand=id/r',
  'ssh://-x@host/r',
  'ssh://host%20x/r',
  'host:-path',
  'git@host::x',
  'file://other/r.git',
  'relative/path',
  '',
  'https://',
  'https://git.example/r?private_token=x',
  'https://git.example/r#x',
  'https://git.example/r\nx',
  'https://git.example/\u0007r',
  'ftp://git.example/r',
  'git://git.example/r',
  `https://git.example/${'x'.repeat(3000)}`,
])('%j is no address, and the error does not show a password', (given) => {
  expect(() => parseSourceUrl(given)).toThrow(/not a repository URL/);
});

it('an error hides the part that may be a password', () => {
  expect(() => parseSourceUrl('ftp://me:secret@git.example/r?token=secret')).toThrow(
    expect.not.objectContaining({ message: expect.stringContaining('secret') }),
  );
});

it('only full IDs of commits are sources', () => {
  assertCommitId('a'.repeat(40));
  assertCommitId('0'.repeat(64));
  for (const one of ['a'.repeat(39), 'A'.repeat(40), 'HEAD', '--help', `${'a'.repeat(40)}\n`])
    expect(() => assertCommitId(one)).toThrow(/full ID/);
});

it('each thread has a ref that git accepts', () => {
  expect(sourceRef('reports/weekly-3')).toBe('refs/rye/reports/weekly-3');
  expect(sourceRef('a..b')).toBe('refs/rye/a=2e=2eb');
  expect(sourceRef('x.lock')).toBe('refs/rye/x=2elock');
});
