import type { CapabilityNeed, Verb } from '../../core/capability.ts';
import { assertItemId, ITEM_TYPES, type ItemType } from '../../core/ids.ts';
import { ISOLATION_RESULTS, ISOLATIONS, type Isolation } from '../../core/isolation.ts';
import type { JsonObject } from '../../core/json.ts';
import { LIMIT_NAMES, type PartialLimits } from '../../core/limits.ts';
import {
  builtinTool,
  type CallContext,
  CHANGING_TRAITS,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
} from '../tool.ts';

export interface ExecuteDirectiveCall {
  readonly itemId: string;
  readonly parameters: JsonObject;
  readonly limitOverrides: PartialLimits;
  readonly model: string | undefined;
  readonly async: boolean;
  /** Absent: the child works where its parent does. */
  readonly isolation: Isolation | undefined;
  /** The name of the child in lists. */
  readonly label: string | undefined;
}

export interface ItemCall {
  readonly itemType: ItemType;
  readonly itemId: string;
}

export interface SearchCall {
  readonly query: string;
  readonly itemType: ItemType;
  readonly limit: number;
}

/** Implements the primary actions on top of the threads and items rooms. A RyeError becomes an error output. */
export interface PrimaryActions {
  executeDirective(call: ExecuteDirectiveCall, context: CallContext): Promise<ToolOutput>;
  /** Starts a tool in a separate process. */
  executeTool(
    call: Pick<ExecuteDirectiveCall, 'itemId' | 'parameters'>,
    context: ToolContext,
  ): Promise<ToolOutput>;
  fetchItem(call: ItemCall, context: ToolContext): Promise<ToolOutput>;
  searchItems(call: SearchCall, context: ToolContext): Promise<ToolOutput>;
  signItem(call: ItemCall, context: ToolContext): Promise<ToolOutput>;
}

/** Canonical ids of the primary actions. */
export const PRIMARY_IDS = {
  execute: 'rye/execute',
  fetch: 'rye/fetch',
  sign: 'rye/sign',
} as const;

const ITEM_ID = {
  type: 'string',
  minLength: 1,
  description: 'Id of the item, such as rye/core/project_report.',
} as const;
const ITEM_TYPE = { type: 'string', enum: ITEM_TYPES } as const;

/**
 * `rye_execute` runs a directive as a child thread, or starts a tool in the background. The tool set replaces a call that
 * waits for a tool by the call of that tool.
 */
export function createExecuteTool(
  actions: Pick<PrimaryActions, 'executeDirective' | 'executeTool'>,
): Tool {
  return builtinTool({
    id: PRIMARY_IDS.execute,
    description: 'Executes an item: a directive as a child thread, or a tool.',
    properties: {
      item_type: { type: 'string', enum: ['directive', 'tool'] },
      item_id: ITEM_ID,
      parameters: {
        type: 'object',
        description: 'Inputs of the directive, or arguments of the tool.',
      },
      limit_overrides: {
        type: 'object',
        description: 'Lower limits for the child thread.',
        properties: Object.fromEntries(
          LIMIT_NAMES.map((name) => [name, { type: 'number', minimum: 0 }]),
        ),
        additionalProperties: false,
      },
      model: { type: 'string', description: 'Model id or tier for the child thread.' },
      async: {
        type: 'boolean',
        description: 'Run it in the background: the call returns its ID at once. Default false.',
      },
      isolation: {
        type: 'string',
        enum: ISOLATIONS,
        description: 'worktree: the child works in its own git worktree, from the last commit.',
      },
      isolation_result: {
        type: 'string',
        enum: ISOLATION_RESULTS,
        description: 'Its changes: in a patch file (default), or merged here.',
      },
      label: { type: 'string', description: 'Short name of the child for people.' },
    },
    required: ['item_type', 'item_id'],
    // the child has its own duration limit; this bound only keeps a lost child from hanging its parent forever
    traits: { ...CHANGING_TRAITS, parallel: true, timeout_seconds: 24 * 3600 },
    // a child that is stopped waits for its tools, and must not stay `running` with its cost unbooked
    graceMs: 30_000,
    need: (input) => itemNeed('execute', input, PRIMARY_IDS.execute),
    run(input, context) {
      const { item_type, item_id: itemId, parameters = {}, model, async = false } = input;
      if (item_type === 'directive') {
        const limitOverrides: PartialLimits = input.limit_overrides ?? {};
        const { isolation: kind, isolation_result: result, label } = input;
        const isolation = kind && { kind, ...(result ? { result } : {}) };
        const call = { itemId, parameters, limitOverrides, model, async, isolation, label };
        return actions.executeDirective(call, context);
      }
      if (async) return actions.executeTool({ itemId, parameters }, context);
      return errorOutput('Only directives are executed here; call the tool by its name.', {
        code: 'usage',
      });
    },
  });
}

