import { createHash } from 'node:crypto';
import { isRecord, type JsonObject } from '../core/json.ts';
import type { ContentBlock, ToolOutcome } from '../core/message.ts';

/** Longer cycles than this many turns are left to the limits. */
const MAX_PERIOD = 10;
/** How often a cycle of several turns comes before it counts as one. */
const CYCLES = 3;
/** Different loops of one run that the model is told about; the next one ends the run. */
const MAX_STEERS = 3;
/** A call of the orchestrator that took longer than this has waited for something. */
const WAITED_MS = 1000;
const ORCHESTRATOR = 'rye/agent/threads/orchestrator';
/** How commands end their output: the time differs without anything being new. */
const COMMAND_TIME = /\(exit ([^,()]+), \d+ms\)\s*$/;

/** A call of a turn, with its result before anything was moved out of it. */
export interface SettledCall {
  readonly requested: { readonly call: { readonly name: string; readonly input: JsonObject } };
  readonly tool: string;
  readonly outcome: ToolOutcome;
  readonly content: readonly ContentBlock[];
  readonly durationMs: number;
}

/** A loop as it was found. */
export interface FoundLoop {
  /** Turns of the cycle; 1: the same calls in each turn. */
  readonly period: number;
  /** Turns that repeated it. */
  readonly turns: number;
  /** What was called, for people and the model. */
  readonly tools: readonly string[];
  /** The model was told about this loop before, or about too many others. */
  readonly isLast: boolean;
}

/**
 * Finds turns that make the same calls and get the same results. A result that is new is progress, whatever was called.
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
  note({ requested, tool, outcome, content, durationMs }: SettledCall): void {
    if (this.#repeats === 0) return;
    const hash = createHash('sha256');
    hash.update(JSON.stringify([tool, sorted(requested.call.input), outcome]));
    for (const block of content) {
      hash.update(
        block.type === 'text' ? block.text.replace(COMMAND_TIME, '(exit $1)') : block.data,
      );
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
    const kept = Math.max(this.#repeats, CYCLES * MAX_PERIOD);
    if (this.#turns.length > kept) this.#turns.shift();
    return this.#found(tools);
  }

  /** A new run, or a shorter context in which the model may have to look again. */
  forget(): void {
    this.#turns = [];
  }

  #found(tools: readonly string[]): FoundLoop | undefined {
    for (let period = 1; period <= MAX_PERIOD; period += 1) {
      const needed = period === 1 ? this.#repeats : Math.max(this.#repeats, period * CYCLES);
      if (!this.#repeatsWith(period, needed)) continue;
      const cycle = this.#turns.slice(-period).toSorted().join();
      const isLast = this.#steered.has(cycle) || this.#steered.size >= MAX_STEERS;
      this.#steered.add(cycle);
      this.#turns = [];
      return { period, turns: needed, tools, isLast };
    }
    return undefined;
  }

  /** True if the last `count` turns repeat with this period. */
  #repeatsWith(period: number, count: number): boolean {
    const last = this.#turns.slice(-count);
    return (
      last.length === count && last.every((turn, at) => at < period || turn === last[at - period])
    );
  }
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (!isRecord(value)) return value;
  const names = Object.keys(value).toSorted();
  return Object.fromEntries(names.map((name) => [name, sorted(value[name])]));
}
