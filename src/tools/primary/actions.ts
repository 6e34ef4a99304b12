import type { CapabilityNeed, Verb } from '../../core/capability.ts';
import { assertItemId, ITEM_TYPES, type ItemType } from '../../core/ids.ts';
import { isJsonObject, type JsonObject } from '../../core/json.ts';
import { LIMIT_NAMES, type PartialLimits } from '../../core/limits.ts';
import {
  errorOutput,
  flagArgument,
  guarded,
  integerArgument,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textArgument,
} from '../tool.ts';

export interface ExecuteDirectiveCall {
  readonly itemId: string;
  readonly parameters: JsonObject;
  readonly limitOverrides: PartialLimits;
  readonly model: string | undefined;
  readonly async: boolean;
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

/** Implements the primary actions, on top of the threads and items rooms. A RyeError becomes an error output. */
export interface PrimaryActions {
  executeDirective(call: ExecuteDirectiveCall, context: ToolContext): Promise<ToolOutput>;
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

const ITEM_ID: JsonObject = {
  type: 'string',
  minLength: 1,
  description: 'Id of the item, such as rye/core/hello.',
};

/** `rye_execute`: a directive as a child thread, or a tool as one; a tool that is waited for is looked through by the tool set. */
export function createExecuteTool(
  actions: Pick<PrimaryActions, 'executeDirective' | 'executeTool'>,
): Tool {
  return {
    id: PRIMARY_IDS.execute,
    description: 'Executes an item: a directive as a child thread, or a tool.',
    inputSchema: {
      type: 'object',
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
        async: { type: 'boolean', description: 'Start it and go on. Default false.' },
      },
      required: ['item_type', 'item_id'],
      additionalProperties: false,
    },
    // The child has its own duration limit; this bound only keeps a lost child from hanging its parent forever.
    traits: traits({ readsOnly: false, timeoutSeconds: 24 * 3600 }),
    need: (input) => itemNeed('execute', input, PRIMARY_IDS.execute),
    execute: (input, context) =>
      guarded(async () => {
        const { parameters, model } = input;
        if (input['item_type'] !== 'directive') {
          if (!flagArgument(input, 'async')) {
            return errorOutput('Only directives are executed here; call the tool by its name.', {
              code: 'usage',
            });
          }
          return actions.executeTool(
            {
              itemId: textArgument(input, 'item_id'),
              parameters: isJsonObject(parameters) ? parameters : {},
            },
            context,
          );
        }
        return actions.executeDirective(
          {
            itemId: textArgument(input, 'item_id'),
            parameters: isJsonObject(parameters) ? parameters : {},
            limitOverrides: limitsOf(input['limit_overrides']),
            model: typeof model === 'string' ? model : undefined,
            async: flagArgument(input, 'async'),
          },
          context,
        );
      }),
  };
}

/** `rye_fetch`: one item by type and id, or a full-text query over the items of one type. */
export function createFetchTool(actions: Pick<PrimaryActions, 'fetchItem' | 'searchItems'>): Tool {
  return {
    id: PRIMARY_IDS.fetch,
    description:
      'Fetches an item by item_type and item_id, or searches items with query and scope (an item type).',
    inputSchema: {
      type: 'object',
      properties: {
        item_type: { type: 'string', enum: ITEM_TYPES },
        item_id: ITEM_ID,
        query: { type: 'string', minLength: 1, description: 'Words to search for.' },
        scope: {
          type: 'string',
          enum: ITEM_TYPES,
          description: 'Type to search. Default knowledge.',
        },
        limit: { type: 'integer', minimum: 1, maximum: 100, description: 'Results. Default 10.' },
      },
      additionalProperties: false,
    },
    traits: traits({ readsOnly: true, timeoutSeconds: 60 }),
    need: fetchNeed,
    execute: (input, context) => guarded(() => fetchOrSearch(actions, input, context)),
  };
}

/** `rye_sign`: validates an item of the project and signs it in place. */
export function createSignTool(actions: Pick<PrimaryActions, 'signItem'>): Tool {
  return {
    id: PRIMARY_IDS.sign,
    description: 'Validates an item of the project and signs it.',
    inputSchema: {
      type: 'object',
      properties: { item_type: { type: 'string', enum: ITEM_TYPES }, item_id: ITEM_ID },
      required: ['item_type', 'item_id'],
      additionalProperties: false,
    },
    traits: { ...traits({ readsOnly: false, timeoutSeconds: 60 }), idempotent: true },
    need: (input) => itemNeed('sign', input, PRIMARY_IDS.sign),
    execute: (input, context) =>
      guarded(async () => {
        const itemType = itemTypeOf(input['item_type']);
        if (itemType === undefined)
          return errorOutput('item_type is missing.', { code: 'invalid_input' });
        return actions.signItem({ itemType, itemId: textArgument(input, 'item_id') }, context);
      }),
  };
}

async function fetchOrSearch(
  actions: Pick<PrimaryActions, 'fetchItem' | 'searchItems'>,
  input: JsonObject,
  context: ToolContext,
): Promise<ToolOutput> {
  const { item_type: type, item_id: itemId, query, scope } = input;
  const itemType = itemTypeOf(type);
  if (typeof itemId === 'string' && query === undefined && itemType !== undefined) {
    return actions.fetchItem({ itemType, itemId }, context);
  }
  if (typeof query === 'string' && itemId === undefined) {
    return actions.searchItems(
      {
        query,
        itemType: itemTypeOf(scope) ?? itemType ?? 'knowledge',
        limit: integerArgument(input, 'limit', 10),
      },
      context,
    );
  }
  return errorOutput('Provide either item_type and item_id, or query and scope.', {
    code: 'invalid_input',
  });
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

function limitsOf(value: unknown): PartialLimits {
  if (!isJsonObject(value)) return {};
  const limits: Partial<Record<(typeof LIMIT_NAMES)[number], number>> = {};
  for (const name of LIMIT_NAMES) {
    const limit = value[name];
    if (typeof limit === 'number') limits[name] = limit;
  }
  return limits;
}

function traits({ readsOnly, timeoutSeconds }: { readsOnly: boolean; timeoutSeconds: number }) {
  return {
    reads_only: readsOnly,
    idempotent: readsOnly,
    network: false,
    sequential: false,
    timeout_seconds: timeoutSeconds,
  };
}
