import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { type Chat, type ChatItem, type ChatRequest, openRye } from '../../src/index.ts';
import { type MockTurn, mockModel } from '../../testing/index.ts';
import { workspace } from '../helpers/workspace.ts';

interface Talk {
  readonly chat: Chat;
  readonly project: string;
  readonly requests: ReturnType<typeof mockModel>['requests'];
  /** Opens another conversation of the same program. */
  readonly again: (request: ChatRequest) => Promise<Chat>;
}

async function talk(script: readonly MockTurn[], request: ChatRequest = {}): Promise<Talk> {
  const { project, home } = await workspace();
  const model = mockModel(script);
  const rye = openRye({
    projectPath: project,
    userSpacePath: home,
    env: { HOME: home },
    providers: { mock: model.kind },
  });
  onTestFinished(() => rye.close());
  const again = async (more: ChatRequest) =>
    await rye.chat({ ...more, start: { provider: 'mock', ...more.start } });
  return { chat: await again(request), project, requests: model.requests, again };
}

/** The conversation, without notices. */
function said({ state }: Chat): readonly (readonly string[])[] {
  return state.items.flatMap((item) => {
    if (item.kind === 'notice') return [];
    return [item.kind === 'call' ? [item.name, item.state] : [item.kind, item.text]];
  });
}

/** Resolves when the state is as wanted. */
async function until(chat: Chat, isWanted: (state: Chat['state']) => boolean): Promise<void> {
  if (isWanted(chat.state)) return;
  await new Promise<void>((resolve) => {
    const end = chat.subscribe((state) => {
      if (!isWanted(state)) return;
      end();
      resolve();
    });
  });
}

it('the first message starts a thread, and each further one is a run of it', async () => {
  const { chat, requests } = await talk(['Hello, Ada.', 'Bob.']);
  expect(chat.state).toMatchObject({ isRunning: false, items: [], emptyMessage: 'nothing' });
  expect(chat.state.threadId).toBeUndefined();
  const first = await chat.send('I am Ada.');
  const second = await chat.send('And who is he?');
  expect([first?.status, second?.thread_id]).toEqual(['completed', chat.state.threadId]);
  expect(said(chat)).toEqual([
    ['user', 'I am Ada.'],
    ['assistant', 'Hello, Ada.'],
    ['user', 'And who is he?'],
    ['assistant', 'Bob.'],
  ]);
  expect(chat.state.spent?.turns).toBe(2);
  expect(JSON.stringify(requests[1]?.messages)).toContain('I am Ada.');
});

it('listeners hear of each change, with the positions of the items that changed', async () => {
  const { chat } = await talk(['One.']);
  const seen = new Map<number, ChatItem>();
  const runs: boolean[] = [];
  const end = chat.subscribe(({ items, isRunning }, changed) => {
    runs.push(isRunning);
    for (const at of changed) {
      const item = items[at];
      if (item) seen.set(at, item);
    }
  });
  await chat.send('Count.');
  await new Promise(setImmediate);
  expect([...seen.values()]).toEqual(chat.state.items);
  expect([runs[0], runs.at(-1)]).toEqual([true, false]);
  end();
  const before = runs.length;
  await chat.run({ name: 'new', rest: '' });
  await new Promise(setImmediate);
  expect(runs).toHaveLength(before);
});

it('a message during an answer is queued, and answered without being sent again', async () => {
  const { chat } = await talk([
    () => ({ text: 'First.', calls: [{ tool: 'rye/file-system/ls', input: { path: '.' } }] }),
    'Both.',
    'Two, too.',
  ]);
  const running = chat.send('One');
  await until(chat, ({ threadId }) => threadId !== undefined);
  expect(await chat.send('Two')).toBeUndefined();
  const result = await running;
  expect(result?.success).toBe(true);
  expect(chat.state.queued).toEqual([]);
  expect(said(chat)).toContainEqual(['user', 'Two']);
});

