import { readFileSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireServer } from '../helpers/wire-server.ts';

let lab: Lab;
let rye: Rye;
let server: WireServer;
let id: string;

beforeEach(async () => {
  lab = await openLab();
  writeFileSync(`${lab.project}/a.txt`, 'content of a\n'.repeat(100));
  server = await lab.model(({ body }) => {
    const text = JSON.stringify([body.system ?? '', body.messages]);
    if (text.includes('You summarize part of the record')) return reply('THE SUMMARY');
    return text.includes('"tool_result"')
      ? reply('Read.')
      : calls(toolUse('rye_file_system_read', { path: 'a.txt' }, 'toolu_1'));
  });
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
    }),
  );
  const ran = await lab.run('work', { model: 'claude-haiku-5-5', provider: 'anthropic' });
  id = ran.thread_id;
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

const logText = (): string =>
  readFileSync(lab.path(`state/threads/${id}/transcript.jsonl`), 'utf8');
const leaf = async (): Promise<string> => (await rye.trees.view(id)).leaf_id ?? '';
const texts = async (): Promise<string[]> =>
  (await rye.trees.context(id)).messages.map(({ content }) => textOf(content));

async function entryOf(kind: string): Promise<string> {
  const { rows } = await rye.trees.view(id, { filter: 'all' });
  return rows.find((row) => row.kind === kind)?.entry.id ?? '';
}

describe('the log of a session', () => {
  it('has an id and the id of the entry before in each entry, and no entry in its header', async () => {
    const [header, ...events] = logText()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    expect(header).toMatchObject({ version: expect.any(Number) as number });
    expect(header).not.toHaveProperty('id');
    const entries = events.filter((event) => 'id' in event);
    const ids = entries.map((entry) => entry['id']);
    expect(new Set(ids).size).toBe(ids.length);
    expect(entries.map((entry) => entry['parent_id'])).toEqual([null, ...ids.slice(0, -1)]);
    expect((await rye.trees.path(id)).map((entry) => entry.id)).toEqual(ids);
  });

  it('has a header with the version of its format, which is no node of the tree', async () => {
    const [header = ''] = logText().split('\n');
    expect((JSON.parse(header) as { version: number }).version).toBeGreaterThan(0);
    const { rows } = await rye.trees.view(id, { filter: 'all' });
    expect(rows.map(({ kind }) => kind)).not.toContain('header');
    const path = await rye.trees.path(id);
    expect(path[0]?.parent_id).toBeNull();
  });

  it('has each message as an entry: of the person, of the model, of a tool', async () => {
    const messages = (await rye.trees.path(id)).filter(
      ({ event_type }) => event_type === 'message',
    );
    const roles = messages.map(
      ({ payload }) => (payload as { message: { role: string } }).message.role,
    );
    expect(roles).toEqual(['user', 'assistant', 'tool_result', 'assistant']);
  });

  it('only grows: edits of the tree append, and every byte before them stays', async () => {
    const before = logText();
    const user = await entryOf('user');
    await rye.trees.label(id, user, 'start');
    await rye.trees.editContext(id, { entry: await entryOf('tool_result'), reason: 'long' });
    await rye.trees.branch(id, { at: user, summary: { text: 'A dead end.' } });
    await rye.trees.label(id, user, '');
    expect(logText().startsWith(before)).toBe(true);
    expect(logText().length).toBeGreaterThan(before.length);
    expect((await rye.threads.verify(id)).ok).toBe(true);
  });
});

