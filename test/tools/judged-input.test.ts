import { expect, it } from 'vitest';
import { nameOnDisk } from '../../src/tools/judged-input.ts';

it('a name has the letter case of the disk where the file system ignores case', () => {
  const names = ['.env', 'Docs'];
  const folding = (name: string): boolean =>
    names.some((one) => one.toLowerCase() === name.toLowerCase());
  const exact = (name: string): boolean => names.includes(name);
  for (const [name, has, expected] of [
    ['.ENV', folding, '.env'],
    ['.Env', folding, '.env'],
    ['docs', folding, 'Docs'],
    ['Docs', folding, 'Docs'],
    ['new', folding, 'new'],
    ['.ENV', exact, '.ENV'],
    ['.env', exact, '.env'],
  ] as const) {
    expect(
      nameOnDisk(name, has, () => names),
      name,
    ).toBe(expected);
  }
});
