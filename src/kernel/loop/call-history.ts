import { createHash } from 'node:crypto';
import { wireName } from '../core/ids.ts';
import { compact, isRecord, type JsonObject, jsonEquals } from '../core/json.ts';
import type {
  AssistantMessage,
  ContentBlock,
  ToolCallBlock,
  ToolOutcome,
} from '../core/message.ts';
import type { ProviderTraits } from '../providers/provider.ts';
import type { Tool } from '../tools/tool.ts';
import type { Behavior, ToolBudget } from './behavior.ts';
import type { LoopPorts } from './ports.ts';

/** Remembers the tool calls of a run: their ids, their number, their results and the bytes that they returned. */
export class CallHistory {
  readonly budgets: ToolBudgets;
  readonly earlier: EarlierResults;
  readonly loops: LoopGuard;
  readonly #forgetReads: LoopPorts['forgetReads'];
  /** Call ids of the whole thread: results are found by them. */
  readonly #ids = new Set<string>();
  #turnOutputBytes = 0;

  constructor(behavior: Behavior, ports: LoopPorts, { replayable }: ProviderTraits) {
    this.budgets = new ToolBudgets(behavior.toolBudgets);
    // explicit steps may repeat what they like, and use each result
    this.earlier = new EarlierResults(replayable ? new Set() : behavior.dedupTools);
    this.loops = new LoopGuard(replayable ? 0 : behavior.loopRepeats);
    this.#forgetReads = ports.forgetReads?.bind(ports);
    const results = ports.history.filter((message) => message.role === 'tool_result');
    this.noteIds(results.map(({ call_id }) => call_id));
  }

  /** Bytes of results that the model was given in this turn. */
  get turnOutputBytes(): number {
    return this.#turnOutputBytes;
  }

  beginTurn(): void {
    this.#turnOutputBytes = 0;
  }

  /** Starts to count again: another run of the thread begins. */
  beginRun(): void {
    this.budgets.beginRun();
    this.loops.forget();
  }

  noteOutput(bytes: number): void {
    this.#turnOutputBytes += bytes;
  }

  noteIds(callIds: readonly string[]): void {
    for (const id of callIds) this.#ids.add(id);
  }

  /** Returns the answer with call ids that are unique in the thread: some models count from one in every answer. */
  withUniqueIds(message: AssistantMessage): AssistantMessage {
    const content = message.content.map((block) =>
      block.type === 'tool_call' ? this.#withUniqueId(block) : block,
    );
    return { ...message, content };
  }

  #withUniqueId(call: ToolCallBlock): ToolCallBlock {
    let id = call.call_id;
    for (let copy = 2; this.#ids.has(id) || id === ''; copy += 1) {
      id = `${call.call_id === '' ? 'call' : call.call_id}-${copy}`;
    }
    this.#ids.add(id);
    return id === call.call_id ? call : { ...call, call_id: id };
  }

  /** Forgets results that have left the model's view: nothing may refer to them or replay them. */
  forgetResults(): void {
    this.earlier.forget();
    this.#forgetReads?.();
  }

  /** Forgets what a compaction removed from the context: the model may have to make the same calls again. */
  noteCompaction(): void {
    this.loops.forget();
    this.forgetResults();
  }
}

/** A call beyond the budget of its tool. */
export interface OverBudget {
  readonly budget: ToolBudget;
  /** Calls that were let through before it. */
  readonly count: number;
  /** Message to the model. */
  readonly message: string;
}

/**
 * Counts the calls of each tool that the gates let through in a run: those that run, those that get a substitute, and those
 * that turn out to be unknown or invalid; not the refused ones. A call is counted before any of its batch runs, so that a
 * batch cannot exceed a budget.
 */
export class ToolBudgets {
  readonly #budgets: Behavior['toolBudgets'];
  readonly #counts = new Map<string, number>();
  readonly #warned = new Set<string>();
  /** Decisions of the program about the last call of a tool beyond its budget. */
  readonly #decided = new Map<string, Partial<ToolBudget>>();
  #before: JsonObject = {};

  constructor(budgets: Behavior['toolBudgets']) {
    this.#budgets = budgets;
  }

  /** Counts as they were before the current batch, by canonical id. */
  get counts(): JsonObject {
    return this.#before;
  }

