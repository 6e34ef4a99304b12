// Compares every folder with its row in budgets.json: code lines, files, and imports across its border. Fails above a
// row, for a folder without one, and where tests outgrow the sources. `--lower` writes the figures of today where they
// are below the rows. A row is raised by hand, in a commit whose message names what the lines bought.
import { existsSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const CODE = /\.(?:ts|mjs|cjs)$/;
const SPECIFIER = /(?:from|import\(|^import) ?'(\.{1,2}\/[^']+)'/gm;
const FIGURES = ['lines', 'files', 'imports'];

/** Counts the lines of a text that are neither blank nor a comment. */
export function codeLines(text) {
  let count = 0;
  let inComment = false;
  for (const line of text.split('\n').map((one) => one.trim())) {
    if (inComment) inComment = !line.includes('*/');
    else if (line.startsWith('/*')) inComment = !line.includes('*/');
    else if (line !== '' && !line.startsWith('//')) count += 1;
  }
  return count;
}

function codeFiles(folder) {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && CODE.test(entry.name))
    .map((entry) => path.join(entry.parentPath, entry.name));
}

/** The deepest row that a file lies in, so that a feature inside of a room is counted once. */
const rowOf = (names, file) =>
  names
    .filter((name) => file.startsWith(`${name}/`))
    .toSorted((a, b) => b.length - a.length)
    .at(0);

/** Measures `testing/`, each row of the budget below `src`, and each folder there that has none. */
export function measure(root, rows) {
  const found = new Map();
  const home = (file) =>
    rowOf(Object.keys(rows), file) ??
    file
      .split('/')
      .slice(0, 2)
      .join('/')
      .replace(/\.[tj]s$/, '');
  const folders = ['src', 'testing'].map((name) => path.join(root, name)).filter(existsSync);
  for (const absolute of folders.flatMap(codeFiles)) {
    const name = home(path.relative(root, absolute));
    const text = readFileSync(absolute, 'utf8');
    const sum = found.get(name) ?? { lines: 0, files: 0, imports: 0 };
    sum.lines += codeLines(text);
    sum.files += 1;
    for (const [, specifier] of text.matchAll(SPECIFIER)) {
      const to = path.relative(root, path.resolve(path.dirname(absolute), specifier));
      if (home(to) !== name) sum.imports += 1;
    }
    found.set(name, sum);
  }
  return Object.fromEntries([...found].toSorted(([a], [b]) => (a < b ? -1 : 1)));
}

const total = (figures, member) =>
  Object.values(figures).reduce((sum, one) => sum + one[member], 0);

/** Lists what exceeds the budget, and the rows that reality is below of. */
export function compare(budget, figures, testLines) {
  const over = [];
  const lower = [];
  for (const name of new Set([...Object.keys(budget.folders), ...Object.keys(figures)])) {
    const row = budget.folders[name];
    const sum = figures[name];
    if (row === undefined) over.push(`${name} has no row: ${JSON.stringify(sum)}`);
    else if (sum === undefined) over.push(`${name} has a row and no files: remove the row`);
    else {
      for (const figure of FIGURES) {
        if (sum[figure] > row[figure]) {
          over.push(`${name}: ${sum[figure]} ${figure}, ${row[figure]} allowed`);
        } else if (sum[figure] < row[figure]) lower.push(`${name}: ${figure} ${sum[figure]}`);
      }
    }
  }
  const allowed = Math.floor(budget.test_lines_per_line * total(figures, 'lines'));
  if (testLines > allowed)
    over.push(`test: ${testLines} lines, ${allowed} allowed for the code of src and testing`);
  return { over, lower };
}

function run() {
  const file = path.join(ROOT, 'budgets.json');
  const budget = JSON.parse(readFileSync(file, 'utf8'));
  const figures = measure(ROOT, budget.folders);
  const tests = codeFiles(path.join(ROOT, 'test')).filter((name) => !name.includes('/fixtures/'));
  const testLines = tests.reduce((sum, name) => sum + codeLines(readFileSync(name, 'utf8')), 0);
  if (process.argv.includes('--lower')) {
    for (const [name, row] of Object.entries(budget.folders)) {
      for (const figure of FIGURES)
        row[figure] = Math.min(row[figure], figures[name]?.[figure] ?? 0);
    }
    const ratio = Math.ceil((testLines / total(figures, 'lines')) * 1000) / 1000;
    budget.test_lines_per_line = Math.min(budget.test_lines_per_line, ratio);
    writeFileSync(file, `${JSON.stringify(budget, null, 2)}\n`);
  }
  const { over, lower } = compare(budget, figures, testLines);
  const sources = Object.fromEntries(
    Object.entries(figures).filter(([name]) => name.startsWith('src/')),
  );
  process.stdout.write(
    `src: ${total(sources, 'lines')} code lines in ${total(sources, 'files')} files; test: ${testLines}\n`,
  );
  for (const line of over) process.stdout.write(`over the budget: ${line}\n`);
  for (const line of lower) process.stdout.write(`below the budget: ${line}\n`);
  if (lower.length > 0) process.stdout.write('Lower the rows with: npm run budgets -- --lower\n');
  if (over.length > 0) process.exitCode = 1;
}

if (process.argv[1] === fileURLToPath(import.meta.url)) run();
