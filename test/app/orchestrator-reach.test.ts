import { expect, it } from 'vitest';
import { orchestratorActions } from '../../src/kernel/app/orchestrator.ts';
import { NO_COST } from '../../src/kernel/core/usage.ts';
import type { SessionChildren } from '../../src/kernel/threads/ports.ts';
import type { OrchestratorCall } from '../../src/kernel/tools/orchestrator/orchestrator.ts';
import type { CallContext } from '../../src/kernel/tools/tool.ts';
import { portsDesk } from '../threads/ports-desk.ts';

const now = new Date().toISOString();

/** The actions of the thread `me`, which has the child `kid`, and the grandchild `grandkid`; `other` is another's. */
async function acting() {
  const { env } = await portsDesk();
  const { registry } = env.store;
  const row = { directive: 'd', model: 'm', now, owner: env.owner, isClaimed: true };
  await registry.register({ ...row, threadId: 'me', parentId: null });
  await registry.register({ ...row, threadId: 'kid', parentId: 'me' });
  await registry.register({ ...row, threadId: 'grandkid', parentId: 'kid' });
  await registry.register({ ...row, threadId: 'other', parentId: null });
  const cost = { ...NO_COST, spend: 0.25 };
  const end = { status: 'completed', now, cost, result: 'Fine.', epoch: 1 } as const;
  await registry.finish('kid', end);
  await registry.finish('other', end);
  const learned: string[] = [];
  const children = {
    learned: async ({ thread_id: id }: { readonly thread_id: string }) => void learned.push(id),
  } as unknown as SessionChildren;
  const { signal } = new AbortController();
  const context = { threadId: 'me', callId: 'c', signal } as unknown as CallContext;
  const actions = orchestratorActions({ env, children });
  const act = async (
    name: keyof typeof actions,
    threadIds: readonly string[],
    more: object = {},
  ) => {
    const call = { mode: 'all', tree: false, maxResults: 5, query: 'x', ...more, threadIds };
    return await actions[name](call as unknown as OrchestratorCall, context);
  };
  return { act, env, learned };
}

const ONE = [
  'get_status',
  'read_transcript',
  'get_chain',
  'chain_search',
  'cancel_thread',
  'kill_thread',
  'resume_thread',
  'handoff_thread',
  'send_message',
] as const;

it.each([...ONE, 'wait_threads', 'aggregate_results'] as const)(
  'a thread acts only on threads below it: %s',
  async (name) => {
    const { act, env } = await acting();
    for (const id of ['other', 'me', 'none']) {
      await expect(act(name, [id], { message: 'Hello.' })).rejects.toMatchObject({
        code: 'not_descendant',
      });
    }
    expect(await env.store.registry.get('other')).toMatchObject({ cancel_requested: null });
  },
);

it.each(ONE)('an action on one thread takes exactly one: %s', async (name) => {
  const { act } = await acting();
  for (const ids of [[], ['kid', 'grandkid']]) {
    await expect(act(name, ids)).rejects.toMatchObject({ code: 'invalid_input' });
  }
});

it('a thread sees what is below it, and its children if it names none', async () => {
  const { act, learned } = await acting();
  expect(await act('get_status', ['kid'])).toMatchObject({ status: 'completed', result: 'Fine.' });
  expect(await act('get_status', ['grandkid'])).toMatchObject({ status: 'running' });
  expect(await act('list_children', [])).toMatchObject({ total: 1 });
  expect(await act('list_active', [])).toMatchObject({ threads: [{ thread_id: 'grandkid' }] });
  expect(await act('aggregate_results', [])).toMatchObject({ total: 1, completed: 1, spend: 0.25 });
  expect(await act('aggregate_results', ['kid', 'grandkid'])).toMatchObject({
    total: 2,
    completed: 1,
    failed: 1,
  });
  expect(await act('read_transcript', ['kid'])).toMatchObject({ lines: 0, total: 0 });
  expect(await act('get_chain', ['kid'])).toMatchObject({ chain_length: 1 });
  expect(await act('wait_threads', [])).toMatchObject({ success: true });
  expect(learned).toEqual(['kid']);
  const wait = { timeoutSeconds: 0, mode: 'any' };
  expect(await act('wait_threads', ['grandkid'], wait)).toMatchObject({ timed_out: true });
  expect(await act('cancel_thread', ['grandkid'])).toEqual({ requested: ['grandkid'], total: 1 });
});
