import { wireName } from '../../core/ids.ts';
import {
  isJsonObject,
  isRecord,
  type JsonObject,
  type JsonValue,
  parseJson,
  toText,
} from '../../core/json.ts';
import {
  isErrorOutcome,
  type Message,
  type ToolResultMessage,
  textOf,
} from '../../core/message.ts';
import type { OutputDeclaration, ProcessCall, ProcessStep } from '../../core/plan.ts';
import { headBytes } from '../../core/text.ts';
import type { ToolDefinition } from '../provider.ts';

/** The directive to execute, as the thread's plan holds it. */
export interface LiteralDirective {
  readonly steps: readonly ProcessStep[];
  readonly outputs: readonly OutputDeclaration[];
  readonly inputs: JsonObject;
  /** Providers that could follow what literal cannot, such as `anthropic (set ANTHROPIC_API_KEY)`. */
  readonly alternatives: readonly string[];
}

/** A call as it goes out: wire name and arguments. */
export interface LiteralCall {
  readonly callId: string;
  readonly name: string;
  readonly input: JsonObject;
}

/** The provider's next answer. */
export type LiteralMove =
  | { readonly kind: 'calls'; readonly text: string; readonly calls: readonly LiteralCall[] }
  | { readonly kind: 'end'; readonly text: string }
  | {
      readonly kind: 'failed';
      readonly type: 'literal_unsupported' | 'literal_step_failed';
      readonly message: string;
    };

const RETURN_CALL_ID = 'literal-return';
const RETURN_NAMES = ['rye_directive_return', 'directive_return'];
const EXCERPT_BYTES = 500;

/**
 * Decides the next move from the conversation alone, so that a thread can be continued by another process: the call
 * id of result `n` of step `s` is `literal-<s>-<n>`, both from 1. The calls of one step go out together and are
 * independent of each other; a call that needs an earlier result belongs in a later step.
 */
export function nextMove(
  directive: LiteralDirective,
  messages: readonly Message[],
  tools: readonly ToolDefinition[],
): LiteralMove {
  const unsupported = findUnsupported(directive);
  if (unsupported !== undefined) return unsupported;
  const results = resultsOf(messages);
  const scope: { steps: Record<string, StepResult>; inputs: JsonObject } = {
    steps: {},
    inputs: directive.inputs,
  };
  for (const [index, step] of directive.steps.entries()) {
    const settled = step.calls.map((_, call) => results.get(callIdOf(index, call)));
    const failed = settled.find((result) => result !== undefined && isErrorOutcome(result.outcome));
    if (failed !== undefined) return stepFailed(step, failed);
    if (settled.includes(undefined))
      return callsOf({ step, index, tools, scope, total: directive.steps.length });
    scope.steps[step.name] = stepResult(
      settled.flatMap((result) => (result === undefined ? [] : [result])),
    );
  }
  return conclude(directive, returnResult(messages), scope, tools);
}

/** Finds what makes the directive impossible to execute before anything runs, so that nothing stays half done. */
function findUnsupported({ steps, alternatives }: LiteralDirective): LiteralMove | undefined {
  const instead = alternatives.length === 0 ? 'a model provider' : alternatives.join(' or ');
  if (steps.length === 0) {
    return unsupportedMove(
      `the directive has no <process> with steps to execute; run it with ${instead}`,
    );
  }
  const known = new Set<string>();
  for (const [index, step] of steps.entries()) {
    const where = `step ${index + 1} "${step.name}" (${step.origin})`;
    if (step.calls.length === 0) {
      return unsupportedMove(
        `${where} has no action that can be executed as written; run it with ${instead}`,
      );
    }
    const missing = step.calls
      .flatMap(({ params }) => referencedSteps(params))
      .find((name) => !known.has(name));
    if (missing !== undefined) {
      return unsupportedMove(
        `${where} refers to the step "${missing}", which does not come before it`,
      );
    }
    known.add(step.name);
  }
  return undefined;
}

function unsupportedMove(message: string): LiteralMove {
  return {
    kind: 'failed',
    type: 'literal_unsupported',
    message: `literal cannot follow this directive: ${message}`,
  };
}

function resultsOf(messages: readonly Message[]): ReadonlyMap<string, ToolResultMessage> {
  const results = messages.filter((message) => message.role === 'tool_result');
  return new Map(results.map((result) => [result.call_id, result]));
}

