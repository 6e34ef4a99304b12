import { writeFileSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { type Lab, openLab } from '../attacks/lab.ts';

let lab: Lab;
let rye: Rye;

beforeEach(async () => {
  lab = await openLab();
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

const HEAD = { type: 'session', version: 3, id: 's-1', timestamp: 't', cwd: '/w' };
const said = (text: string) => ({ role: 'user', content: text, timestamp: 1 });
const at = (type: string, id: string, parentId: string | null, rest: object) => ({
  type,
  id,
  parentId,
  timestamp: 't',
  ...rest,
});
const user = (id: string, parentId: string | null, text: string) =>
  at('message', id, parentId, { message: said(text) });
const compaction = (id: string, parentId: string, summary: string, firstKeptEntryId: string) =>
  at('compaction', id, parentId, { summary, firstKeptEntryId, tokensBefore: 1000 });

/** Imports the lines, each a record or a text as it is; returns the import and the texts of its context. */
async function imported(lines: readonly (object | string)[], end = '\n') {
  const file = path.join(lab.project, 'session.jsonl');
  const texts = lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line)));
  writeFileSync(file, texts.join('\n') + end);
  const made = await rye.trees.importSession({ path: file });
  const { thread_id: id } = made.thread;
  const { messages } = await rye.trees.context(id);
  const context = messages.map(({ content }) => {
    const text = textOf(content);
    return /<summary>\n([^]*)\n<\/summary>/.exec(text)?.[1] ?? text;
  });
  return { ...made, id, context };
}

const TALK = [user('a1', null, 'one'), user('a2', 'a1', 'two'), user('a3', 'a2', 'three')];

describe('the context of an imported session', () => {
  it('after a compaction is its summary, what it kept, and what came later', async () => {
    const { context } = await imported([
      HEAD,
      ...TALK,
      compaction('c1', 'a3', 'FIRST', 'a3'),
      user('a4', 'c1', 'four'),
    ]);
    expect(context).toEqual(['FIRST', 'three', 'four']);
  });

  it('after two compactions has the summary of the last alone', async () => {
    const { context } = await imported([
      HEAD,
      ...TALK,
      compaction('c1', 'a3', 'FIRST', 'a3'),
      user('a4', 'c1', 'four'),
      compaction('c2', 'a4', 'SECOND', 'a4'),
      user('a5', 'c2', 'five'),
    ]);
    expect(context).toEqual(['SECOND', 'four', 'five']);
  });
});

describe('an older session', () => {
  it('of version 1 becomes one chain with ids, and its compaction names the entry of its index', async () => {
    const { version, context, id } = await imported([
      { type: 'session', id: 's-1', timestamp: 't', cwd: '/w' },
      { type: 'message', timestamp: 't', message: said('one') },
      { type: 'message', timestamp: 't', message: said('two') },
      {
        type: 'compaction',
        timestamp: 't',
        summary: 'SUM',
        firstKeptEntryIndex: 2,
        tokensBefore: 9,
      },
      { type: 'message', timestamp: 't', message: said('three') },
    ]);
    expect(version).toBe(1);
    expect(context).toEqual(['SUM', 'two', 'three']);
    const entries = await rye.trees.path(id);
    const ids = entries.map((entry) => entry.id);
    expect(entries.map((entry) => entry.parent_id)).toEqual([null, ...ids.slice(0, -1)]);
  });

  it('of version 2 keeps its ids, and messages of hooks become custom messages', async () => {
    const hook = { role: 'hookMessage', customType: 'h', content: 'a hook tells', display: true };
    const { version, context, id } = await imported([
      { ...HEAD, version: 2 },
      user('a1', null, 'one'),
      at('message', 'a2', 'a1', { message: { ...hook, timestamp: 1 } }),
    ]);
    expect(version).toBe(2);
    expect(context).toEqual(['one', 'a hook tells']);
    const { chunks } = await rye.exports.export(id, { format: 'pi' });
    const records = [...chunks].map((line) => JSON.parse(line) as { id: string });
    expect(records.map((record) => record.id)).toEqual(['s-1', 'a1', 'a2']);
  });
});

describe('a damaged session', () => {
  it('is imported without what is torn, malformed or fused, and each is reported', async () => {
    const [one, two, three] = TALK.map((entry) => JSON.stringify(entry));
    const lines = [HEAD, `${one}${two}`, '{"broken', `${three}`, '{"type":"mess'];
    const { context, problems } = await imported(lines, '');
    expect(context).toEqual(['one', 'two', 'three']);
    const kinds = problems.map(({ kind }) => kind);
    expect(kinds.toSorted()).toEqual(['fused', 'malformed', 'torn_tail']);
  });

  it('with an orphan hangs it on the entry before, and reports it', async () => {
    const { context, problems } = await imported([
      HEAD,
      user('a1', null, 'one'),
      user('a2', 'missing', 'two'),
    ]);
    expect(context).toEqual(['one', 'two']);
    expect(problems.map(({ kind }) => kind)).toEqual(['orphan']);
  });

  it.each([
    ['a cycle', [HEAD, user('a1', 'a2', 'one'), user('a2', 'a1', 'two')]],
    ['a newer version', [{ ...HEAD, version: 99 }, ...TALK]],
  ])('is refused with %s', async (_, lines) => {
    await expect(imported(lines)).rejects.toMatchObject({ name: 'RyeError' });
    expect(await rye.threads.list({})).toEqual([]);
  });
});
