import { readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../..');
const page = readFileSync(path.join(ROOT, 'docs/security.md'), 'utf8');

/** The rows of the table of claims. */
const CLAIMS = page
  .slice(page.indexOf('## Claims'), page.indexOf('## The sandbox'))
  .split('\n')
  .flatMap((line) => {
    const [, claim = '', file = '', name = ''] = line.split('|').map((cell) => cell.trim());
    return name === '' || claim === 'claim' || claim.startsWith('---')
      ? []
      : [{ claim, file, name }];
  });

it('makes claims', () => {
  expect(CLAIMS.length).toBeGreaterThan(25);
});

it.each(CLAIMS)('$claim: its test exists', ({ file, name }) => {
  const place = file.includes('/') ? path.join(ROOT, 'test') : import.meta.dirname;
  const source = readFileSync(path.join(place, `${file}.test.ts`), 'utf8');
  const quoted = name.replaceAll("'", String.raw`\'`);
  expect(source.includes(name) || source.includes(quoted)).toBe(true);
});