  beginBatch(): void {
    this.#before = Object.freeze(Object.fromEntries(this.#counts));
  }

  beginRun(): void {
    this.#counts.clear();
    this.#warned.clear();
    this.#decided.clear();
  }

  /** Returns the calls that a tool had and may have; undefined if it may have more. */
  usedUp(tool: string): { readonly count: number; readonly max: number } | undefined {
    const over = this.#over(tool);
    return over && { count: over.count, max: over.budget.max };
  }

  /** Takes the program's decision about one more call; undefined: the budget decides. */
  decide(tool: string, decision: Pick<ToolBudget, 'mode' | 'message'> | undefined): void {
    if (decision === undefined) this.#decided.delete(tool);
    else this.#decided.set(tool, compact({ ...decision, grace: Number.POSITIVE_INFINITY }));
  }

  /** Why one more call is refused; undefined: it is not. */
  refusal(tool: string): OverBudget | undefined {
    const over = this.#over(tool);
    if (!over) return undefined;
    const { mode, max, grace } = over.budget;
    return mode === 'block' || over.count >= max + grace ? over : undefined;
  }

  /** Counts a call that is let through; what the model is to be told about it, once for a tool and run. */
  admit(tool: string): OverBudget | undefined {
    const over = this.#over(tool);
    this.#counts.set(tool, this.#count(tool) + 1);
    if (!over || this.#warned.has(tool)) return undefined;
    this.#warned.add(tool);
    return over;
  }

  #over(tool: string): OverBudget | undefined {
    const set = this.#budgets.get(wireName(tool));
    const count = this.#count(tool);
    if (!set || count < set.max) return undefined;
    const budget = { ...set, ...this.#decided.get(tool) };
    const calls = budget.max === 1 ? 'its one call' : `its ${budget.max} calls`;
    const message =
      budget.message ??
      `${wireName(tool)} has had ${calls} of this run. Continue with what you know.`;
    return { budget, count, message };
  }

  #count(tool: string): number {
    return this.#counts.get(tool) ?? 0;
  }
}

interface Earlier {
  readonly input: JsonObject;
  readonly content: readonly ContentBlock[];
}

/**
 * The last result of each tool that may be replayed when it is called alike again. Only tools that just read are ever
 * replayed, and a call that may have changed something makes all results stale.
 */
export class EarlierResults {
  readonly #listed: ReadonlySet<string>;
  readonly #last = new Map<string, Earlier>();

  constructor(listed: ReadonlySet<string>) {
    this.#listed = listed;
  }

  /** The earlier result of this very call. */
  find(tool: Tool, input: JsonObject): readonly ContentBlock[] | undefined {
    const earlier = this.#last.get(tool.id);
    return earlier && jsonEquals(earlier.input, input) ? earlier.content : undefined;
  }

  /** Notes that a tool begins to run: what it changes may show in any result from now on. */
  noteStart(tool: Tool): void {
    if (!tool.traits.reads_only) this.forget();
  }

  /** Notes that a tool has run; `content` is its result if it succeeded. */
  note(tool: Tool, input: JsonObject, content: readonly ContentBlock[] | undefined): void {
    if (!tool.traits.reads_only) this.forget();
    else if (content && this.#listed.has(wireName(tool.id)))
      this.#last.set(tool.id, { input, content });
  }

  forget(): void {
    this.#last.clear();
  }
}

/** Longer cycles than this many turns are left to the limits. */
const MAX_PERIOD = 10;
/** Rounds of a cycle that may be kept: the model is told about a cycle after two. */
const KEPT_ROUNDS = 2;
/** Different loops of one run that the model is told about; the next one ends the run. */
const MAX_STEERS = 3;
/** A call of the orchestrator that took longer than this has waited for something. */
const WAITED_MS = 1000;
const ORCHESTRATOR = 'rye/agent/threads/orchestrator';
/** The end of a command's output. Its time differs even if nothing else does. */
const COMMAND_TIME = /\(exit ([^,()]+), \d+ms\)\s*$/;
const SPEND = /"spend": [\d.e-]+/;

/** A call of a turn, with its result before anything was moved out of it. */
export interface SettledCall {
  readonly requested: { readonly call: { readonly name: string; readonly input: JsonObject } };
  readonly tool: string;
  readonly outcome: ToolOutcome;
  readonly content: readonly ContentBlock[];
  readonly data?: JsonObject;
  readonly durationMs: number;
}

/** A loop as it was found. */
export interface FoundLoop {
  /** Turns of the cycle; 1: the same calls in each turn. */
  readonly period: number;
  /** Turns that repeated it. */
  readonly turns: number;
  /** Names of the called tools, for people and the model. */
  readonly tools: readonly string[];
  /** The model was told about this loop before, or about too many others. */
  readonly isLast: boolean;
}

/**
 * Finds turns that make the same calls and get the same results. A new result is progress, even for the same call.
 * Keeps hashes of the last turns only, so that its memory does not grow with the run.
 */
export class LoopGuard {
  readonly #repeats: number;
  #calls: string[] = [];
  #tools = new Set<string>();
  #hasWaited = false;
  #turns: string[] = [];
  readonly #steered = new Set<string>();

