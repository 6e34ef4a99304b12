import { RyeError } from '../../core/errors.ts';
import type { SearchFilters, SearchNode, TextField } from '../../core/search.ts';

const FTS_COLUMN: Readonly<Record<TextField, string>> = {
  title: 'title',
  tag: 'tags',
  body: 'body',
  id: 'id',
};

/** An expression of FTS5, and whether it only says what must not match. */
interface Compiled {
  readonly text: string;
  readonly negative: boolean;
}

/**
 * Compiles a query to FTS5 syntax. Every piece of user text stands in a quoted string, so none of it is syntax. FTS5
 * knows `a NOT b` only: negations are gathered behind the positive part of their conjunction, and one that has
 * no positive part beside it is refused with `query_malformed`.
 */
export function compileFts(node: SearchNode): string {
  const { text, negative } = compile(node);
  if (negative) throw onlyNegative();
  return text;
}

function compile(node: SearchNode): Compiled {
  if (node.kind === 'or') return any(node.nodes.map(compile));
  if (node.kind === 'and') return all(node.nodes.map(compile));
  if (node.kind === 'not') {
    const { text, negative } = compile(node.node);
    return { text, negative: !negative };
  }
  const prefix = node.kind === 'term' && node.prefix ? ' *' : '';
  return positive(`${column(node.field)}${quoted(node.text)}${prefix}`);
}

function any(nodes: readonly Compiled[]): Compiled {
  // not a or not b is not (a and b); a mixture has no FTS5 form
  if (nodes.every(({ negative }) => negative) && nodes.length > 0) {
    return { text: joined(nodes, ' AND '), negative: true };
  }
  if (nodes.some(({ negative }) => negative)) throw onlyNegative();
  return positive(joined(nodes, ' OR '));
}

function all(nodes: readonly Compiled[]): Compiled {
  const wanted = nodes.filter(({ negative }) => !negative);
  const unwanted = nodes.filter(({ negative }) => negative);
  if (wanted.length === 0) return { text: joined(unwanted, ' OR '), negative: true };
  if (unwanted.length === 0) return positive(joined(wanted, ' AND '));
  return positive(`(${joined(wanted, ' AND ')} NOT ${joined(unwanted, ' OR ')})`);
}

function positive(text: string): Compiled {
  return { text, negative: false };
}

function joined(nodes: readonly Compiled[], operator: string): string {
  if (nodes.length === 0) throw new RyeError('query_malformed', 'the query has an empty group');
  return `(${nodes.map(({ text }) => text).join(operator)})`;
}

function column(field: TextField | undefined): string {
  return field === undefined ? '' : `${FTS_COLUMN[field]} : `;
}

function quoted(text: string): string {
  // SQLite reads its arguments up to a NUL
  return `"${text.replaceAll('\0', ' ').replaceAll('"', '""')}"`;
}

function onlyNegative(): RyeError {
  return new RyeError('query_malformed', 'a NOT needs something beside it that is wanted', {
    hint: 'Write the words to find first, such as "budget NOT ledger".',
  });
}

/** SQL conditions on the `documents` table, with the values to bind, in order. */
export function compileFilters(filters: SearchFilters): {
  readonly conditions: readonly string[];
  readonly parameters: readonly string[];
} {
  const { types, space, directive, status, model, after, before, granted, without } = filters;
  const conditions: string[] = [];
  const parameters: string[] = [];
  if (types) {
    conditions.push(`documents.type IN (${types.map(() => '?').join(', ')})`);
    parameters.push(...types);
  }
  if (granted) {
    const capability = `('rye.fetch.' || documents.type || '.' || replace(documents.id, '/', '.'))`;
    conditions.push(`(0 ${granted.map(() => `OR ${capability} GLOB ?`).join(' ')})`);
    parameters.push(...granted);
  }
  if (without !== undefined) {
    conditions.push('substr(documents.id, 1, length(?)) <> ?');
    parameters.push(without, without);
  }
  const exact: readonly (readonly [string, string | undefined])[] = [
    ['documents.space =', space],
    ['documents.directive =', directive],
    ['documents.status =', status],
    ['documents.model =', model],
    ['documents.time >=', after],
    ['documents.time <', before],
  ];
  for (const [condition, value] of exact) {
    if (value === undefined) continue;
    conditions.push(`${condition} ?`);
    parameters.push(value);
  }
  return { conditions, parameters };
}
