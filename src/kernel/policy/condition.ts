import { RyeError, type SourceLocation } from '../core/errors.ts';
import type { Condition, ConditionOperator } from '../core/hook.ts';
import { isRecord, type JsonValue, jsonEquals, parseJson } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';
import { parsePath, valueAt } from './interpolate.ts';
import { regexFinds, regexProblem } from './regex.ts';

export { conditionPaths } from '../core/hook.ts';

const MAX_DEPTH = 32;
const MAX_NODES = 500;
const COMBINATORS = ['any', 'all', 'not'] as const;
const MEMBERS = ['path', 'op', 'value', ...COMBINATORS] as const;

/** The operators of conditions. */
export const CONDITION_OPERATORS = [
  'eq',
  'ne',
  'gt',
  'gte',
  'lt',
  'lte',
  'in',
  'contains',
  'regex',
  'exists',
] as const satisfies readonly ConditionOperator[];

const ORDERING: ReadonlySet<ConditionOperator> = new Set(['gt', 'gte', 'lt', 'lte']);

type Leaf = Extract<Condition, { readonly path: string }>;
type Compare = (actual: unknown, expected: JsonValue | undefined) => boolean;

const ALWAYS: Condition = { all: [] };

/**
 * Validates a condition as written in YAML or typed from XML. Nothing at all (null, undefined, `{}`) is true; `op`
 * defaults to `eq`. `condition_invalid` with the place inside the condition for anything else that is malformed.
 */
export function parseCondition(raw: unknown, location?: SourceLocation): Condition {
  let nodes = 0;
  const fail = (where: string, message: string, hint?: string): never => {
    throw new RyeError('condition_invalid', `${where}: ${message}`, { location, hint });
  };

  const parse = (node: unknown, where: string, depth: number): Condition => {
    nodes += 1;
    if (depth > MAX_DEPTH || nodes > MAX_NODES) {
      return fail(where, `it has more than ${MAX_DEPTH} levels or ${MAX_NODES} nodes`);
    }
    if (node === null || node === undefined) return ALWAYS;
    if (!isRecord(node))
      return fail(where, 'it is not a mapping', 'Write {path, op, value}, or any, all, not.');
    const members = Object.keys(node);
    if (members.length === 0) return ALWAYS;
    const unknown = members.find((member) => !MEMBERS.some((known) => known === member));
    if (unknown !== undefined) {
      return fail(where, `unknown member "${unknown}"`, didYouMean(unknown, MEMBERS));
    }
    const combinator = COMBINATORS.find((name) => Object.hasOwn(node, name));
    if (combinator === undefined)
      return parseLeaf(node, (message, hint) => fail(where, message, hint));
    if (members.length > 1) {
      return fail(where, `"${combinator}" has other members beside it`, 'Nest them under one all.');
    }
    const below = node[combinator];
    if (combinator === 'not') return { not: parse(below, `${where}.not`, depth + 1) };
    if (!Array.isArray(below)) return fail(where, `"${combinator}" is not a list of conditions`);
    const parts = below.map((part, index) =>
      parse(part, `${where}.${combinator}[${index}]`, depth + 1),
    );
    return combinator === 'any' ? { any: parts } : { all: parts };
  };

  return parse(raw, 'condition', 1);
}

function parseLeaf(
  node: Record<string, unknown>,
  fail: (message: string, hint?: string) => never,
): Leaf {
  const { path, op = 'eq' } = node;
  if (typeof path !== 'string' || parsePath(path) === undefined) {
    return fail(
      `${JSON.stringify(path) ?? 'nothing'} is not a path`,
      'Write a dotted path such as cost.turns.',
    );
  }
  const operator = CONDITION_OPERATORS.find((known) => known === op);
  if (operator === undefined) {
    return fail(
      `unknown operator ${JSON.stringify(op)}`,
      didYouMean(String(op), CONDITION_OPERATORS) ??
        `Operators: ${CONDITION_OPERATORS.join(', ')}.`,
    );
  }
  const value = normalValue(operator, node['value']);
  const problem = valueProblem(operator, value);
  if (problem !== undefined) return fail(`the value of "${operator}" ${problem}`);
  return value === undefined ? { path, op: operator } : { path, op: operator, value };
}

/** XML attributes carry lists as JSON text and patterns that look like numbers as numbers. */
function normalValue(operator: ConditionOperator, value: unknown): JsonValue | undefined {
  if (operator === 'exists' && value === true) return undefined;
  if (operator === 'regex' && typeof value === 'number') return String(value);
  if (operator === 'in' && typeof value === 'string' && value.trimStart().startsWith('[')) {
    return parseJson(value) ?? value;
  }
  return value as JsonValue | undefined;
}

function valueProblem(
  operator: ConditionOperator,
  value: JsonValue | undefined,
): string | undefined {
  if (operator === 'exists') {
    return value === undefined ? undefined : 'is not wanted; to ask for absence wrap it in not';
  }
  if (value === undefined) return 'is missing';
  if (operator === 'in') return Array.isArray(value) ? undefined : 'is not a list';
  if (operator === 'regex') return patternProblem(value);
  const comparable = typeof value === 'number' || typeof value === 'string';
  return ORDERING.has(operator) && !comparable ? 'is neither a number nor a string' : undefined;
}

function patternProblem(value: JsonValue): string | undefined {
  if (typeof value !== 'string') return 'is not a string';
  const problem = regexProblem(value);
  return problem === undefined ? undefined : `is not a usable pattern: ${problem}`;
}

const NUMERAL = /^\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?\s*$/;

function numberOf(value: unknown): number | undefined {
  if (typeof value === 'number') return value;
  return typeof value === 'string' && NUMERAL.test(value) ? Number(value) : undefined;
}

