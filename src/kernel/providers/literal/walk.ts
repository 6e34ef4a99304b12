import { wireName } from '../../core/ids.ts';
import { type JsonObject, type JsonValue, parseJson, toText } from '../../core/json.ts';
import {
  type CallBatch,
  isErrorOutcome,
  type ToolOutcome,
  type ToolResultMessage,
  textOf,
} from '../../core/message.ts';
import type { ProcessCall, ProcessStep } from '../../core/plan.ts';
import { withProcessValues } from '../../core/process-values.ts';
import { headBytes } from '../../core/text.ts';
import { conditionPaths, evaluate } from '../../policy/condition.ts';
import type { ToolDefinition } from '../provider.ts';
import { type ProcessNode, stepsOf } from './blocks.ts';
import { contextOf, resolve, type Scope, type StepResult, type Unresolved } from './references.ts';

/** A call as it goes out: wire name and arguments. */
export interface LiteralCall {
  readonly callId: string;
  readonly name: string;
  readonly input: JsonObject;
  readonly batch?: CallBatch;
}

/** The state of a part of a process. */
export type Progress =
  | { readonly kind: 'done' }
  | { readonly kind: 'calls'; readonly text: string; readonly calls: readonly LiteralCall[] }
  | { readonly kind: 'failed'; readonly message: string };

const DONE: Progress = { kind: 'done' };
/** Calls of one answer: results of a longer list come in several. */
const MAX_WAVE = 64;
const MAX_ITEMS = 10_000;
/** Bytes of a failed call's text in a message. */
export const EXCERPT_BYTES = 500;

/** One pass through the process, or through one item of a `<foreach>`. Steps that are done add their results to `steps`. */
export interface Frame extends Scope {
  readonly steps: Record<string, StepResult>;
  /** Positions in the lists around, such as `-i3`; empty outside of a `<foreach>`. */
  readonly path: string;
}

export interface WalkOptions {
  readonly results: ReadonlyMap<string, ToolResultMessage>;
  readonly tools: readonly ToolDefinition[];
  /** Number of steps, for texts. */
  readonly total: number;
}

/** Follows a process through the results that the conversation has, up to the first calls without one. */
export class Walk {
  readonly #options: WalkOptions;

  constructor(options: WalkOptions) {
    this.#options = options;
  }

  through(nodes: readonly ProcessNode[], frame: Frame): Progress {
    for (const node of nodes) {
      const progress = this.#node(node, frame);
      if (progress.kind !== 'done') return progress;
    }
    return DONE;
  }

