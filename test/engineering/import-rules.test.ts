import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';
import { describe, expect, it } from 'vitest';

type Pattern = string | readonly string[];
interface Side {
  readonly path?: Pattern;
  readonly pathNot?: Pattern;
}
interface ImportRule {
  readonly name: string;
  readonly from: Side;
  readonly to: Side;
}
const { forbidden } = createRequire(import.meta.url)('../../.dependency-cruiser.cjs') as {
  readonly forbidden: readonly ImportRule[];
};

const files = readdirSync('src', { recursive: true, encoding: 'utf8' }).map((file) =>
  path.join('src', file),
);
const foldersIn = (folder: string): readonly string[] =>
  readdirSync(folder, { withFileTypes: true })
    .filter((entry) => entry.isDirectory())
    .map(({ name }) => name);
const rooms = foldersIn('src/kernel');

/** The path patterns of a rule, one for each folder that an alternation such as `^src/(a|b)/` names. */
function patternsOf({ from, to }: ImportRule): readonly string[] {
  return [from.path, from.pathNot, to.path, to.pathNot].flat().flatMap((pattern) => {
    if (pattern === undefined || pattern.startsWith('^(node:)?') || pattern.includes('$1'))
      return [];
    const choice = /^\^src\/kernel\/\(([\w|-]+)\)/.exec(pattern);
    return choice ? (choice[1] ?? '').split('|').map((name) => `^src/kernel/${name}/`) : [pattern];
  });
}

function exists(pattern: string): boolean {
  const vendor = /^node_modules\/(.+)\/$/.exec(pattern)?.[1];
  if (vendor !== undefined)
    return existsSync(path.join('node_modules', vendor.replaceAll('\\', '')));
  const expression = new RegExp(pattern);
  return [...files, 'test/', 'testing/'].some((file) => expression.test(file));
}

describe('the import rules', () => {
  it('name only folders, files and packages that exist', () => {
    const missing = forbidden.flatMap((rule) =>
      patternsOf(rule)
        .filter((pattern) => !exists(pattern))
        .map((pattern) => `${rule.name}: ${pattern}`),
    );
    expect(missing).toEqual([]);
  });

  it('have a row for every room of the kernel', () => {
    const named = new Set(forbidden.map(({ name }) => /^kernel-(.+)$/.exec(name)?.[1]));
    expect(rooms.filter((room) => !named.has(room))).toEqual([]);
  });

  it.each(rooms)('docs/architecture.md has a row for %s', (room) => {
    expect(readFileSync('docs/architecture.md', 'utf8')).toMatch(
      new RegExp(String.raw`^\| [\d–] \| \`${room}\` \|`, 'm'),
    );
  });

  it.each(foldersIn('src/features'))('docs/architecture.md has a row for %s', (feature) => {
    expect(readFileSync('docs/architecture.md', 'utf8')).toMatch(
      new RegExp(String.raw`^\| \`${feature}\` \|`, 'm'),
    );
  });

  it.each(foldersIn('src/features'))('src/features/%s has a README.md', (feature) => {
    expect(existsSync(path.join('src/features', feature, 'README.md'))).toBe(true);
  });
});
