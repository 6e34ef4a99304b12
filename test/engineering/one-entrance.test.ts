import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';

const SOURCES = path.resolve(import.meta.dirname, '../../src');

it('three functions lead into a run, as docs/architecture.md shows them', () => {
  const calls = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .flatMap((name) => {
      const text = readFileSync(path.join(SOURCES, name), 'utf8');
      return [...text.matchAll(/(?<!function )\brunThread\(/g)].map(({ index }) => {
        const before = text.slice(0, index);
        return `${name}: ${[...before.matchAll(/function (\w+)\(/g)].at(-1)?.[1]}`;
      });
    });
  expect(calls.toSorted()).toEqual([
    'kernel/threads/run/lifecycle.ts: runDirective',
    'kernel/threads/run/lifecycle.ts: runLaunched',
    'kernel/threads/run/lifecycle.ts: runResumed',
  ]);
});
