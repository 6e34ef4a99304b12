import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';

const FOLDER = 'test/requirements';
const TAG = /^\s*\/\/ Requirement: (.+)$/;

interface Requirement {
  readonly id: string;
  /** Why rye does not meet it; empty if it does. */
  readonly reason: string;
}

/** The rows of a page's tables with this many columns; the last of four columns is the reason. */
function requirementsOf(page: string, columns: 2 | 4): readonly Requirement[] {
  return readFileSync(join(FOLDER, page), 'utf8')
    .split('\n')
    .flatMap((line) => {
      const [id = '', ...rest] = line
        .split(/(?<!\\)\|/)
        .slice(1, -1)
        .map((cell) => cell.trim());
      const isRow = rest.length === columns - 1 && /^[a-z0-9]+(?:-[a-z0-9]+)+$/.test(id);
      return isRow ? [{ id, reason: rest[2] ?? '' }] : [];
    });
}

/** Ids in the comments of the test files, each with the place and the line below the comment. */
function tags(): readonly { id: string; place: string; below: string }[] {
  const files = readdirSync('test', { recursive: true, encoding: 'utf8' });
  return files
    .filter((file) => file.endsWith('.ts'))
    .flatMap((file) => {
      const lines = readFileSync(join('test', file), 'utf8').split('\n');
      return lines.flatMap((line, index) => {
        const ids = TAG.exec(line)?.[1]?.split(', ') ?? [];
        const place = `${file}:${index + 1}`;
        return ids.map((id) => ({ id, place, below: lines[index + 1] ?? '' }));
      });
    });
}

const requirements = [
  ...requirementsOf('loop.md', 4),
  ...requirementsOf('known-failures.md', 2),
  ...requirementsOf('security.md', 2),
];
const tagged = tags();

describe('requirements', () => {
  it('have unique ids', () => {
    const ids = requirements.map(({ id }) => id);
    expect(ids.length).toBeGreaterThan(340);
    expect(ids.filter((id, index) => ids.indexOf(id) !== index)).toEqual([]);
  });

  it('have a test each, or a reason why rye does not meet them', () => {
    const shown = new Set(tagged.map(({ id }) => id));
    const bare = requirements.filter(({ id, reason }) => !shown.has(id) && reason === '');
    expect(bare.map(({ id }) => id)).toEqual([]);
  });

  it('are what every comment names', () => {
    const known = new Set(requirements.map(({ id }) => id));
    expect(
      tagged.filter(({ id }) => !known.has(id)).map(({ id, place }) => `${place} ${id}`),
    ).toEqual([]);
  });

  it('are named directly above a test', () => {
    const loose = tagged.filter(({ below }) => /^\s*(?:\/\/.*|\}.*|)$/.test(below));
    expect(loose.map(({ place }) => place)).toEqual([]);
  });
});