/** Returns the text of a text, a number or a boolean. */
function plainText(value: unknown): string | undefined {
  if (typeof value === 'string') return value;
  return typeof value === 'number' || typeof value === 'boolean' ? String(value) : undefined;
}

/** A text and a number or boolean are equal by value: XML, YAML and tools type the same thing in different ways. */
function same(actual: unknown, expected: unknown): boolean {
  if (jsonEquals(actual, expected)) return true;
  if (typeof actual === typeof expected) return false;
  const left = numberOf(actual);
  if (left !== undefined && left === numberOf(expected)) return true;
  const text = plainText(actual);
  return text !== undefined && text === plainText(expected);
}

function ordered(decide: (sign: number) => boolean): Compare {
  return (actual, expected) => {
    const [left, right] = [numberOf(actual), numberOf(expected)];
    if (left !== undefined && right !== undefined) return decide(Math.sign(left - right));
    if (typeof actual !== 'string' || typeof expected !== 'string') return false;
    return decide(actual < expected ? -1 : Number(actual > expected));
  };
}

const COMPARE: Readonly<Record<ConditionOperator, Compare>> = {
  eq: (actual, expected) => actual !== undefined && same(actual, expected),
  ne: (actual, expected) => actual === undefined || !same(actual, expected),
  gt: ordered((sign) => sign > 0),
  gte: ordered((sign) => sign >= 0),
  lt: ordered((sign) => sign < 0),
  lte: ordered((sign) => sign <= 0),
  in: (actual, expected) =>
    actual !== undefined && Array.isArray(expected) && expected.some((item) => same(actual, item)),
  contains: (actual, expected) => {
    if (Array.isArray(actual)) return actual.some((item) => same(item, expected));
    const part = plainText(expected);
    return typeof actual === 'string' && part !== undefined && actual.includes(part);
  },
  regex: (actual, expected) => {
    const text = plainText(actual);
    return text !== undefined && typeof expected === 'string' && regexFinds(expected, text);
  },
  exists: (actual) => actual !== undefined && actual !== null,
};

/**
 * True if a parsed condition holds in a context. Never throws. Paths through own members only; a missing value makes
 * `ne` true and everything else false, `exists` takes null for missing, and ordering across types is false.
 */
export function evaluate(condition: Condition, context: unknown): boolean {
  if ('any' in condition) return condition.any.some((part) => evaluate(part, context));
  if ('all' in condition) return condition.all.every((part) => evaluate(part, context));
  if ('not' in condition) return !evaluate(condition.not, context);
  return COMPARE[condition.op](actualOf(condition, context), condition.value);
}

function actualOf(leaf: Leaf, context: unknown): unknown {
  return valueAt(context, parsePath(leaf.path) ?? []);
}

/** A node that decided a condition's result, with the values compared where it is a comparison. */
export interface DecidingNode {
  /** Place inside the condition, such as `all[1].not`; empty for the condition itself. */
  readonly node: string;
  readonly result: boolean;
  /** One line for people, such as `cost.turns gt 5 is false: it is 3`. */
  readonly text: string;
}

/** The result of a condition, and the nodes without which it would have been the other one. */
export interface Explanation {
  readonly result: boolean;
  readonly because: readonly DecidingNode[];
}

/** Evaluates like {@link evaluate} and names the nodes that decided. */
export function explain(condition: Condition, context: unknown): Explanation {
  const result = evaluate(condition, context);
  return { result, because: deciding(condition, context, '') };
}

function deciding(condition: Condition, context: unknown, node: string): DecidingNode[] {
  const result = evaluate(condition, context);
  if ('not' in condition) return deciding(condition.not, context, join(node, 'not'));
  if ('path' in condition) {
    return [{ node, result, text: leafText(condition, actualOf(condition, context), result) }];
  }
  const [name, parts] =
    'any' in condition ? (['any', condition.any] as const) : (['all', condition.all] as const);
  if (parts.length === 0) return [{ node, result, text: `${name} of nothing is ${result}` }];
  const agreeing = parts.flatMap((part, index) =>
    evaluate(part, context) === result
      ? deciding(part, context, join(node, `${name}[${index}]`))
      : [],
  );
  // One part is enough to make an `any` true or an `all` false.
  return result === (name === 'any') ? agreeing.slice(0, 1) : agreeing;
}

function join(outer: string, inner: string): string {
  return outer === '' ? inner : `${outer}.${inner}`;
}

function leafText({ path, op, value }: Leaf, actual: unknown, result: boolean): string {
  const compared = value === undefined ? '' : ` ${shown(value)}`;
  return `${path} ${op}${compared} is ${result}: it is ${actual === undefined ? 'missing' : shown(actual)}`;
}

function shown(value: unknown): string {
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}…` : text;
}

/** True, false, or the paths that must be known before the condition can be judged. */
export type Forecast = boolean | readonly string[];

/** Judges a condition as far as the paths that are known before a run allow. */
export function forecast(
  condition: Condition,
  context: unknown,
  isKnown: (path: string) => boolean,
): Forecast {
  if ('not' in condition) {
    const below = forecast(condition.not, context, isKnown);
    return typeof below === 'boolean' ? !below : below;
  }
  if ('path' in condition)
    return isKnown(condition.path) ? evaluate(condition, context) : [condition.path];
  const [parts, decisive] = 'any' in condition ? [condition.any, true] : [condition.all, false];
  const judged = parts.map((part) => forecast(part, context, isKnown));
  if (judged.includes(decisive)) return decisive;
  const open = judged.flatMap((one) => (typeof one === 'boolean' ? [] : one));
  return open.length === 0 ? !decisive : [...new Set(open)];
}
