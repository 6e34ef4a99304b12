import { wireName } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import type { Behavior, ToolBudget } from './behavior.ts';

/** A call of a tool that has had its share. */
export interface OverBudget {
  readonly budget: ToolBudget;
  /** Calls that were let through before it. */
  readonly count: number;
  /** What the model is told. */
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
    const budget = this.#budgets.get(wireName(tool));
    const count = this.#count(tool);
    if (!budget || count < budget.max) return undefined;
    const calls = budget.max === 1 ? 'its one call' : `its ${budget.max} calls`;
    const message =
      budget.message ??
      `${wireName(tool)} has had ${calls} of this run. Go on with what is known by now.`;
    return { budget, count, message };
  }

  #count(tool: string): number {
    return this.#counts.get(tool) ?? 0;
  }
}
