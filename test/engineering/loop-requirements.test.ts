import { existsSync, readFileSync } from 'node:fs';
import ts from 'typescript';
import { describe, expect, it } from 'vitest';

const ROW = /^\| (A-\d{3}) \| (core|SDK) \| (.+?) \| (.+) \|$/;
/** `file › describe › title`, and ` = name` for one case of a table whose title is `$name`. */
const REFERENCE = /`([^`]+?\.ts) › ([^`]+?)(?: = ([^`]+))?`/g;
const REASON = /^(?:Not taken: .+\.|Not yet\.)/;
/** Functions of the tests that take a table of tests, each with its title as `name`. */
const TABLES: ReadonlySet<string> = new Set(['attacks', 'harmless']);

const rows = readFileSync('docs/loop-requirements.md', 'utf8')
  .split('\n')
  .flatMap((line) => {
    const [, id = '', , , shown = ''] = ROW.exec(line) ?? [];
    return id === '' ? [] : [{ id, shown, references: [...shown.matchAll(REFERENCE)] }];
  });

interface Titles {
  /** Each test's title behind those of the describes around it. */
  readonly tests: ReadonlySet<string>;
  /** Members `name` of tables, also of those in files that the test imports from beside it. */
  readonly cases: ReadonlySet<string>;
}

/** The titles of the tests of a file as its code has them, placeholders included. */
function titlesOf(file: string): Titles {
  const source = parse(file);
  const tests = new Set<string>();
  const visit = (node: ts.Node, path: readonly string[]): void => {
    const call = ts.isCallExpression(node) ? node : undefined;
    const title = call && textOf(call.arguments[0]);
    const name = call && rootOf(call.expression);
    if (call && name !== undefined && TABLES.has(name)) {
      for (const one of namesIn(call)) tests.add([...path, one].join(' › '));
    } else if (title !== undefined && (name === 'it' || name === 'test')) {
      tests.add([...path, title].join(' › '));
    } else {
      const inner = name === 'describe' && title !== undefined ? [...path, title] : path;
      ts.forEachChild(node, (child) => visit(child, inner));
    }
  };
  visit(source, []);
  const imported = source.statements.flatMap((one) => {
    const from = ts.isImportDeclaration(one) ? textOf(one.moduleSpecifier) : undefined;
    return from?.startsWith('./') === true ? [file.replace(/[^/]+$/, from.slice(2))] : [];
  });
  return { tests, cases: new Set([file, ...imported].flatMap((one) => namesIn(parse(one)))) };
}

function parse(file: string): ts.SourceFile {
  return ts.createSourceFile(file, readFileSync(file, 'utf8'), ts.ScriptTarget.Latest, true);
}

/** `it` of `it.each(table)('title', …)`. */
function rootOf(node: ts.Expression): string | undefined {
  if (ts.isIdentifier(node)) return node.text;
  if (ts.isTaggedTemplateExpression(node)) return rootOf(node.tag);
  const hasInner = ts.isCallExpression(node) || ts.isPropertyAccessExpression(node);
  return hasInner ? rootOf(node.expression) : undefined;
}

function textOf(node: ts.Node | undefined): string | undefined {
  if (!node) return undefined;
  if (ts.isStringLiteral(node) || ts.isNoSubstitutionTemplateLiteral(node)) return node.text;
  return ts.isTemplateExpression(node) ? node.getText().slice(1, -1) : undefined;
}

function namesIn(node: ts.Node): readonly string[] {
  const isName = ts.isPropertyAssignment(node) && node.name.getText() === 'name';
  const own = isName ? textOf(node.initializer) : undefined;
  const found = own === undefined ? [] : [own];
  ts.forEachChild(node, (child) => {
    found.push(...namesIn(child));
  });
  return found;
}

const known = new Map<string, Titles>();

/** True if the file has a test of exactly this title, and its table this case. */
function exists(file = '', title = '', one?: string): boolean {
  const path = `test/${file}`;
  if (!existsSync(path)) return false;
  const titles = known.get(path) ?? titlesOf(path);
  known.set(path, titles);
  return titles.tests.has(title) && (one === undefined || titles.cases.has(one));
}

describe('docs/loop-requirements.md', () => {
  it('has each of the 172 requirements exactly once, in order', () => {
    const ids = Array.from({ length: 172 }, (_, index) => `A-${`${index + 1}`.padStart(3, '0')}`);
    expect(rows.map(({ id }) => id)).toEqual(ids);
  });

  it('names tests that exist', () => {
    const missing = rows.flatMap(({ id, references }) =>
      references
        .filter(([, ...named]) => !exists(...named))
        .map(([reference]) => `${id} ${reference}`),
    );
    expect(missing).toEqual([]);
  });

  it('would notice a title that is only a word of the file, and a case that no table has', () => {
    const file = 'loop/traces.test.ts';
    expect(exists(file, 'event traces › aborted')).toBe(true);
    expect(exists(file, 'aborted')).toBe(false);
    expect(exists(file, 'event traces › tools')).toBe(false);
    expect(exists(file, 'event traces › $name', 'tools')).toBe(true);
    expect(exists(file, 'event traces › $name', 'rye_echo_2')).toBe(false);
    expect(exists('loop/none.test.ts', 'event traces › aborted')).toBe(false);
  });

  it('shows each requirement by a test, or says why it is not taken', () => {
    const bare = rows.filter(
      ({ shown, references }) => references.length === 0 && !REASON.test(shown),
    );
    expect(bare.map(({ id }) => id)).toEqual([]);
  });
});
