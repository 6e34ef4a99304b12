import type { BehaviorOptions, ToolBudgetOption } from '../core/behavior.ts';
import { memberName } from '../core/behavior.ts';
import { RyeError } from '../core/errors.ts';
import { wireName } from '../core/ids.ts';
import { isRecord } from '../core/json.ts';
import type {
  BudgetContext,
  BudgetDecision,
  DecidingHandlers,
  HandlerMap,
  ThinkingContext,
} from '../hooks/handlers.ts';
import type { ThinkingLevel } from '../providers/provider.ts';

type Later<T> = T | undefined | void | Promise<T | undefined | void>;

/** Decides about a call beyond the budget of its tool; nothing returned refuses it. A function that fails refuses it too. */
export type BudgetFunction = (
  call: BudgetContext,
) => Later<BudgetDecision | BudgetDecision['mode']>;

/** Returns the level of the next request; nothing returned, or a higher level, leaves it. */
export type ThinkingFunction = (state: ThinkingContext) => Later<ThinkingLevel>;

/** A budget whose excess a function decides about. */
export interface ProgramBudget extends Omit<ToolBudgetOption, 'on_exceed' | 'grace'> {
  readonly on_exceed: BudgetFunction;
}

/** Behavior in the options of a program, which may hold functions. They run in its process, as deciding handlers do. */
export type ProgramBehavior = Omit<BehaviorOptions, 'thinking_decay' | 'tool_budgets'> & {
  readonly thinking_decay?: BehaviorOptions['thinking_decay'] | ThinkingFunction;
  readonly tool_budgets?: Readonly<
    Record<string, number | ToolBudgetOption | ProgramBudget | null>
  > | null;
};

/** Parts a behavior into its data, which a plan keeps, and its functions, as handlers. Throws `usage` for another function. */
export function programBehavior(behavior: ProgramBehavior = {}): {
  readonly data: BehaviorOptions;
  readonly handlers: HandlerMap;
} {
  const budgets: DecidingHandlers['tool_budget'][] = [];
  const levels: DecidingHandlers['thinking_level'][] = [];
  const data = Object.entries(behavior).map(([written, value]): [string, unknown] => {
    const name = memberName(written);
    if (name === 'thinking_decay' && typeof value === 'function') {
      levels.push(levelHandler(value));
      // replaces the decay of the directive
      return [written, null];
    }
    if (name !== 'tool_budgets' || !isRecord(value)) return [written, value];
    const tools = Object.entries(value).map(([tool, budget]): [string, unknown] => {
      if (!isRecord(budget)) return [tool, budget];
      const { on_exceed, onExceed = on_exceed, ...others } = budget;
      if (typeof onExceed !== 'function') return [tool, budget];
      budgets.push(budgetHandler(tool, onExceed as BudgetFunction));
      return [tool, others];
    });
    return [written, Object.fromEntries(tools)];
  });
  for (const [name, value] of data) assertData(value, `behavior.${name}`);
  return {
    data: Object.fromEntries(data) as BehaviorOptions,
    handlers: {
      ...(budgets.length > 0 ? { tool_budget: budgets } : {}),
      ...(levels.length > 0 ? { thinking_level: levels } : {}),
    },
  };
}

function levelHandler(levelOf: ThinkingFunction): DecidingHandlers['thinking_level'] {
  return async (state) => {
    const level = await levelOf(state);
    return level === undefined ? undefined : { level };
  };
}

function budgetHandler(tool: string, decide: BudgetFunction): DecidingHandlers['tool_budget'] {
  const name = wireName(tool);
  return async (call) => {
    if (wireName(call.tool) !== name) return undefined;
    const decision = (await decide(call)) ?? 'block';
    return typeof decision === 'string' ? { mode: decision } : decision;
  };
}

/** A plan is data: a function in it would be lost. */
function assertData(value: unknown, path: string): void {
  if (typeof value === 'function') {
    throw new RyeError('usage', `${path} is a function`, {
      hint: 'Functions can be behavior.thinking_decay and the on_exceed of a tool in behavior.tool_budgets, in the options of a run or a preset.',
    });
  }
  if (typeof value !== 'object' || value === null) return;
  for (const [name, member] of Object.entries(value)) assertData(member, `${path}.${name}`);
}
