import { parseJson } from '../core/json.ts';
import type { ProcessBlock } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { parseConditionText } from './condition-text.ts';
import { type DirectiveDraft, malformed } from './directive-ast.ts';
import { originOf } from './source.ts';
import type { XmlElement } from './xml.ts';

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
