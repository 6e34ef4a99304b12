import { readFileSync, statSync, writeFileSync } from 'node:fs';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { isRecord } from '../../src/kernel/core/json.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

let lab: Lab;
let rye: Rye;
let id: string;

beforeEach(async () => {
  lab = await openLab();
  writeFileSync(`${lab.project}/a.txt`, 'content of a\n'.repeat(100));
  await lab.model(({ body }) => {
    const text = JSON.stringify([body.system ?? '', body.messages]);
    if (text.includes('You summarize part of the record')) return reply('THE SAME SUMMARY');
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

function logFile(thread = id): string {
  return lab.path(`state/threads/${thread}/transcript.jsonl`);
}

async function entryOf(kind: string, thread = id): Promise<string> {
  const { rows } = await rye.trees.view(thread, { filter: 'all' });
  return rows.find((row) => row.kind === kind)?.entry.id ?? '';
}

/** Ids of the entries in the file itself, in its order. */
function idsOnDisk(thread: string): string[] {
  return readFileSync(logFile(thread), 'utf8')
    .split('\n')
    .filter((line) => line !== '')
    .flatMap((line) => {
      const event: unknown = JSON.parse(line);
      return isRecord(event) && typeof event['id'] === 'string' ? [event['id']] : [];
    });
}

describe('a reader of a session tree', () => {
  // Requirement: reading-writes
  it('writes nothing, also where the log is damaged', async () => {
    const file = logFile();
    writeFileSync(file, `${readFileSync(file, 'utf8')}{"seq":99,"torn`);
    const before = readFileSync(file);
    const { mtimeMs } = statSync(file);
    const user = await entryOf('user');
    await rye.trees.view(id, { search: 'content' });
    await rye.trees.entry(id, user);
    await rye.trees.path(id, user);
    await rye.trees.children(id, user);
    await rye.trees.context(id);
    await rye.threads.verify(id);
    for (const format of ['md', 'jsonl', 'pi'] as const) {
      const { chunks } = await rye.exports.export(id, { format });
      expect([...chunks].join('')).toContain('content of a');
    }
    expect(readFileSync(file)).toEqual(before);
    expect(statSync(file).mtimeMs).toBe(mtimeMs);
  });

  // Requirement: search-unbounded
  it('treats a search as words, so that a costly pattern is harmless', async () => {
    const hostile = `${'(a+)+'.repeat(50)}$`;
    await rye.trees.appendCustomMessage(id, {
      customType: 'note',
      content: 'a'.repeat(100_000),
      display: true,
    });
    const begun = performance.now();
    expect((await rye.trees.view(id, { search: hostile })).rows).toEqual([]);
    expect(performance.now() - begun).toBeLessThan(20_000);
  });
});

describe('an edit of a session tree', () => {
  // Requirement: early-resume-duplicates
  it('writes each entry once, also before there is an answer', async () => {
    const { thread_id } = await rye.trees.extract(id, { at: await entryOf('user') });
    const before = idsOnDisk(thread_id);
    const text = readFileSync(logFile(thread_id), 'utf8');
    await lab.rye().recovery.resume({ threadId: thread_id, message: 'Go on.' });
    const after = idsOnDisk(thread_id);
    expect(readFileSync(logFile(thread_id), 'utf8').startsWith(text)).toBe(true);
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after.length).toBeGreaterThan(before.length);
    expect(new Set(after).size).toBe(after.length);
  });

  // Requirement: compaction-by-text
  it('names the entry that it made, also of two with one summary', async () => {
    const at = (await rye.trees.view(id)).leaf_id ?? '';
    const first = await rye.trees.compact(id);
    await rye.trees.branch(id, { at });
    const second = await rye.trees.compact(id);
    if (!first.compacted || !second.compacted) throw new Error('nothing was compacted');
    expect(first.summary).toBe(second.summary);
    expect(first.entry_id).not.toBe(second.entry_id);
    const path = await rye.trees.path(id);
    expect(path.map((entry) => entry.id)).toContain(second.entry_id);
    expect(path.map((entry) => entry.id)).not.toContain(first.entry_id);
  });

  // Requirement: half-migrated-fork
  it('of an imported session of version 1 makes a thread whole in itself', async () => {
    const file = `${lab.project}/old.jsonl`;
    const said = (text: string) => ({ role: 'user', content: text, timestamp: 1 });
    const lines = [
      { type: 'session', id: 's-1', timestamp: 't', cwd: '/w' },
      { type: 'message', timestamp: 't', message: said('one') },
      { type: 'message', timestamp: 't', message: said('two') },
    ];
    writeFileSync(file, lines.map((value) => `${JSON.stringify(value)}\n`).join(''));
    const { thread } = await rye.trees.importSession({ path: file });
    const { rows } = await rye.trees.view(thread.thread_id);
    const at = rows.at(-1)?.entry.id ?? '';
    const made = await rye.trees.extract(thread.thread_id, { at });
    const { messages } = await rye.trees.context(made.thread_id);
    expect(messages.map(({ content }) => textOf(content))).toEqual(['one', 'two']);
    const { chunks } = await rye.exports.export(made.thread_id, { format: 'pi' });
    const records = [...chunks].map((line) => JSON.parse(line));
    expect(
      records.map(({ version, id: own, parentId }) => [version, typeof own, parentId]),
    ).toEqual([
      [3, 'string', undefined],
      [undefined, 'string', null],
      [undefined, 'string', records[1].id],
    ]);
  });
});
