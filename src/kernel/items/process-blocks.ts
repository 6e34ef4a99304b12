import type { Condition, ConditionOperator } from '../core/hook.ts';
import { type JsonValue, parseJson } from '../core/json.ts';
import type { ProcessBlock } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { type DirectiveDraft, malformed } from './directive-ast.ts';
import { originOf } from './source.ts';
import type { XmlElement } from './xml.ts';

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

type IfBlock = Extract<ProcessBlock, { kind: 'if' }>;

const ATTRIBUTES = {
  foreach: ['item', 'in', 'parallel', 'on_error'],
  if: ['condition'],
  else: [],
} as const;
const ITEM = /^[A-Za-z_]\w*$/;
/** Names that references begin with already. */
const RESERVED: ReadonlySet<string> = new Set(['steps', 'inputs', 'input', 'env']);
const MAX_PARALLEL = 64;

/**
 * Reads `<foreach>`, `<if>` or an `<else>` that follows an `<if>`, as the block of its steps. Reports what is wrong;
 * returns undefined for an element that cannot be read.
 */
export function readBlock(
  element: XmlElement,
  draft: DirectiveDraft,
  before: XmlElement | undefined,
): readonly [ProcessBlock] | undefined {
  const kind = element.name as keyof typeof ATTRIBUTES;
  const known: readonly string[] = ATTRIBUTES[kind];
  for (const name of element.attributes.keys()) {
    if (known.includes(name)) continue;
    const hint = didYouMean(name, known) ?? `It takes ${known.join(', ') || 'none'}.`;
    malformed(draft, element, `<${kind}> has the unknown attribute "${name}"`, hint);
  }
  const id = draft.steps.length;
  const origin = originOf(element.location);
  if (kind === 'foreach') return readForeach(element, draft, { id, origin });
  const owner = kind === 'else' ? before : element;
  if (owner?.name !== 'if') {
    malformed(draft, element, '<else> does not follow an <if>');
    return undefined;
  }
  const text = (owner.attributes.get('condition') ?? '').trim();
  const condition = parseConditionText(text);
  if ('problem' in condition) {
    if (kind === 'else') return undefined;
    const hint =
      'Write condition="PATH", or condition="PATH OPERATOR VALUE", such as "${inputs.deep} == true".';
    malformed(draft, element, `the condition "${text}" cannot be used: ${condition.problem}`, hint);
    return undefined;
  }
  const block: IfBlock = { kind: 'if', id, condition, text, origin };
  return [kind === 'else' ? negatedBlock(block, id, origin) : block];
}

/** Returns the block of an `<else>`. */
export function negatedBlock({ condition, text }: IfBlock, id: number, origin: string): IfBlock {
  return { kind: 'if', id, condition: { not: condition }, text: `not (${text})`, origin };
}

function readForeach(
  element: XmlElement,
  draft: DirectiveDraft,
  { id, origin }: { readonly id: number; readonly origin: string },
): readonly [ProcessBlock] | undefined {
  const { attributes } = element;
  const read = (name: string, fallback: string): string =>
    (attributes.get(name) ?? fallback).trim();
  const item = read('item', '');
  const list = read('in', '');
  const parallel = Number(read('parallel', '1'));
  const onError = read('on_error', 'fail');
  const fail = (message: string, hint?: string): undefined => {
    malformed(draft, element, message, hint);
    return undefined;
  };
  if (!ITEM.test(item) || RESERVED.has(item)) {
    const hint = 'Write item="f": a name of letters, digits and _, other than steps and inputs.';
    return fail(`<foreach> has no usable item: "${item}"`, hint);
  }
  if (list === '') {
    return fail(
      '<foreach> has no list',
      'Write in="${inputs.files}", in="${steps.find.data}" or a JSON list.',
    );
  }
  if (!Number.isInteger(parallel) || parallel < 1 || parallel > MAX_PARALLEL) {
    return fail(`parallel="${read('parallel', '')}" is not a number from 1 to ${MAX_PARALLEL}`);
  }
  if (onError !== 'fail' && onError !== 'continue') {
    return fail(`on_error="${onError}" is neither fail nor continue`);
  }
  if (list.startsWith('[') && !Array.isArray(parseJson(list))) {
    return fail(`in="${list}" is not a JSON list`, 'Write in="[&quot;a&quot;, &quot;b&quot;]".');
  }
  return [{ kind: 'foreach', id, item, in: list, parallel, on_error: onError, origin }];
}