describe('the head of a session', () => {
  it('advances with each entry that is appended', async () => {
    const first = await leaf();
    await rye.trees.appendCustom(id, 'mine', { step: 1 });
    const second = await leaf();
    expect((await rye.trees.entry(id, second)).parent_id).toBe(first);
    const { entry_id } = await rye.trees.append(id, {
      type: 'message',
      role: 'user',
      content: 'And?',
    });
    expect(await leaf()).toBe(entry_id);
    expect((await rye.trees.entry(id, entry_id)).parent_id).toBe(second);
  });

  it('that is moved to where it is writes nothing', async () => {
    const user = await entryOf('user');
    await rye.trees.branch(id, { at: user });
    const text = logText();
    expect(await rye.trees.branch(id, { at: user })).toEqual([]);
    expect(logText()).toBe(text);
  });

  it('on a message of the person: the next message joins it in the request', async () => {
    await rye.trees.branch(id, { at: await entryOf('user'), message: 'In French, please.' });
    await rye.recovery.resume({ threadId: id });
    const asked = server.requests.findLast(({ body }) => body.messages.length === 1)?.body.messages;
    expect(asked).toHaveLength(1);
    expect(JSON.stringify(asked)).toMatch(/Do the work\..*In French, please\./);
  });
});

describe('an entry of a session', () => {
  it('has a path from the root to it, and without an entry to the head', async () => {
    const whole = (await rye.trees.path(id)).map((entry) => entry.id);
    expect(whole.at(-1)).toBe(await leaf());
    const user = await entryOf('user');
    const part = (await rye.trees.path(id, user)).map((entry) => entry.id);
    expect(part.at(-1)).toBe(user);
    expect(whole.slice(0, part.length)).toEqual(part);
  });

  it('has its children, on every branch', async () => {
    const user = await entryOf('user');
    const answer = (await rye.trees.children(id, user)).map((entry) => entry.id);
    expect(answer).toEqual([await entryOf('assistant')]);
    await rye.trees.branch(id, { at: user, message: 'Another way.' });
    expect(await rye.trees.children(id, user)).toHaveLength(2);
    const { rows } = await rye.trees.view(id);
    expect(rows.map(({ depth }) => depth)).toEqual([0, 1, 1, 1]);
  });

  it('of a compaction names the first entry that it keeps, the tokens before it and its files', async () => {
    const made = await rye.trees.compact(id);
    if (!made.compacted) throw new Error('nothing was compacted');
    const { payload } = await rye.trees.entry(id, made.entry_id);
    expect(payload).toMatchObject({
      summary: expect.stringContaining('THE SUMMARY') as string,
      tokens_before: expect.any(Number) as number,
      details: { read_files: ['a.txt'] },
    });
    const path = (await rye.trees.path(id)).map((entry) => entry.id);
    const { first_kept_entry_id: kept } = payload as { first_kept_entry_id: string };
    expect(path).toContain(kept);
  });

  it('that keeps the state of a program is in the tree and not in the request', async () => {
    await rye.trees.appendCustom(id, 'pruning', { kept: 'the third' });
    const entry = await rye.trees.entry(id, await leaf());
    expect(entry.payload).toEqual({ custom_type: 'pruning', data: { kept: 'the third' } });
    await rye.recovery.resume({ threadId: id, message: 'Go on.' });
    expect(JSON.stringify(server.requests.at(-1)?.body)).not.toContain('the third');
  });

  it('has its last label, and none once it is cleared', async () => {
    const user = await entryOf('user');
    const label = async () =>
      (await rye.trees.view(id)).rows.find(({ entry }) => entry.id === user)?.label;
    await rye.trees.label(id, user, 'one');
    await rye.trees.label(id, user, 'two');
    expect(await label()).toBe('two');
    await rye.trees.label(id, user, '');
    expect(await label()).toBeUndefined();
  });
});

describe('the context of a session', () => {
  it('is the path to the head, in its order', async () => {
    const roles = (await rye.trees.context(id)).messages.map(({ role }) => role);
    expect(roles).toEqual(['user', 'assistant', 'tool_result', 'assistant']);
    expect((await texts()).at(-1)).toBe('Read.');
  });

  it('has the given summary of an abandoned branch as a message where the head is', async () => {
    await rye.trees.branch(id, {
      at: await entryOf('user'),
      summary: { text: 'It led nowhere.' },
      message: 'Again.',
    });
    const said = await texts();
    expect(said).toHaveLength(3);
    expect(said[1]).toContain('It led nowhere.');
    expect(said[2]).toBe('Again.');
  });
});
