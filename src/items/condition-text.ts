import type { Condition, ConditionOperator } from '../core/hook.ts';
import { type JsonValue, parseJson } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';

const OPERATORS: Readonly<Record<string, ConditionOperator>> = {
  '==': 'eq',
  '!=': 'ne',
  '>': 'gt',
  '>=': 'gte',
  '<': 'lt',
  '<=': 'lte',
  eq: 'eq',
  ne: 'ne',
  gt: 'gt',
  gte: 'gte',
  lt: 'lt',
  lte: 'lte',
  in: 'in',
  contains: 'contains',
  regex: 'regex',
  exists: 'exists',
};

/** Values that count as false if a condition names nothing but a path. */
const EMPTY: readonly JsonValue[] = [false, '', 0, 'false', 'no', '0', []];

/** A quoted text, a list or object up to its last bracket, a reference, or a word. */
const TOKEN = /"(?:[^"\\]|\\.)*"|'[^']*'|\[[^\]]*\]|\$\{[^{}]*\}|[^\s]+/g;

/**
 * Parses the text of a condition: `PATH`, `PATH OPERATOR VALUE`, `not`, and tests joined by `and` or `or`; `and` binds
 * closer. A path may be written as `${path}`. A path alone is true unless it is missing or empty. Returns the
 * problem for any other text.
 */
export function parseConditionText(text: string): Condition | { readonly problem: string } {
  const tokens = [...text.matchAll(TOKEN)].map(([token]) => token);
  if (tokens.length === 0) return { problem: 'it is empty' };
  const any: Condition[] = [];
  for (const alternative of split(tokens, 'or')) {
    const all: Condition[] = [];
    for (const test of split(alternative, 'and')) {
      const parsed = parseTest(test);
      if ('problem' in parsed) return parsed;
      all.push(parsed);
    }
    any.push(all.length === 1 && all[0] ? all[0] : { all });
  }
  return any.length === 1 && any[0] ? any[0] : { any };
}

function split(tokens: readonly string[], word: string): readonly (readonly string[])[] {
  const parts: string[][] = [[]];
  for (const token of tokens) {
    if (token === word) parts.push([]);
    else parts.at(-1)?.push(token);
  }
  return parts;
}

function parseTest(tokens: readonly string[]): Condition | { readonly problem: string } {
  const [first, ...rest] = tokens;
  if (first === undefined) return { problem: 'a test is missing beside "and" or "or"' };
  if (first === 'not' && rest.length > 0) {
    const negated = parseTest(rest);
    return 'problem' in negated ? negated : { not: negated };
  }
  const path = (/^\$\{\s*([^{}\s]+)\s*\}$/.exec(first)?.[1] ?? first).replaceAll(
    /\[(-?\d+)\]/g,
    '.$1',
  );
  if (!/^[A-Za-z_][\w-]*(?:\.[\w-]+)*$/.test(path)) {
    return { problem: `"${first}" is not a path such as inputs.deep or steps.check.data.ok` };
  }
  const [operator, ...operands] = rest;
  if (operator === undefined) {
    return { all: [{ path, op: 'exists' }, { not: { path, op: 'in', value: EMPTY } }] };
  }
  const op = Object.hasOwn(OPERATORS, operator) ? OPERATORS[operator] : undefined;
  if (op === undefined) {
    const known = Object.keys(OPERATORS);
    return {
      problem: `"${operator}" is not an operator. ${didYouMean(operator, known) ?? `Operators are ${known.join(', ')}.`}`,
    };
  }
  if (op === 'exists') return { path, op };
  if (operands.length === 0) return { problem: `"${operator}" has no value` };
  return { path, op, value: valueOf(operands.join(' ')) };
}

/** JSON, a text in single quotes, or the words as they are. */
function valueOf(text: string): JsonValue {
  const quoted = /^'([^']*)'$/.exec(text)?.[1];
  const value = parseJson(text);
  // a text that it is compared with may be 1.10, which is not 1.1
  if (typeof value === 'number' && String(value) !== text) return text;
  return quoted ?? value ?? text;
}