/** `rye_fetch` returns one item by type and id, or searches the items of one type. */
export function createFetchTool(actions: Pick<PrimaryActions, 'fetchItem' | 'searchItems'>): Tool {
  return builtinTool({
    id: PRIMARY_IDS.fetch,
    description:
      'Fetches an item by item_type and item_id, or searches items with query and scope (an item type).',
    properties: {
      item_type: ITEM_TYPE,
      item_id: ITEM_ID,
      query: { type: 'string', minLength: 1, description: 'Words to search for.' },
      scope: { ...ITEM_TYPE, description: 'Type to search. Default knowledge.' },
      limit: { type: 'integer', minimum: 1, maximum: 100, description: 'Results. Default 10.' },
    },
    traits: READING_TRAITS,
    need: fetchNeed,
    run(input, context) {
      const { item_type: itemType, item_id: itemId, query, scope, limit = 10 } = input;
      if (itemId !== undefined && query === undefined && itemType !== undefined) {
        return actions.fetchItem({ itemType, itemId }, context);
      }
      if (query !== undefined && itemId === undefined) {
        const searched = scope ?? itemType ?? 'knowledge';
        return actions.searchItems({ query, itemType: searched, limit }, context);
      }
      return errorOutput('Provide either item_type and item_id, or query and scope.', {
        code: 'invalid_input',
      });
    },
  });
}

/** `rye_sign` validates an item of the project and signs it in place. */
export function createSignTool(actions: Pick<PrimaryActions, 'signItem'>): Tool {
  return builtinTool({
    id: PRIMARY_IDS.sign,
    description: 'Validates an item of the project and signs it.',
    properties: { item_type: ITEM_TYPE, item_id: ITEM_ID },
    required: ['item_type', 'item_id'],
    traits: { ...CHANGING_TRAITS, idempotent: true },
    need: (input) => itemNeed('sign', input, PRIMARY_IDS.sign),
    run: ({ item_type: itemType, item_id: itemId }, context) =>
      actions.signItem({ itemType, itemId }, context),
  });
}

/** Returns the need of a call of a primary action; undefined for another tool. Throws `invalid_item_id` for a malformed id. */
export function primaryNeed(tool: string, input: JsonObject): CapabilityNeed | undefined {
  if (tool === PRIMARY_IDS.execute) return itemNeed('execute', input, tool);
  if (tool === PRIMARY_IDS.sign) return itemNeed('sign', input, tool);
  return tool === PRIMARY_IDS.fetch ? fetchNeed(input) : undefined;
}

function fetchNeed(input: JsonObject): CapabilityNeed {
  if (input['item_id'] !== undefined) return itemNeed('fetch', input, PRIMARY_IDS.fetch);
  return {
    verb: 'fetch',
    item_type: itemTypeOf(input['scope']) ?? itemTypeOf(input['item_type']) ?? 'knowledge',
  };
}

/**
 * Returns the need of a call on one item. Gates judge before validation, so the input may be anything: without a usable
 * type and id, the need is the action itself, which never passes validation. Throws `invalid_item_id` for a malformed id: a
 * pattern could match more than the grant that it resembles.
 */
function itemNeed(verb: Verb, input: JsonObject, actionId: string): CapabilityNeed {
  const itemType = itemTypeOf(input['item_type']);
  const itemId = input['item_id'];
  if (itemType === undefined || typeof itemId !== 'string' || itemId === '') {
    return { verb: 'execute', item_type: 'tool', item_id: actionId };
  }
  assertItemId(itemId, itemType);
  return { verb, item_type: itemType, item_id: itemId };
}

function itemTypeOf(value: unknown): ItemType | undefined {
  return ITEM_TYPES.find((type) => type === value);
}
