import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
// @ts-expect-error: a script without types
import { codeLines, compare, measure } from '../../scripts/check-budgets.mjs';

interface Figures {
  readonly lines: number;
  readonly files: number;
  readonly imports: number;
}

function measured(
  files: Readonly<Record<string, string>>,
  rows: Readonly<Record<string, Figures>>,
): Readonly<Record<string, Figures>> {
  const root = mkdtempSync(path.join(tmpdir(), 'rye-budgets-'));
  onTestFinished(() => rmSync(root, { recursive: true }));
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(path.dirname(path.join(root, name)), { recursive: true });
    writeFileSync(path.join(root, name), text);
  }
  return measure(root, rows) as Readonly<Record<string, Figures>>;
}

const ROW = { lines: 3, files: 2, imports: 1 };

it('counts the lines that are neither blank nor a comment', () => {
  const text =
    '/** A\n * comment.\n */\nconst a = 1; // one\n\n// none\n  /* none */\nexport { a };\n';
  expect(codeLines(text)).toBe(2);
});

it('counts a folder inside of a room once, and imports that cross its border', () => {
  const rows = { 'src/app': ROW, 'src/app/fleet': ROW };
  const files = {
    'src/app/a.ts': "import { b } from './fleet/b.js';\nimport { c } from './c.js';\n",
    'src/app/c.ts': "export * from '../core/d.js';\n",
    'src/app/fleet/b.ts': "const c = await import('../c.js');\nexport const b = c;\n",
    'src/app/notes.md': 'no code\n',
  };
  expect(measured(files, rows)).toEqual({
    'src/app': { lines: 3, files: 2, imports: 2 },
    'src/app/fleet': { lines: 2, files: 1, imports: 1 },
  });
});

it('fails above a row, without one, and where tests outgrow the sources', () => {
  const budget = { test_lines_per_line: 0.5, folders: { 'src/app': ROW, 'src/gone': ROW } };
  const figures = { 'src/app': { ...ROW, lines: 4 }, 'src/new': { ...ROW, lines: 6 } };
  const { over } = compare(budget, figures, 6) as { over: readonly string[] };
  expect(over.join('\n')).toMatchInlineSnapshot(`
    "src/app: 4 lines, 3 allowed
    src/gone has a row and no files: remove the row
    src/new has no row: {"lines":6,"files":2,"imports":1}
    test: 6 lines, 5 allowed for the code of src and testing"
  `);
});

it('asks to lower a row that reality is below of', () => {
  const budget = { test_lines_per_line: 1, folders: { 'src/app': ROW } };
  expect(compare(budget, { 'src/app': { ...ROW, files: 1 } }, 0)).toEqual({
    over: [],
    lower: ['src/app: files 1'],
  });
});
