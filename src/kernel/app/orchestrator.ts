import { RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { WorktreeChanges } from '../core/isolation.ts';
import { compact, type JsonObject } from '../core/json.ts';
import { headChars } from '../core/text.ts';
import type { ThreadRecord } from '../core/thread.ts';
import { threadNotFound } from '../core/thread-errors.ts';
import { addSpend, NO_COST } from '../core/usage.ts';
import { regexFinds, regexProblem } from '../policy/regex.ts';
import { cancelThread, killThread } from '../threads/family/cancel.ts';
import { changesOf } from '../threads/family/changes.ts';
import {
  assertDescendant,
  chainEnd,
  childrenOf,
  openDescendants,
} from '../threads/family/children.ts';
import { sendDelivery } from '../threads/family/deliver.ts';

import { waitThreads } from '../threads/family/wait.ts';
import type { SessionChildren, ThreadEnv } from '../threads/ports.ts';
import { runResumed } from '../threads/run/lifecycle.ts';
import { readSigned } from '../threads/verified-log.ts';
import {
  type OrchestratorActions,
  type OrchestratorCall,
  type SendMessage,
  ThreadsWait,
} from '../tools/orchestrator/orchestrator.ts';

import type { CallContext } from '../tools/tool.ts';

export interface OrchestratorScope {
  readonly env: ThreadEnv;
  readonly children: SessionChildren;
}

const SNIPPET_CHARS = 500;
const SEARCHED: ReadonlySet<string> = new Set([
  'message',
  'tool_call_start',
  'tool_settled',
  'thread_finished',
]);

/** Implements the orchestrator tool for one thread; it acts only on that thread's descendants. */
export function orchestratorActions(scope: OrchestratorScope): OrchestratorActions {
  return { ...lookingActions(scope), ...stoppingActions(scope), ...continuingActions(scope) };
}

type Looking =
  | 'wait_threads'
  | 'list_active'
  | 'list_children'
  | 'get_status'
  | 'aggregate_results'
  | 'read_transcript'
  | 'get_chain'
  | 'chain_search';

function lookingActions({ env, children }: OrchestratorScope): Pick<OrchestratorActions, Looking> {
  const { registry } = env.store;
  return {
    wait_threads: async (call, context) => {
      const { waiting, ...report } = await waitThreads(env, {
        threadIds: await several(env, call, context),
        mode: call.mode,
        timeoutMs: call.timeoutSeconds === undefined ? undefined : call.timeoutSeconds * 1000,
        signal: context.signal,
        // a look without time to wait tells how things are
        parks: call.timeoutSeconds !== 0,
        parksAfterMs: parksAfter(env, call, context),
        onEnd: async (record, run) => await children.learned(record, run),
      });
      return waiting ? new ThreadsWait(waiting) : asJson(report);
    },
    list_active: async (_call, { threadId }) => listing(await openDescendants(registry, threadId)),
    list_children: async (_call, { threadId }) => listing(await childrenOf(registry, threadId)),
    get_status: async (call, context) => {
      const record = await required(env, await one(env, call, context));
      return { ...statusOf(record), ...withChanges(await changesOf(env, record)) };
    },
    aggregate_results: async (call, context) => {
      const ids = await several(env, call, context);
      const records = await Promise.all(ids.map(async (id) => await chainEnd(registry, id)));
      const changes = await Promise.all(
        records.map(async (record) => await changesOf(env, record)),
      );
      return aggregate(ids, records, changes);
    },
    read_transcript: async (call, context) => {
      const id = await one(env, call, context);
      const events = await eventsOf(env, id);
      const lines = events
        .filter(({ event_type }) => SEARCHED.has(event_type))
        .map(({ seq, event_type, payload }) => `${seq} ${event_type} ${JSON.stringify(payload)}`);
      const shown = call.tailLines === undefined ? lines : lines.slice(-call.tailLines);
      return { thread_id: id, content: shown.join('\n'), lines: shown.length, total: lines.length };
    },
    get_chain: async (call, context) => {
      const chain = await registry.chain(await one(env, call, context));
      return {
        chain: chain.map(({ thread_id, status, directive }) => ({ thread_id, status, directive })),
        chain_length: chain.length,
      };
    },
    chain_search: async (call, context) =>
      await searchChain(env, await one(env, call, context), call),
  };
}

/** A leg of a fleet holds no slot for long; only one that waits for all of the threads can tell when they have ended. */
function parksAfter(
  { fleet }: ThreadEnv,
  { mode, timeoutSeconds }: OrchestratorCall,
  { threadId }: CallContext,
): number | undefined {
  const isLeg = fleet?.leg?.threadId === threadId;
  return isLeg && mode === 'all' && timeoutSeconds === undefined
    ? fleet?.leg?.waitInlineMs
    : undefined;
}

function stoppingActions({
  env,
}: OrchestratorScope): Pick<OrchestratorActions, 'cancel_thread' | 'kill_thread'> {
  return {
    cancel_thread: async (call, context) => {
      const requested = await cancelThread(env, {
        threadId: await one(env, call, context),
        reason: call.reason ?? `asked by ${context.threadId}`,
        tree: call.tree,
      });
      return { requested, total: requested.length };
    },
    kill_thread: async (call, context) => {
      const killed = await killThread(env, {
        threadId: await one(env, call, context),
        reason: call.reason ?? `killed by ${context.threadId}`,
        tree: call.tree,
      });
      return asJson({ killed, total: killed.length });
    },
  };
}

function continuingActions(
  scope: OrchestratorScope,
): Pick<OrchestratorActions, 'resume_thread' | 'handoff_thread' | 'send_message'> {
  const { env } = scope;
  return {
    resume_thread: async (call, context) => await goOn(scope, call, context),
    // the continuation directive writes the message to the successor
    handoff_thread: async (call, context) =>
      await goOn(scope, { ...call, message: undefined }, context),
    send_message: async (call, context) =>
      await messageSender(env)(
        { to: await one(env, call, context), message: call.message ?? '', mode: 'auto' },
        context,
      ),
  };
}

/** The threads that a call names, each below the caller; none named means the caller's children. */
async function several(
  env: ThreadEnv,
  { threadIds }: OrchestratorCall,
  { threadId: callerId }: CallContext,
): Promise<readonly string[]> {
  const { registry } = env.store;
  if (threadIds.length === 0) {
    return (await childrenOf(registry, callerId)).map(({ thread_id }) => thread_id);
  }
  for (const id of threadIds) await assertDescendant(registry, callerId, id);
  return threadIds;
}

/** The one thread that a call names, below the caller. */
async function one(
  env: ThreadEnv,
  { threadIds }: OrchestratorCall,
  { threadId: callerId }: CallContext,
): Promise<string> {
  const [id, ...more] = threadIds;
  if (id === undefined || more.length > 0) {
    throw new RyeError('invalid_input', 'this operation takes exactly one thread_id', {
      hint: 'list_children names the threads that this one started.',
    });
  }
  await assertDescendant(env.store.registry, callerId, id);
  return id;
}

/** Resumes a thread below the caller and resolves to its result, which the caller has learned then. */
async function goOn(
  { env, children }: OrchestratorScope,
  call: OrchestratorCall,
  context: CallContext,
): Promise<JsonObject | ThreadsWait> {
  const threadId = await one(env, call, context);
  const [awaited] = context.awaited ?? [];
  const result =
    awaited === undefined
      ? await runResumed(env, {
          threadId,
          message: call.message,
          secrets: {},
          runner: { allow_unsigned: false },
          signal: context.signal,
          onIdle: context.onIdle,
        })
      : await children.join(awaited, context.signal, context.onIdle);
  const { thread_id, directive, status, outputs, error, cost, continuation_thread_id } = result;
  if (result.waiting_for !== undefined) {
    const { approvals = [] } = result;
    return new ThreadsWait({ threads: [thread_id], approvals });
  }
  const { registry } = env.store;
  const last = continuation_thread_id ?? thread_id;
  const run = await registry.runOf(last);
  const end = await registry.endOf(last, run);
  if (end) await children.learned(end, run);
  return asJson(
    compact({
      resumed_thread_id: threadId,
      thread_id,
      directive,
      status,
      result: result.result,
      outputs,
      error: error && { code: error.code, message: error.message },
      cost,
      changes: result.changes,
      continuation_thread_id,
    }),
  );
}

async function required(env: ThreadEnv, threadId: string): Promise<ThreadRecord> {
  const record = await env.store.registry.get(threadId);
  if (record) return record;
  throw threadNotFound(threadId);
}

function statusOf(record: ThreadRecord): JsonObject {
  const { thread_id, directive, status, created_at, completed_at, result, outputs, error, cost } =
    record;
  return asJson(
    compact({
      thread_id,
      directive,
      status: status === 'created' && record.pid === null ? 'queued' : status,
      created_at,
      completed_at,
      result: result ?? undefined,
      outputs: outputs ?? undefined,
      error: error ?? undefined,
      cost,
      continuation_thread_id: record.continuation_thread_id ?? undefined,
    }),
  );
}

function listing(records: readonly ThreadRecord[]): JsonObject {
  return {
    threads: records.map(({ thread_id, directive, status, parent_id, cost }) => ({
      thread_id,
      directive,
      status,
      parent_id,
      ...addSpend(cost, { spend: 0 }),
    })),
    total: records.length,
  };
}

function withChanges(changes: WorktreeChanges | undefined): JsonObject {
  return changes ? { changes: asJson({ ...changes }) } : {};
}

function aggregate(
  ids: readonly string[],
  records: readonly (ThreadRecord | undefined)[],
  changes: readonly (WorktreeChanges | undefined)[],
): JsonObject {
  const results = ids.map((id, index): JsonObject => {
    const record = records[index];
    if (!record) return { thread_id: id, status: 'not_found' };
    return {
      ...statusOf(record),
      thread_id: id,
      final_thread_id: record.thread_id,
      ...withChanges(changes[index]),
    };
  });
  const costs = records.map((record) => record?.cost ?? NO_COST);
  const completed = records.filter((record) => record?.status === 'completed').length;
  return {
    results,
    total: results.length,
    completed,
    failed: results.length - completed,
    ...costs.reduce(addSpend, { spend: 0 }),
  };
}

/** A thread's events; none for one that ended before it ran. */
async function eventsOf(
  env: ThreadEnv,
  threadId: string,
): Promise<readonly (LogEvent | UnknownEvent)[]> {
  try {
    return await readSigned(env, threadId);
  } catch (error) {
    if (error instanceof RyeError && error.code === 'thread_not_found') return [];
    throw error;
  }
}

async function searchChain(
  env: ThreadEnv,
  threadId: string,
  { query, searchType, maxResults }: OrchestratorCall,
): Promise<JsonObject> {
  if (query === undefined) throw new RyeError('invalid_input', 'chain_search needs a query');
  const problem = searchType === 'regex' ? regexProblem(query) : undefined;
  if (problem !== undefined) {
    throw new RyeError('pattern_invalid', `the query is not a usable pattern: ${problem}`);
  }
  const needle = query.toLowerCase();
  const finds = (text: string): boolean =>
    searchType === 'regex' ? regexFinds(query, text) : text.toLowerCase().includes(needle);
  const chain = await env.store.registry.chain(threadId);
  const results: JsonObject[] = [];
  let truncated = false;
  for (const { thread_id } of chain) {
    const events = await eventsOf(env, thread_id);
    for (const { seq, event_type, payload } of events) {
      if (!SEARCHED.has(event_type)) continue;
      const text = JSON.stringify(payload);
      if (!finds(text)) continue;
      truncated = results.length >= maxResults;
      if (truncated) break;
      results.push({ thread_id, event_type, seq, snippet: headChars(text, SNIPPET_CHARS) });
    }
    if (truncated) break;
  }
  return {
    chain_threads: chain.map(({ thread_id }) => thread_id),
    chain_length: chain.length,
    results,
    total: results.length,
    truncated,
  };
}

/** A value of records and reports, which are JSON already. */
function asJson(value: object): JsonObject {
  return value as JsonObject;
}

/** Implements the tool `send_message` for a thread. */
export function messageSender(env: ThreadEnv): SendMessage {
  return async ({ to, message, mode }, { threadId: from }): Promise<JsonObject> => {
    const threadId = to === 'parent' ? await parentOf(env, from) : to;
    const { delivery, outlook } = await sendDelivery(env, { threadId, message, mode, from });
    return {
      delivery_id: delivery.delivery_id,
      thread_id: delivery.thread_id,
      state: delivery.state,
      outlook,
    };
  };
}

async function parentOf(env: ThreadEnv, threadId: string): Promise<string> {
  const parent = (await env.store.registry.get(threadId))?.parent_id;
  if (typeof parent === 'string') return parent;
  throw new RyeError('not_descendant', `no thread has started ${threadId}`, {
    hint: 'A message can go to the threads that this one has started.',
  });
}