  #node(node: ProcessNode, frame: Frame): Progress {
    if (node.kind === 'step') return this.#step(node, frame);
    if (node.kind === 'foreach') return this.#foreach(node, frame);
    const { condition, text, origin } = node.block;
    const lost = conditionPaths(condition).find((path) => !isThere(path, frame));
    if (lost !== undefined) {
      const message = `the condition "${text}" (${origin}) refers to "${lost}", which does not exist`;
      return { kind: 'failed', message };
    }
    if (evaluate(condition, contextOf(frame))) return this.through(node.nodes, frame);
    for (const { step } of stepsOf(node.nodes)) frame.steps[step.name] = { text: '', data: null };
    return DONE;
  }

  #step({ step, index }: Extract<ProcessNode, { kind: 'step' }>, frame: Frame): Progress {
    const places = step.calls.map((_, call) =>
      this.#latest(callIdOf(index, call, frame.path), frame),
    );
    const settled = places.flatMap(({ result }) => (result === undefined ? [] : [result]));
    for (const [call, { result }] of places.entries()) {
      if (result && isErrorOutcome(result.outcome)) return stepFailed(step, call, result);
    }
    if (settled.length < places.length) return this.#callsOf({ step, index, places }, frame);
    frame.steps[step.name] = stepResult(settled);
    return DONE;
  }

  /** The result of a call, or the id to make it with. A crash that interrupted an item leads to a retry. */
  #latest(id: string, { path }: Frame): Place {
    const { results } = this.#options;
    let callId = id;
    for (let attempt = 2; ; attempt += 1) {
      const result = results.get(callId);
      if (result === undefined) return { callId };
      if (path === '' || result.data?.['recovered'] !== 'interrupted') return { callId, result };
      callId = `${id}-again${attempt}`;
    }
  }

  #callsOf({ step, index, places }: StepPlaces, frame: Frame): Progress {
    const unresolved: Unresolved[] = [];
    const offered = new Set(this.#options.tools.map(({ name }) => name));
    const calls = step.calls.flatMap((call, position): readonly LiteralCall[] => {
      const place = places[position];
      if (place === undefined || place.result !== undefined) return [];
      const resolved = resolveCall(call, frame, unresolved);
      return [{ callId: place.callId, ...wireCall(resolved, offered) }];
    });
    if (unresolved.length > 0)
      return { kind: 'failed', message: unresolvedText(placeOf(step), unresolved) };
    const title = toText(withProcessValues(step.description, frame.values)).trim();
    const shown = title === '' ? step.name : title.replaceAll(/\s+/g, ' ');
    return {
      kind: 'calls',
      text: `Step ${index + 1} of ${this.#options.total}: ${shown}\n`,
      calls,
    };
  }

  #foreach(node: Extract<ProcessNode, { kind: 'foreach' }>, frame: Frame): Progress {
    const { block } = node;
    const items = itemsOf(block.in, frame);
    if (typeof items === 'string')
      return { kind: 'failed', message: `foreach (${block.origin}): ${items}` };
    const inner = stepsOf(node.nodes);
    const collected = new Collected(inner.map(({ step }) => step.name));
    const size = waveSize(node);
    for (let start = 0; start < items.length; start += size) {
      const calls: LiteralCall[] = [];
      let text = '';
      for (let at = start; at < Math.min(start + size, items.length); at += 1) {
        const item = items[at] ?? null;
        const locals = { ...frame.locals, [block.item]: item, [`${block.item}_index`]: at };
        const child: Frame = {
          ...frame,
          steps: { ...frame.steps },
          locals,
          path: `${frame.path}-i${at}`,
        };
        const progress = this.through(node.nodes, child);
        if (progress.kind === 'calls') {
          text ||= progress.text;
          calls.push(...progress.calls.map((call) => batched(call, block, child)));
        } else if (progress.kind === 'failed' && block.on_error === 'fail') {
          const message = `item ${at + 1} of ${items.length} (${block.origin}): ${progress.message}`;
          return { kind: 'failed', message };
        } else {
          collected.add(
            child,
            at,
            progress.kind === 'failed' ? { item, message: progress.message } : undefined,
          );
        }
      }
      if (calls.length > 0) {
        const last = Math.min(start + size, items.length);
        const range = `items ${start + 1} to ${last} of ${items.length}`;
        return { kind: 'calls', text: `${text.trimEnd()} (${range})\n`, calls };
      }
    }
    Object.assign(frame.steps, collected.results());
    return DONE;
  }
}

/** True if a path begins at a step that is done, at the inputs or at an item: an absent input may be an optional one. */
function isThere(path: string, { steps, locals }: Frame): boolean {
  const [root = '', name = ''] = path.split('.');
  if (root === 'steps') return Object.hasOwn(steps, name);
  return root === 'inputs' || Object.hasOwn(locals, root);
}

interface Place {
  readonly callId: string;
  readonly result?: ToolResultMessage;
}

interface StepPlaces {
  readonly step: ProcessStep;
  readonly index: number;
  readonly places: readonly Place[];
}

/** The results of the steps of a `<foreach>`, item by item. */
class Collected {
  readonly #texts = new Map<string, string[]>();
  readonly #values = new Map<string, JsonValue[]>();
  readonly #errors: JsonValue[] = [];

  constructor(names: readonly string[]) {
    for (const name of names) {
      this.#texts.set(name, []);
      this.#values.set(name, []);
    }
  }

  add(
    { steps }: Frame,
    index: number,
    failure: { readonly item: JsonValue; readonly message: string } | undefined,
  ): void {
    if (failure) this.#errors.push({ index, ...failure });
    for (const [name, values] of this.#values) {
      const result = Object.hasOwn(steps, name) ? steps[name] : undefined;
      values.push(valueOf(result));
      if (result !== undefined) this.#texts.get(name)?.push(result.text);
    }
  }

