import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { reply } from '../helpers/wire-server.ts';

let lab: Lab;
let rye: Rye;

beforeEach(async () => {
  lab = await openLab();
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

const MODEL = { provider: 'anthropic', model: 'claude-haiku-5-5', api: 'anthropic-messages' };

function message(id: string, parentId: string | null, value: object): string {
  return JSON.stringify({ type: 'message', id, parentId, timestamp: 't', message: value });
}

const userEntry = (text: string) => ({ role: 'user', content: text, timestamp: 1 });

function answered(content: readonly object[], stopReason = 'stop'): object {
  return { role: 'assistant', content, ...MODEL, stopReason, timestamp: 2 };
}

const HEAD = JSON.stringify({
  type: 'session',
  version: 3,
  id: 's-1',
  timestamp: '2026-01-01T00:00:00.000Z',
  cwd: '/w',
});
const CALL = { type: 'toolCall', id: 'toolu_1', name: 'read', arguments: { path: 'zoo.txt' } };
const LINES = [
  HEAD,
  message('a1', null, userEntry('Where is the zebra?')),
  message('a2', 'a1', answered([CALL], 'toolUse')),
  message('a3', 'a2', {
    role: 'toolResult',
    toolCallId: 'toolu_1',
    toolName: 'read',
    content: [{ type: 'text', text: 'the zebra is in the zoo' }],
    isError: false,
  }),
  message('a4', 'a3', answered([{ type: 'text', text: 'In the zoo.' }])),
  message('b2', 'a1', answered([{ type: 'text', text: 'No idea.' }])),
  JSON.stringify({
    type: 'label',
    id: 'b3',
    parentId: 'b2',
    timestamp: 't',
    targetId: 'a1',
    label: 'q',
  }),
  message('a5', 'a4', userEntry('Thanks!')),
  message('a6', 'a5', answered([{ type: 'text', text: 'You are welcome.' }])),
];

function sessionFile(lines: readonly string[] = LINES): string {
  const file = path.join(lab.project, 'session.jsonl');
  writeFileSync(file, lines.map((line) => `${line}\n`).join(''));
  return file;
}

const exported = async (id: string) =>
  [...(await rye.exports.export(id, { format: 'pi' })).chunks].join('');

describe('an imported session', () => {
  it('is a completed thread that names its source, verifies and is found', async () => {
    const file = sessionFile();
    const { thread, ...made } = await rye.trees.importSession({ path: file });
    expect(made).toEqual({
      format: 'pi',
      version: 3,
      session_id: 's-1',
      entries: 8,
      messages: 7,
      problems: [],
    });
    const { thread_id } = thread;
    expect(thread_id).toMatch(/^imported\/pi-\w{4}$/);
    expect(thread).toMatchObject({
      status: 'completed',
      directive: 'imported/pi',
      model: 'claude-haiku-5-5',
      result: 'You are welcome.',
      parent_id: null,
      cost: { spend: 0, turns: 0 },
    });
    const verified = await rye.threads.verify(thread_id);
    expect(verified.checks.map(({ name, ok }) => [name, ok])).toEqual([
      ['thread.json', true],
      ['transcript', true],
      ['plan', true],
      ['capabilities', true],
      ['origin', true],
      ['knowledge', true],
      ['head', true],
    ]);
    const document = JSON.parse(lab.read(`state/threads/${thread_id}/thread.json`));
    expect(document).toMatchObject({
      integrity: 'unverified',
      capabilities: [],
      imported_from: { format: 'pi', session_id: 's-1', file: 'session.jsonl', version: 3 },
    });
    expect(JSON.stringify(document)).not.toContain(lab.project);
    const { results } = await rye.items.search('knowledge', 'zebra');
    expect(results.map(({ id }) => id)).toEqual([`agent/threads/imported/pi/${thread_id}`]);
    expect((await rye.threads.list({})).map(({ thread_id: id }) => id)).toEqual([thread_id]);
  });

  it('has the branches, the labels and the leaf of the session', async () => {
    const { thread } = await rye.trees.importSession({ path: sessionFile() });
    const { rows, leaf_id } = await rye.trees.view(thread.thread_id);
    expect(leaf_id).toBe('a6');
    expect(rows.map(({ entry, label = '' }) => `${entry.id}${label && ` ${label}`}`)).toEqual([
      'a1 q',
      'a3',
      'a4',
      'a5',
      'a6',
      'b2',
    ]);
    await rye.trees.branch(thread.thread_id, { at: 'b2', message: 'Look again.' });
    const { messages } = await rye.trees.context(thread.thread_id);
    expect(messages.map(({ content }) => textOf(content))).toEqual([
      'Where is the zebra?',
      'No idea.',
      'Look again.',
    ]);
    expect((await rye.threads.verify(thread.thread_id)).ok).toBe(true);
  });

  it('continues with a current model, which is told that the tools are gone', async () => {
    const server = await lab.model([reply('Still in the zoo.')]);
    const { thread } = await lab.rye().trees.importSession({ path: sessionFile() });
    const resumed = await lab.rye().recovery.resume({
      threadId: thread.thread_id,
      message: 'And now?',
    });
    expect(resumed).toMatchObject({ status: 'completed', result: 'Still in the zoo.' });
    const { body } = server.requests[0] ?? {};
    expect(JSON.stringify(body?.system)).toContain('imported from a session of pi');
    // a provider refuses calls of tools that the request does not define
    expect(body?.tools?.map(({ name }) => name)).toContain('read');
    const sent = JSON.stringify(body?.messages);
    expect(sent).toContain('the zebra is in the zoo');
    expect(sent).toContain('And now?');
    const document = JSON.parse(lab.read(`state/threads/${resumed.thread_id}/thread.json`));
    expect(document).toMatchObject({ integrity: 'unverified', capabilities: [] });
  });

  it('goes back to pi as it came, also after it was branched and extracted', async () => {
    const file = sessionFile();
    const { thread } = await rye.trees.importSession({ path: file });
    expect(await exported(thread.thread_id)).toBe(readFileSync(file, 'utf8'));
    const { thread_id } = await rye.trees.extract(thread.thread_id, { at: 'a4' });
    const lines = (await exported(thread_id)).trim().split('\n');
    expect(lines.slice(1, 5)).toEqual(LINES.slice(1, 5));
    expect(JSON.parse(lines[5] ?? '')).toMatchObject({ type: 'label', targetId: 'a1', label: 'q' });
  });

  // Requirement: open-rewrites-session
  it('leaves the file as it is, to the byte and the millisecond', async () => {
    const file = sessionFile([HEAD.replace('"version":3,', ''), ...LINES.slice(1), '{"torn']);
    writeFileSync(file, readFileSync(file, 'utf8').slice(0, -1));
    const before = readFileSync(file);
    const { mtimeMs } = statSync(file);
    const { version, problems } = await rye.trees.importSession({ path: file });
    expect(version).toBe(1);
    expect(problems).toMatchObject([{ kind: 'torn_tail', line: 10 }]);
    expect(readFileSync(file)).toEqual(before);
    expect(statSync(file).mtimeMs).toBe(mtimeMs);
  });

  // Requirement: long-header-hides-session, list-reads-all
  it('is listed without its log being read', async () => {
    const { thread } = await rye.trees.importSession({ path: sessionFile(), threadId: 'kept/zoo' });
    writeFileSync(lab.path('state/threads/kept/zoo/transcript.jsonl'), 'gone');
    expect(await rye.threads.list({})).toMatchObject([
      { thread_id: thread.thread_id, model: 'claude-haiku-5-5', result: 'You are welcome.' },
    ]);
  });
});

describe('a file that is refused', () => {
  const REFUSED: readonly (readonly [string, string, string])[] = [
    ['is empty', '', 'session_malformed'],
    ['is no session', '# Notes\n', 'session_malformed'],
    [
      'has an id that is a path',
      `${HEAD}\n${message('../../x', null, userEntry('x'))}\n`,
      'session_malformed',
    ],
    ['has a loop', `${HEAD}\n${message('a', 'a', userEntry('x'))}\n`, 'session_malformed'],
  ];
  it.each(REFUSED)('because it %s: is left alone, and no thread is made', async (_, text, code) => {
    const file = path.join(lab.project, 'odd.jsonl');
    writeFileSync(file, text);
    await expect(rye.trees.importSession({ path: file })).rejects.toMatchObject({ code });
    expect(readFileSync(file, 'utf8')).toBe(text);
    expect(await rye.threads.list({})).toEqual([]);
    expect(existsSync(lab.path('state/threads/imported'))).toBe(false);
  });

  it.each([
    ['bytes that are no UTF-8', Buffer.from([0xff, 0xfe]), ['encoding'], ['', '\n']],
    ['a byte order mark and lines that end in CR LF', Buffer.from('x'), [], ['\uFEFF', '\r\n']],
  ])(
    'not because of %s, which is reported if it loses something',
    async (_, text, kinds, [start, end]) => {
      const file = path.join(lab.project, 'odd.jsonl');
      const [before = '', behind = ''] = message('a', null, userEntry('HERE')).split('HERE');
      const bytes = Buffer.concat([
        Buffer.from(`${start}${HEAD}${end}${before}`),
        text,
        Buffer.from(`${behind}${end}`),
      ]);
      writeFileSync(file, bytes);
      const { thread, problems } = await rye.trees.importSession({ path: file });
      expect(problems.map(({ kind, line }) => [kind, line])).toEqual(
        kinds.map((kind) => [kind, 2]),
      );
      const { messages } = await rye.trees.context(thread.thread_id);
      expect(messages).toHaveLength(1);
      if (kinds.length > 0) return;
      // what pi reads again is what it wrote, without the mark
      expect(await exported(thread.thread_id)).toBe(bytes.toString('utf8').slice(1));
    },
  );

  it('because it is missing or a folder', async () => {
    const gone = path.join(lab.project, 'gone.jsonl');
    await expect(rye.trees.importSession({ path: gone })).rejects.toMatchObject({
      code: 'file_not_found',
    });
    await expect(rye.trees.importSession({ path: lab.project })).rejects.toMatchObject({
      code: 'usage',
    });
  });

  it('because a line is longer than a line of a log may be', async () => {
    const file = path.join(lab.project, 'long.jsonl');
    writeFileSync(file, `${HEAD}\n${'x'.repeat(17 * 1024 * 1024)}`);
    await expect(rye.trees.importSession({ path: file })).rejects.toMatchObject({
      code: 'item_too_large',
    });
    const image = { type: 'image', data: 'A'.repeat(9 * 1024 * 1024), mimeType: 'image/png' };
    writeFileSync(file, `${HEAD}\n${message('a', null, { role: 'user', content: [image] })}\n`);
    await expect(rye.trees.importSession({ path: file })).rejects.toMatchObject({
      code: 'item_too_large',
    });
    expect(await rye.threads.list({})).toEqual([]);
  });

  it('because the id of the thread is taken or none', async () => {
    const file = sessionFile();
    await rye.trees.importSession({ path: file, threadId: 'kept/zoo' });
    await expect(
      rye.trees.importSession({ path: file, threadId: 'kept/zoo' }),
    ).rejects.toMatchObject({ code: 'thread_id_taken' });
    await expect(rye.trees.importSession({ path: file, threadId: '../zoo' })).rejects.toMatchObject(
      { code: 'invalid_thread_id' },
    );
    expect(await rye.threads.list({ active: true })).toEqual([]);
  });
});
