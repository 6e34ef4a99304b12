import { type JsonObject, type JsonValue, toText } from '../core/json.ts';
import type { ProcessStep } from '../core/plan.ts';
import { processLines } from '../core/process-text.ts';
import { mapTexts } from '../core/process-values.ts';
import {
  hasResult,
  hasSchema,
  propertiesOf,
  type ResultShape,
  resultSchema,
} from '../core/return-schema.ts';
import { escapeXml } from '../core/text.ts';

export interface PromptParts {
  readonly name: string;
  readonly description: string;
  /** The `<permissions>` element as written; empty if there is none. */
  readonly permissionsXml: string;
  /** Interpolated body. */
  readonly body: string;
  /** The result that the model returns. */
  readonly result: ResultShape;
  /** The explicit steps. A model is shown those with lists or conditions. */
  readonly steps?: readonly ProcessStep[];
  /** Values of the references in the steps. */
  readonly values?: JsonObject;
}

/**
 * Returns the `<directive …>` text of the first user message: description, permissions as written, body, and for a
 * directive with a result the instruction how to return it.
 */
export function renderPrompt({
  name,
  description,
  permissionsXml,
  body,
  result,
  steps = [],
  values = {},
}: PromptParts): string {
  return [
    `<directive name="${escapeXml(name)}">`,
    `<description>${escapeText(description)}</description>`,
    permissionsXml,
    body.trim(),
    steps.some(({ within }) => within !== undefined)
      ? ['Follow this process:', ...processLines(steps, values)].join('\n')
      : '',
    hasResult(result) ? returnInstruction(result) : '',
    '</directive>',
  ]
    .filter((part) => part !== '')
    .join('\n');
}

function returnInstruction({ outputs, schema }: ResultShape): string {
  const { required } = resultSchema({ outputs, schema });
  const own = new Set(outputs.map(({ name }) => name));
  const fields = [
    ...outputs.map((output) => [output.name, output.description, output.type] as const),
    ...[...propertiesOf(schema)]
      .filter(([name]) => !own.has(name))
      .map(([name, { description, type }]) => [name, description, type] as const),
  ].map(([name, description, type]) => {
    const about = typeof description === 'string' && description !== '' ? description : name;
    const kind = typeof type === 'string' ? ` (${type})` : '';
    const isRequired = Array.isArray(required) && required.includes(name);
    return `  ${JSON.stringify(name)}: "<${about}${kind}${isRequired ? ' [required]' : ''}>"`;
  });
  const what = fields.length === 0 ? 'an object that matches its schema' : 'these fields';
  return [
    `When you have completed all steps, call the \`rye_directive_return\` tool, through the tool API and not as text, with ${what}:`,
    ...(fields.length === 0 ? [] : [`{\n${fields.join(',\n')}\n}`]),
    ...(hasSchema({ outputs, schema }) ? ["The tool's schema describes each field in full."] : []),
    'If you are blocked and cannot finish, call it with "status": "error" and say why in "error_detail".',
  ].join('\n');
}

function escapeText(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;');
}

/** Values that directive text can refer to. */
export interface InterpolationScope {
  readonly inputs: JsonObject;
  /** Inputs whose value is replaced with the handle `{secret:NAME}`. */
  readonly secretNames: readonly string[];
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Names that `{env:V}` may read (`interpolation.env_allow`). */
  readonly envAllow: readonly string[];
}

/** An interpolated value and its unresolved references. */
export interface Interpolated<T> {
  readonly value: T;
  /** Such as `{input:name}`, without duplicates. */
  readonly missing: readonly string[];
}

// Defaults are bounded, so that unclosed references take linear time.
const REFERENCE =
  /\{input:([A-Za-z_][\w-]*)(\?|[:|][^}]{0,1000})?\}|\$\{\s*inputs\.([A-Za-z_][\w-]*)\s*(?:\|\|\s*(?:'([^'{}]{0,1000})'|"([^"{}]{0,1000})")\s*)?\}|\{env:([A-Za-z_]\w*)(?::([^}]{0,1000}))?\}/g;

/**
 * Replaces `{input:k}`, `{input:k?}`, `{input:k:default}`, `{input:k|default}`, `${inputs.k}`, `${inputs.k || 'default'}`, `{env:V}` and
 * `{env:V:default}` in one pass; values are never expanded again. Non-strings become JSON. A missing input and a variable
 * that is unset or not allowed take their default, else stay unchanged and are reported.
 */
export function interpolateText(text: string, scope: InterpolationScope): Interpolated<string> {
  const missing = new Set<string>();
  const value = text.replaceAll(REFERENCE, (whole, ...groups: (string | undefined)[]) => {
    const found = lookUp(groups, scope);
    if (found !== undefined) return toText(found);
    missing.add(whole);
    return whole;
  });
  return { value, missing: [...missing] };
}

/**
 * Returns the values of the references in process steps, by reference as written. The steps keep their references: a run
 * replaces them together with those to results, in one pass.
 */
export function processValues(
  steps: readonly ProcessStep[],
  scope: InterpolationScope,
): Interpolated<JsonObject> {
  const missing = new Set<string>();
  const values = new Map<string, JsonValue>();
  const collect = (text: string): string => {
    for (const [whole, ...groups] of text.matchAll(REFERENCE)) {
      const found = lookUp(groups, scope);
      if (found === undefined) missing.add(whole);
      else values.set(whole, found);
    }
    return text;
  };
  for (const { description, calls, within = [] } of steps) {
    collect(description);
    for (const { item_id: id, params, options = {} } of calls)
      mapTexts([id, params, options], collect);
    for (const block of within) if (block.kind === 'foreach') mapTexts(block.in, collect);
  }
  return { value: Object.fromEntries(values), missing: [...missing] };
}

/** Returns the inputs that a text refers to without a default, for `rye validate`. */
export function referredInputs(
  text: string,
): readonly { readonly name: string; readonly offset: number }[] {
  return [...text.matchAll(REFERENCE)].flatMap((match) => {
    const hasDefault = [match[2], match[4], match[5]].some((one) => one !== undefined);
    const name = hasDefault ? undefined : (match[1] ?? match[3]);
    return name === undefined ? [] : [{ name, offset: match.index }];
  });
}

/** Alternatives after `||`, which only {@link REFERENCE} and hooks have. */
const ALTERNATIVE = /\$\{\s*(?:inputs|steps)\b[^{}]*\|\|[^{}]*\}/g;

/** Returns the expressions of a directive's text that look like references with a default and are none. */
export function brokenDefaults(text: string): readonly string[] {
  return [...text.matchAll(ALTERNATIVE)]
    .map(([found]) => found)
    .filter((found) => found.replaceAll(REFERENCE, '') !== '');
}

/** Returns inputs for plans, thread.json and hooks, with secret values as `***`. */
export function displayInputs(values: JsonObject, secretNames: readonly string[]): JsonObject {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      secretNames.includes(name) ? '***' : value,
    ]),
  );
}

function lookUp(
  groups: readonly (string | undefined)[],
  scope: InterpolationScope,
): JsonValue | undefined {
  const [input, suffix, dotted, single, double, variable, fallback] = groups;
  if (variable !== undefined) {
    const value = scope.envAllow.includes(variable) ? scope.env[variable] : undefined;
    return value ?? fallback;
  }
  const name = input ?? dotted ?? '';
  const value = Object.hasOwn(scope.inputs, name) ? scope.inputs[name] : undefined;
  if (value !== undefined) return scope.secretNames.includes(name) ? `{secret:${name}}` : value;
  if (suffix === undefined) return single ?? double;
  return suffix === '?' ? '' : suffix.slice(1);
}
