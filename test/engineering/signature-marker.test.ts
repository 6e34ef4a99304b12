import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';

it('spells the signature marker in one source file only', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('.ts'))
    .map((path) => join('src', path));
  const spelling = files.filter((path) =>
    withoutComments(readFileSync(path, 'utf8')).includes('rye:signed'),
  );
  expect(spelling).toEqual([join('src', 'kernel', 'trust', 'signature-line.ts')]);
});

function withoutComments(source: string): string {
  return source.replaceAll(/^\s*(?:\/?\*|\/\/).*$/gm, '');
}