  results(): Record<string, StepResult> {
    return Object.fromEntries(
      [...this.#values].map(([name, results]) => {
        const text = (this.#texts.get(name) ?? []).join('\n');
        return [name, { text, data: results, results, errors: this.#errors }];
      }),
    );
  }
}

function valueOf(result: StepResult | undefined): JsonValue {
  if (result === undefined) return null;
  return result.data === undefined ? result.text : result.data;
}

/**
 * Items that are begun together. With one step they all go out in few answers, and the batch bounds how many run at once;
 * with several, an item must not begin before an earlier one is done.
 */
function waveSize({ block, nodes }: Extract<ProcessNode, { kind: 'foreach' }>): number {
  const [only, ...more] = nodes;
  if (only?.kind !== 'step' || more.length > 0) return block.parallel;
  return Math.max(1, Math.floor(MAX_WAVE / Math.max(1, only.step.calls.length)));
}

function batched(
  call: LiteralCall,
  { parallel, on_error }: Extract<ProcessNode, { kind: 'foreach' }>['block'],
  { path }: Frame,
): LiteralCall {
  const { batch } = call;
  return {
    ...call,
    batch: {
      parallel: Math.min(parallel, batch?.parallel ?? parallel),
      on_error: on_error === 'fail' && batch?.on_error !== 'continue' ? 'fail' : 'continue',
      item: batch?.item ?? path,
    },
  };
}

/** Returns the list that a `<foreach>` goes through, or why it is none. */
function itemsOf(list: JsonValue, frame: Frame): readonly JsonValue[] | string {
  const unresolved: Unresolved[] = [];
  const resolved = resolve(list, frame, unresolved);
  if (unresolved.length > 0) return unresolvedText('in', unresolved);
  const value = typeof resolved === 'string' ? (parseJson(resolved) ?? resolved) : resolved;
  if (!Array.isArray(value)) {
    const shown = headBytes(toText(value), 80);
    return `in=${JSON.stringify(list)} is not a list: it is ${shown === '' ? 'empty' : shown}`;
  }
  return value.length > MAX_ITEMS ? `the list has more than ${MAX_ITEMS} items` : value;
}

function callIdOf(step: number, call: number, path: string): string {
  return `literal-${step + 1}-${call + 1}${path}`;
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

function placeOf({ name, origin }: ProcessStep): string {
  return `step "${name}" (${origin})`;
}

const ENDS: Readonly<Partial<Record<ToolOutcome, string>>> = {
  blocked: 'was refused',
  unknown: 'is unknown',
  invalid: 'got wrong arguments',
  aborted: 'was cancelled',
  skipped: 'was skipped',
  timeout: 'timed out',
};

/** The prefix that tells a model about a call that was not run. */
const OUTCOME_PREFIX = /^(?:Blocked|Unknown tool|Validation error|Aborted|Skipped): /;

function stepFailed(
  step: ProcessStep,
  call: number,
  { name, content, outcome }: ToolResultMessage,
): Progress {
  const item = step.calls[call]?.item_id;
  // an ID that is read from a result is only known by its wire name
  const what = item === undefined || item === '' || item.includes('$') ? name : item;
  const reason = headBytes(textOf(content).trim().replace(OUTCOME_PREFIX, ''), EXCERPT_BYTES);
  const message = `${placeOf(step)}: ${what} ${ENDS[outcome] ?? 'failed'}: ${reason}`;
  return { kind: 'failed', message };
}

/** Formats the first reference without a value. */
export function unresolvedText(where: string, [first]: readonly Unresolved[]): string {
  const available = first?.available ?? [];
  const names = available.length === 0 ? 'it has no members' : `use one of ${available.join(', ')}`;
  return `${where}: ${first?.expression ?? ''} has no value; ${names}`;
}

function resolveCall(call: ProcessCall, frame: Frame, unresolved: Unresolved[]): ProcessCall {
  return {
    ...call,
    item_id: toText(resolve(call.item_id, frame, unresolved)),
    params: resolve(call.params, frame, unresolved) as JsonObject,
    options: resolve(call.options ?? {}, frame, unresolved) as JsonObject,
  };
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