/** The answer to the return; none if a later message asks to continue, as in a resumed thread. */
function returnResult(messages: readonly Message[]): ToolResultMessage | undefined {
  const at = messages.findLastIndex(
    (message) => message.role === 'tool_result' && message.call_id.startsWith(RETURN_CALL_ID),
  );
  const result = messages[at];
  if (result?.role !== 'tool_result') return undefined;
  const isAsked = messages.slice(at + 1).some(({ role }) => role === 'user');
  return isAsked && !isErrorOutcome(result.outcome) ? undefined : result;
}

function callIdOf(step: number, call: number): string {
  return `literal-${step + 1}-${call + 1}`;
}

function stepResult(results: readonly ToolResultMessage[]): StepResult {
  const values = results.map((result) => {
    const text = textOf(result.content);
    const data = result.data ?? parseJson(text);
    return data === undefined ? { text } : { text, data };
  });
  const [only, ...more] = values;
  if (only !== undefined && more.length === 0) return only;
  return {
    text: values.map(({ text }) => text).join('\n'),
    data: values.map(({ text, data }) => data ?? text),
  };
}

function stepFailed(step: ProcessStep, { name, content, outcome }: ToolResultMessage): LiteralMove {
  const excerpt = headBytes(textOf(content).trim(), EXCERPT_BYTES);
  return failedMove(
    `step "${step.name}" (${step.origin}): ${name} ended with ${outcome}: ${excerpt}`,
  );
}

function failedMove(message: string): LiteralMove {
  return { kind: 'failed', type: 'literal_step_failed', message };
}

function unresolvedMove(where: string, [first]: readonly Unresolved[]): LiteralMove {
  const available = first?.available ?? [];
  const names =
    available.length === 0 ? 'there is nothing to choose from' : `there is ${available.join(', ')}`;
  return failedMove(`${where}: ${first?.expression ?? ''} has no value; ${names}`);
}

interface StepTurn {
  readonly step: ProcessStep;
  readonly index: number;
  readonly total: number;
  readonly tools: readonly ToolDefinition[];
  readonly scope: Scope;
}

function callsOf({ step, index, total, tools, scope }: StepTurn): LiteralMove {
  const unresolved: Unresolved[] = [];
  const offered = new Set(tools.map(({ name }) => name));
  const calls = step.calls.map((call, position) => {
    const params = resolve(call.params, scope, unresolved) as JsonObject;
    const options = resolve(call.options ?? {}, scope, unresolved) as JsonObject;
    return {
      callId: callIdOf(index, position),
      ...wireCall({ ...call, params, options }, offered),
    };
  });
  if (unresolved.length > 0)
    return unresolvedMove(`step "${step.name}" (${step.origin})`, unresolved);
  const title =
    step.description.trim() === '' ? step.name : step.description.trim().replaceAll(/\s+/g, ' ');
  return { kind: 'calls', text: `Step ${index + 1} of ${total}: ${title}\n`, calls };
}

/**
 * The name under which the tool is offered, else the primary action. What is not offered at all is called by its
 * name nevertheless: the pipeline refuses it with the reason.
 */
function wireCall(
  { primary, item_type, item_id, params, options }: ProcessCall,
  offered: ReadonlySet<string>,
): Pick<LiteralCall, 'name' | 'input'> {
  if (primary !== 'execute')
    return { name: `rye_${primary}`, input: { item_type, item_id, ...params } };
  const direct = wireName(item_id);
  // an asynchronous run is started by the primary action alone
  const viaPrimary =
    offered.has('rye_execute') || item_type !== 'tool' || options?.['async'] === true;
  if (item_type === 'tool' && options?.['async'] !== true && (offered.has(direct) || !viaPrimary))
    return { name: direct, input: params };
  return { name: 'rye_execute', input: { ...options, item_type, item_id, parameters: params } };
}

function conclude(
  directive: LiteralDirective,
  returned: ToolResultMessage | undefined,
  scope: Scope,
  tools: readonly ToolDefinition[],
): LiteralMove {
  const last = scope.steps[directive.steps.at(-1)?.name ?? ''] ?? { text: '' };
  if (directive.outputs.length === 0) return { kind: 'end', text: last.text };
  if (returned !== undefined) {
    if (!isErrorOutcome(returned.outcome)) return { kind: 'end', text: last.text };
    return failedMove(
      `the outputs were refused: ${headBytes(textOf(returned.content).trim(), EXCERPT_BYTES)}`,
    );
  }
  const input: Record<string, JsonValue> = {};
  for (const output of directive.outputs) {
    const unresolved: Unresolved[] = [];
    const value =
      output.from === undefined ? byDefault(output, last) : resolve(output.from, scope, unresolved);
    if (unresolved.length === 0) input[output.name] = typed(value, output);
    else if (output.required) return unresolvedMove(`the output "${output.name}"`, unresolved);
  }
  const name = RETURN_NAMES.find((candidate) => tools.some((tool) => tool.name === candidate));
  return {
    kind: 'calls',
    text: '',
    calls: [{ callId: RETURN_CALL_ID, name: name ?? 'rye_directive_return', input }],
  };
}

