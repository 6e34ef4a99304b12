import { RyeError } from '../core/errors.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import { expandsTo } from '../policy/capability.ts';
import type { LaunchedThread } from '../threads/ports.ts';
import type { PrimaryActions } from '../tools/primary/actions.ts';
import type { SearchKnowledge } from '../tools/search/search-tool.ts';
import { errorOutput, type ToolOutput, textOutput } from '../tools/tool.ts';
import type { Foundation } from './foundation.ts';
import { Items } from './items-service.ts';
import { searchItems } from './search.ts';
import type { ToolScope } from './tool-scope.ts';

export interface ThreadActions extends PrimaryActions {
  readonly searchKnowledge: SearchKnowledge;
}

/**
 * What the primary actions do for one thread. The gates of the loop have judged the very item by then; what a query
 * finds is filtered to what the thread may fetch.
 */
export function primaryActions(base: Foundation, scope: ToolScope | undefined): ThreadActions {
  const capabilities = scope?.capabilities ?? [];
  return {
    executeDirective: async (call, context) => {
      if (!scope) throw new RyeError('internal', 'no thread is running');
      const request = {
        directiveId: call.itemId,
        inputs: call.parameters,
        limits: call.limitOverrides,
        ...(call.model === undefined ? {} : { model: call.model }),
      };
      if (call.async) {
        return launchedOutput(await scope.children.launch(request));
      }
      const result = await scope.children.run(request, context.signal);
      return childOutput(result);
    },
    executeTool: async ({ itemId, parameters }) => {
      if (!scope) throw new RyeError('internal', 'no thread is running');
      return launchedOutput(await scope.children.launchTool(itemId, parameters));
    },
    fetchItem: async ({ itemType, itemId }) => {
      const items = await base.items(false);
      const item = items.load(itemType, itemId, 'fetch');
      return textOutput(item.text, { id: itemId, type: itemType, space: item.space });
    },
    searchItems: async ({ query, itemType, limit }) => {
      const { results, total } = await searchItems(base, { type: itemType, query, limit });
      const visible = results.filter(
        ({ type, id }) => expandsTo(capabilities, 'fetch', type, [id]).length > 0,
      );
      const rows = visible.map(({ id, title, snippet }) => ({ id, title, snippet }));
      const shown = total - (results.length - visible.length);
      return textOutput(JSON.stringify({ results: rows, total: shown }, null, 2), { total: shown });
    },
    signItem: async ({ itemType, itemId }) => await sign(base, itemType, itemId),
    searchKnowledge: async (query, limit) => {
      const { results, total } = await searchItems(base, { type: 'knowledge', query, limit });
      const visible = results.filter(
        ({ id }) => expandsTo(capabilities, 'fetch', 'knowledge', [id]).length > 0,
      );
      return { results: visible, total: total - (results.length - visible.length) };
    },
  };
}

function launchedOutput(launched: LaunchedThread): ToolOutput {
  const document: JsonObject = { ...launched };
  return textOutput(JSON.stringify(document, null, 2), document);
}

/** A child's result as its parent's model reads it: quoted data, whatever it says. */
function childOutput(result: ThreadResult): ToolOutput {
  const { thread_id, status, outputs, error, cost } = result;
  const document: JsonObject = {
    thread_id,
    status,
    result: result.result,
    ...(outputs ? { outputs } : {}),
    ...(error ? { error: { code: error.code, message: error.message } } : {}),
    cost: { turns: cost.turns, spend: cost.spend },
  };
  const text = JSON.stringify(document, null, 2);
  return result.success ? textOutput(text, document) : errorOutput(text, document);
}

async function sign(
  base: Foundation,
  itemType: Parameters<Items['sign']>[0],
  itemId: string,
): Promise<ToolOutput> {
  const [outcome] = await new Items(base).sign(itemType, itemId);
  if (outcome === undefined)
    return errorOutput(`There is no ${itemType} ${itemId}.`, { code: 'item_not_found' });
  if (outcome.status === 'failed') {
    const problems = outcome.problems.map(
      ({ code, message, line }) => `${line ?? '-'}: ${code}: ${message}`,
    );
    return errorOutput(`${itemType} ${itemId} was not signed:\n${problems.join('\n')}`, {
      code: 'invalid_input',
    });
  }
  return textOutput(`${itemType} ${itemId}: ${outcome.status}`, {
    id: itemId,
    status: outcome.status,
    path: outcome.path,
  });
}