  /** `repeats`: turns with the same calls and results that make a loop; 0: none do. */
  constructor(repeats: number) {
    this.#repeats = repeats;
  }

  /** Takes a call of the current turn with its result. */
  note({ requested, tool, outcome, content, data, durationMs }: SettledCall): void {
    if (this.#repeats === 0) return;
    const hash = createHash('sha256');
    // no argument changes what an unknown tool answers
    const input = outcome === 'unknown' ? null : sorted(requested.call.input);
    hash.update(JSON.stringify([tool, input, outcome]));
    for (const block of content) {
      hash.update(block.type === 'text' ? comparable(block.text, data) : block.data);
    }
    this.#calls.push(hash.digest('base64url'));
    this.#tools.add(requested.call.name);
    this.#hasWaited ||= tool === ORCHESTRATOR && durationMs >= WAITED_MS;
  }

  /** Ends the turn; the loop that it closes. */
  endTurn(): FoundLoop | undefined {
    if (this.#repeats === 0) return undefined;
    const calls = this.#calls.toSorted();
    const tools = [...this.#tools];
    const hasWaited = this.#hasWaited;
    this.#calls = [];
    this.#tools = new Set();
    this.#hasWaited = false;
    if (calls.length === 0 || hasWaited) {
      this.#turns = [];
      return undefined;
    }
    this.#turns.push(createHash('sha256').update(calls.join()).digest('base64url'));
    const kept = KEPT_ROUNDS * Math.max(this.#repeats, MAX_PERIOD);
    if (this.#turns.length > kept) this.#turns.shift();
    return this.#found(tools);
  }

  /** A new run, or a shorter context in which the model may have to look again. */
  forget(): void {
    this.#turns = [];
  }

  #found(tools: readonly string[]): FoundLoop | undefined {
    for (let period = 1; period <= MAX_PERIOD; period += 1) {
      const cycle = this.#turns.slice(-period).toSorted().join();
      const isKnown = this.#steered.has(cycle);
      const turns = isKnown ? Math.max(this.#repeats, period) : this.#firstCount(period);
      if (!this.#repeatsWith(period, turns)) continue;
      const isLast = isKnown || this.#steered.size >= MAX_STEERS;
      this.#steered.add(cycle);
      this.#turns = [];
      return { period, turns, tools, isLast };
    }
    return undefined;
  }

  /** Turns before the model is told about a cycle: whole rounds, and two at least. */
  #firstCount(period: number): number {
    if (period === 1) return this.#repeats;
    return period * Math.max(2, Math.ceil(this.#repeats / period));
  }

  /** True if the last `count` turns repeat with this period. */
  #repeatsWith(period: number, count: number): boolean {
    const last = this.#turns.slice(-count);
    return (
      last.length === count && last.every((turn, at) => at < period || turn === last[at - period])
    );
  }
}

/** Returns a result without what differs between equal calls: the time of a command, the ID and the costs of a child. */
function comparable(text: string, { thread_id: child, result }: JsonObject = {}): string {
  // a child that was only launched is something new
  if (typeof child !== 'string' || result === undefined)
    return text.replace(COMMAND_TIME, '(exit $1)');
  return text.replaceAll(child, '').replace(SPEND, '');
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isRecord(value)) return value;
  const names = Object.keys(value).toSorted();
  return Object.fromEntries(names.map((name) => [name, sorted(value[name])]));
}
