import { readdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import ts from 'typescript';
import { expect, it } from 'vitest';
import { ENTRY_TYPES, LOG_ONLY_TYPES } from '../../src/kernel/core/events.ts';

const SOURCES = path.resolve(import.meta.dirname, '../../src');
const TYPES: ReadonlySet<string> = new Set([...ENTRY_TYPES, ...LOG_ONLY_TYPES]);
/** Fewer types in one place are a special layout of a face, such as that of streamed text. */
const TABLE = 6;

/** Files with a table that has no words for people, and its reason. */
const OTHERS: Readonly<Record<string, string>> = {
  'kernel/core/events.ts': 'the types themselves',
  'kernel/export/redact.ts': 'the members that a redacted export keeps',
  'kernel/log/continuation.ts': 'the entries that a successor gets',
  'kernel/log/tree-filter.ts': 'the entries that a filter of the tree hides',
  'kernel/schemas/events.ts': 'the shapes of the payloads',
};

/** Returns the event types that a table, a list or a function tells apart. */
function typesIn(node: ts.Node): ReadonlySet<string> {
  if (ts.isObjectLiteralExpression(node)) return typesOf(node.properties.map(({ name }) => name));
  if (ts.isArrayLiteralExpression(node)) return typesOf(node.elements);
  return typesOf(ts.isFunctionLike(node) ? comparedIn(node) : []);
}

function typesOf(names: readonly (ts.Node | undefined)[]): ReadonlySet<string> {
  return new Set(
    names
      .map((name) => (name && (ts.isStringLiteral(name) || ts.isIdentifier(name)) ? name.text : ''))
      .filter((name) => TYPES.has(name)),
  );
}

/** Returns the texts that code compares with: `case 'note'`, `type === 'note'`, `isKnown(event, 'note')`. */
function comparedIn(node: ts.Node): readonly ts.Node[] {
  const found: ts.Node[] = [];
  node.forEachChild((child) => {
    if (ts.isCaseClause(child)) found.push(child.expression);
    if (ts.isBinaryExpression(child)) found.push(child.left, child.right);
    if (ts.isCallExpression(child)) found.push(...child.arguments);
    found.push(...comparedIn(child));
  });
  return found.filter((one) => ts.isStringLiteral(one));
}

function hasTable(node: ts.Node): boolean {
  if (typesIn(node).size >= TABLE) return true;
  return node.forEachChild((child) => hasTable(child) || undefined) === true;
}

it('one table has the words about events for people', () => {
  const found = readdirSync(SOURCES, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.ts'))
    .filter((name) => {
      const text = readFileSync(path.join(SOURCES, name), 'utf8');
      if (new Set(text.match(/\b[a-z_]+\b/g)?.filter((word) => TYPES.has(word))).size < TABLE)
        return false;
      return hasTable(ts.createSourceFile(name, text, ts.ScriptTarget.Latest, true));
    });
  expect(found.toSorted()).toEqual([...Object.keys(OTHERS), 'kernel/log/account.ts'].toSorted());
});
