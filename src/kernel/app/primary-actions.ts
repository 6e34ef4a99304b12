import { realpathSync } from 'node:fs';
import { RyeError } from '../core/errors.ts';
import { assertItemId } from '../core/ids.ts';
import type { JsonObject } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import { addSpend } from '../core/usage.ts';
import type { LaunchedThread } from '../threads/ports.ts';
import type { ItemCall, PrimaryActions } from '../tools/primary/actions.ts';
import { errorOutput, type ToolOutput, textOutput, waitingOutput } from '../tools/tool.ts';
import { type Reader, searchOf } from './feature.ts';
import { Items } from './items.ts';
import { programItems } from './program/items.ts';
import type { ToolScope } from './session-tools.ts';
import type { Workspace } from './workspace.ts';

/**
 * Implements the primary actions for one thread. The gates of the loop have checked the item by then; what a query
 * finds is filtered to what the thread may fetch.
 */
export function primaryActions(workspace: Workspace, scope: ToolScope | undefined): PrimaryActions {
  const { capabilities, denies } = readerOf(workspace, scope);
  return {
    executeDirective: async (call, context) => {
      if (!scope) throw new RyeError('internal', 'no thread is running');
      const request = {
        directiveId: call.itemId,
        inputs: call.parameters,
        limits: call.limitOverrides,
        ...(call.model === undefined ? {} : { model: call.model }),
        ...(call.isolation ? { isolation: call.isolation } : {}),
        ...(call.label === undefined ? {} : { label: call.label }),
      };
      if (call.async) {
        return launchedOutput(await scope.children.launch(request));
      }
      const [awaited] = context.awaited ?? [];
      const result =
        awaited === undefined
          ? await scope.children.run(request, context.signal, context.onIdle)
          : await scope.children.join(awaited, context.signal, context.onIdle);
      return childOutput(result);
    },
    executeTool: async ({ itemId, parameters }) => {
      if (!scope) throw new RyeError('internal', 'no thread is running');
      return launchedOutput(await scope.children.launchTool(itemId, parameters));
    },
    fetchItem: async ({ itemType, itemId }) => {
      const own = programItems(workspace, itemType).find(({ id }) => id === itemId);
      const items = await workspace.items(false);
      if (own) return textOutput(own.text, { id: itemId, type: itemType, space: own.space });
      const { text, space, path } = items.load(itemType, itemId, 'fetch');
      if (denies(path)) {
        throw new RyeError('path_denied', `${itemType} ${itemId} may hold secrets`, {
          hint: '`tools.deny_read` covers its file.',
        });
      }
      return textOutput(text, { id: itemId, type: itemType, space });
    },
    searchItems: async ({ query, itemType, limit }) => {
      const { results, total, notices } = await (await searchOf(workspace)).items({
        type: itemType,
        query,
        limit,
        capabilities,
        denies,
      });
      const rows = results.map(({ id, title, snippet, signature }) => ({
        id,
        title,
        snippet,
        signature,
      }));
      const document = { results: rows, total, ...(notices.length === 0 ? {} : { notices }) };
      return textOutput(JSON.stringify(document, null, 2), { total });
    },
    signItem: async (call, { threadId }) => await sign(workspace, call, threadId),
  };
}

/** Returns what a thread may read; without one, nothing is granted. */
export function readerOf(workspace: Workspace, scope: ToolScope | undefined): Reader {
  return {
    capabilities: scope?.capabilities ?? [],
    denies: (path) =>
      scope?.denies(realPath(path), realPath(workspace.options.projectPath)) === true,
  };
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

function launchedOutput(launched: LaunchedThread): ToolOutput {
  const document: JsonObject = { ...launched };
  return textOutput(JSON.stringify(document, null, 2), document);
}

/** A child's result as its parent's model reads it: always quoted data. */
function childOutput(result: ThreadResult): ToolOutput {
  const { thread_id, status, outputs, error, cost, changes, waiting_for, approvals = [] } = result;
  if (waiting_for !== undefined)
    return waitingOutput({ threads: [thread_id], approvals, owned: true });
  const document: JsonObject = {
    thread_id,
    status,
    result: result.result,
    ...(outputs ? { outputs } : {}),
    ...(changes ? { changes: { ...changes } as unknown as JsonObject } : {}),
    ...(error ? { error: { code: error.code, message: error.message } } : {}),
    cost: { turns: cost.turns, ...addSpend(cost, { spend: 0 }) },
  };
  const text = JSON.stringify(document, null, 2);
  return result.success ? textOutput(text, document) : errorOutput(text, document);
}

async function sign(
  workspace: Workspace,
  { itemType, itemId }: ItemCall,
  thread: string,
): Promise<ToolOutput> {
  assertItemId(itemId, itemType);
  const space = workspace.spaces.find(itemType, itemId)?.space ?? 'project';
  if (space !== 'project') {
    throw new RyeError(
      'read_only_space',
      `the ${itemType} ${itemId} belongs to the ${space} space; a thread signs items of its project only`,
      { hint: `A person can sign it: rye sign ${itemType} ${itemId}`, details: { space } },
    );
  }
  // what a model has signed is no guard that a person accepted
  const [outcome] = await new Items(workspace).sign(itemType, itemId, { pin: false, thread });
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
  const isText = itemType === 'knowledge' || outcome.status === 'unchanged';
  const next = isText
    ? ''
    : `\nIt runs after a person has signed it: rye sign ${itemType} ${itemId}`;
  return textOutput(`${itemType} ${itemId}: ${outcome.status}${next}`, {
    id: itemId,
    status: outcome.status,
    path: outcome.path,
  });
}