/** Without `from`: the last step's member of the same name, else its text. */
function byDefault({ name }: OutputDeclaration, { text, data }: StepResult): JsonValue {
  const member = isJsonObject(data) && Object.hasOwn(data, name) ? data[name] : undefined;
  return member ?? text;
}

/** Text that spells a value of the declared type becomes that value; anything else stays for the return to judge. */
function typed(value: JsonValue, { type }: OutputDeclaration): JsonValue {
  const isText = type === 'string' || type === 'file' || type === 'enum';
  if (isText) return toText(value);
  return typeof value === 'string' ? (parseJson(value) ?? value) : value;
}

/** The result of a finished step. */
export interface StepResult {
  readonly text: string;
  /** The result as a value, where its text is JSON. A step of several calls has a list. */
  readonly data?: JsonValue;
}

/** The values that expressions can refer to. */
export interface Scope {
  readonly steps: Readonly<Record<string, StepResult>>;
  readonly inputs: JsonObject;
}

/** A reference that has no value, and the names that exist at the place where it broke. */
export interface Unresolved {
  readonly expression: string;
  readonly available: readonly string[];
}

/** `${steps.…}` and `${inputs.…}`; anything else in braces is the text's own, such as `${HOME}` in a command. */
const REFERENCE = /\$\{\s*((?:steps|inputs)\.[^{}\s]+)\s*\}/g;

/** Names of the steps that the strings inside `value` refer to. */
function referencedSteps(value: JsonValue): readonly string[] {
  return stringsOf(value).flatMap((text) =>
    [...text.matchAll(REFERENCE)].flatMap(([, path = '']) => {
      const [root, name] = path.split('.');
      return root === 'steps' && name !== undefined ? [name] : [];
    }),
  );
}

function stringsOf(value: JsonValue | undefined): readonly string[] {
  if (typeof value === 'string') return [value];
  if (Array.isArray(value)) return value.flatMap(stringsOf);
  return isRecord(value) ? Object.values(value).flatMap(stringsOf) : [];
}

/**
 * Replaces the references inside `value`, everywhere, once: what a reference brings in is not looked at again. A
 * string that is one reference keeps the type of its value. References without a value are added to `unresolved`
 * and stay as they are.
 */
export function resolve(value: JsonValue, scope: Scope, unresolved: Unresolved[]): JsonValue {
  if (typeof value === 'string') return resolveText(value, scope, unresolved);
  if (Array.isArray(value)) return value.map((item: JsonValue) => resolve(item, scope, unresolved));
  if (!isRecord(value)) return value;
  const entries = Object.entries(value).map(([key, member]) => [
    key,
    member === undefined ? undefined : resolve(member, scope, unresolved),
  ]);
  return Object.fromEntries(entries) as JsonObject;
}

function resolveText(text: string, scope: Scope, unresolved: Unresolved[]): JsonValue {
  const [whole] = [...text.matchAll(REFERENCE)];
  if (whole?.[0] === text.trim() && whole[1] !== undefined) {
    const found = lookUp(whole[1], scope, unresolved);
    return found === undefined ? text : found;
  }
  return text.replaceAll(REFERENCE, (match: string, path: string) => {
    const found = lookUp(path, scope, unresolved);
    return found === undefined ? match : toText(found);
  });
}

function lookUp(path: string, scope: Scope, unresolved: Unresolved[]): JsonValue | undefined {
  let at: unknown = scope;
  for (const key of path.split('.')) {
    const container: unknown = at;
    at = isContainer(container) && Object.hasOwn(container, key) ? container[key] : undefined;
    if (at === undefined) {
      unresolved.push({
        expression: `\${${path}}`,
        available: isContainer(container) ? Object.keys(container).slice(0, 12) : [],
      });
      return undefined;
    }
  }
  return at as JsonValue;
}

function isContainer(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null;
}