it('a call that asks waits for a decision of the program, and shows its states', async () => {
  const write = { tool: 'rye/file-system/write', input: { path: 'a.txt', content: 'hi' } };
  const { chat, project } = await talk([{ calls: [write] }, 'Written.'], {
    directiveId: 'rye/core/build',
    messageInput: 'task',
  });
  const running = chat.send('Write a.txt');
  await until(chat, ({ approvals }) => approvals.length > 0);
  const [request] = chat.state.approvals;
  expect(request).toMatchObject({ tool: 'rye/file-system/write', preview: { format: 'diff' } });
  expect(said(chat)).toContainEqual(['rye_file_system_write', 'waiting']);
  expect(existsSync(join(project, 'a.txt'))).toBe(false);
  const deciding = chat.decide(request?.id ?? '', { decision: 'approve' });
  // a listener that decides about all requests does it once
  expect(chat.state.approvals).toEqual([]);
  await expect(chat.decide(request?.id ?? '', { decision: 'deny' })).rejects.toMatchObject({
    code: 'approval_not_found',
  });
  expect(await deciding).toMatchObject({ state: 'approved' });
  expect((await running)?.status).toBe('completed');
  expect(readFileSync(join(project, 'a.txt'), 'utf8')).toBe('hi');
  expect(said(chat)).toEqual([
    ['user', expect.stringContaining('Write a.txt')],
    ['rye_file_system_write', 'ok'],
    ['assistant', 'Written.'],
  ]);
  expect(chat.state.approvals).toEqual([]);
  await expect(chat.decide('apr-none', { decision: 'approve' })).rejects.toMatchObject({
    code: 'approval_not_found',
  });
});

it('undo goes back to before the last message, with the files that it changed', async () => {
  const write = { tool: 'rye/file-system/write', input: { path: 'a.txt', content: 'hi' } };
  const { chat, project } = await talk([{ calls: [write] }, 'Written.', 'Again.'], {
    directiveId: 'rye/core/build',
    messageInput: 'task',
  });
  const running = chat.send('Write a.txt');
  await until(chat, ({ approvals }) => approvals.length > 0);
  await chat.decide(chat.state.approvals[0]?.id ?? '', { decision: 'approve' });
  await running;
  const undone = await chat.run({ name: 'undo', rest: '' });
  expect(undone).toMatchObject({ command: 'undo', draft: 'Write a.txt' });
  expect(existsSync(join(project, 'a.txt'))).toBe(false);
  expect(chat.state.items).toEqual([]);
  await chat.send('Something else');
  expect(said(chat)).toEqual([
    ['user', 'Something else'],
    ['assistant', 'Again.'],
  ]);
});

it('a conversation is continued with its messages, by another chat after the first one closed', async () => {
  const { chat, again } = await talk(['Hello.', 'Still here.']);
  await chat.send('Hi');
  const threadId = chat.state.threadId ?? '';
  await expect(again({ threadId })).rejects.toMatchObject({ code: 'thread_locked' });
  chat.close();
  chat.close();
  await expect(chat.send('More')).rejects.toMatchObject({ code: 'usage' });
  const next = await again({ threadId });
  expect(said(next)).toEqual([
    ['user', 'Hi'],
    ['assistant', 'Hello.'],
  ]);
  await next.send('Are you there?');
  expect(said(next).slice(2)).toEqual([
    ['user', 'Are you there?'],
    ['assistant', 'Still here.'],
  ]);
});

it('an answer that failed or was stopped is continued by an empty message', async () => {
  const { chat } = await talk([{ error: 'no such model' }, 'Here.']);
  await expect(chat.send('')).rejects.toMatchObject({ code: 'usage' });
  await expect(chat.send()).rejects.toMatchObject({ code: 'usage' });
  const failed = await chat.send('Hi');
  expect(failed?.success).toBe(false);
  expect(chat.state).toMatchObject({
    emptyMessage: 'continues',
    error: { code: failed?.error?.code },
  });
  expect((await chat.send())?.success).toBe(true);
  expect(chat.state.error).toBeUndefined();
});

it('commands are read from lines and return data', async () => {
  const { chat } = await talk(['Hello.']);
  expect(chat.parse('What is /etc?')).toBeUndefined();
  expect(() => chat.parse('/nope')).toThrow(/unknown command/);
  const cost = chat.parse('/cost');
  expect(cost && (await chat.run(cost))).toEqual({ command: 'cost' });
  await expect(chat.run({ name: 'undo', rest: '' })).rejects.toMatchObject({ code: 'usage' });
  expect(await chat.run({ name: 'tools', rest: '' })).toMatchObject({
    tools: expect.arrayContaining([expect.objectContaining({ name: 'rye/file-system/read' })]),
  });
  await chat.send('Hi');
  expect(await chat.run({ name: 'cost', rest: '' })).toMatchObject({
    details: { thread: { thread_id: chat.state.threadId } },
  });
  expect(await chat.run({ name: 'tree', rest: '' })).toMatchObject({ command: 'tree' });
  expect(await chat.run({ name: 'new', rest: '' })).toEqual({ command: 'new' });
  expect(chat.state).toMatchObject({ items: [], emptyMessage: 'nothing' });
  expect(chat.state.threadId).toBeUndefined();
});
