import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { createPiReader } from '../../src/features/pi/session.ts';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { isJsonObject, type JsonObject, toText } from '../../src/kernel/core/json.ts';
import { type Message, textOf } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { extractDrafts } from '../../src/kernel/log/continuation.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { place, userMessage } from '../log/support.ts';
import { exported, HEADER, imported, loadPi, type PiManager, roundTrip } from './pi-lab.ts';

let pi: Awaited<ReturnType<typeof loadPi>>;
beforeAll(async () => {
  pi = await loadPi();
});

const USAGE = {
  input: 10,
  output: 5,
  cacheRead: 1,
  cacheWrite: 2,
  totalTokens: 18,
  cost: { input: 0, output: 0, cacheRead: 0, cacheWrite: 0, total: 0 },
};

function user(text: string): JsonObject {
  return { role: 'user', content: [{ type: 'text', text }], timestamp: 1_771_322_456_000 };
}

function answer(content: readonly JsonObject[], stopReason = 'stop'): JsonObject {
  return {
    role: 'assistant',
    content,
    api: 'anthropic-messages',
    provider: 'anthropic',
    model: 'claude-opus-4-5',
    usage: USAGE,
    stopReason,
    timestamp: 1_771_322_457_000,
  };
}

function result(id: string, text: string): JsonObject {
  return {
    role: 'toolResult',
    toolCallId: id,
    toolName: 'read',
    content: [{ type: 'text', text }],
    details: { lines: 3 },
    isError: false,
    timestamp: 1_771_322_458_000,
  };
}

const CALL = { type: 'toolCall', id: 'toolu_1', name: 'read', arguments: { path: 'a.txt' } };

function folder(): string {
  const made = mkdtempSync(path.join(tmpdir(), 'rye-pi-'));
  onTestFinished(() => removeFolder(made));
  return made;
}

/** A session with everything that pi's SessionManager can write. */
function fullSession(): { readonly manager: PiManager; readonly text: string } {
  const manager = pi.SessionManager.create('/home/ada/project', folder());
  manager.appendModelChange('anthropic', 'claude-opus-4-5');
  manager.appendThinkingLevelChange('medium');
  const first = manager.appendMessage(user('Read a.txt — größer “than” \u2028 ASCII, please.'));
  manager.appendMessage(
    answer([{ type: 'thinking', thinking: 'hm', thinkingSignature: 'c2ln' }, CALL], 'toolUse'),
  );
  manager.appendMessage(result('toolu_1', 'content of a'));
  const kept = manager.appendMessage(answer([{ type: 'text', text: 'It says: content of a.' }]));
  manager.appendLabelChange(first, 'start');
  manager.appendCustomEntry('my-extension', { state: [1, 2] });
  manager.appendCustomMessageEntry('my-extension', 'Mind the gap.', false);
  manager.appendSessionInfo('A session of pi');
  manager.appendMessage(user('A wrong way.'));
  manager.appendMessage(answer([{ type: 'text', text: 'Going the wrong way.' }]));
  manager.branchWithSummary(kept, 'It led nowhere.');
  manager.appendMessage(user('Another way.'));
  manager.appendMessage(answer([{ type: 'text', text: 'There.' }]));
  manager.appendCompaction('Everything so far.', kept, 1234, { readFiles: ['a.txt'] });
  manager.appendMessage(user('And on.'));
  manager.appendMessage(answer([{ type: 'text', text: 'Done.' }]));
  const file = manager.getSessionFile() ?? '';
  return { manager, text: readFileSync(file, 'utf8') };
}

function textsOf(messages: readonly JsonObject[]): string[] {
  return messages.map(({ role, content, summary }) => {
    const text = summary ?? content ?? '';
    if (!Array.isArray(text)) return `${toText(role ?? '')}: ${toText(text)}`;
    const blocks = text.filter(isJsonObject);
    const parts = blocks.map((block) => toText(block['text'] ?? block['type'] ?? ''));
    return `${toText(role ?? '')}: ${parts.join('|')}`;
  });
}

const SUMMARY = /<summary>\n([^]*)\n<\/summary>/;

/** Renders rye's context in the form of pi's. */
function ryeTexts(messages: readonly Message[]): string[] {
  return messages.map(({ role, content }) => {
    const text = content
      .map((block) => ('text' in block && block.type === 'text' ? block.text : block.type))
      .join('|');
    return `${role}: ${SUMMARY.exec(text)?.[1] ?? text}`;
  });
}

function open(text: string): PiManager {
  const file = path.join(folder(), 'session.jsonl');
  writeFileSync(file, text);
  return pi.SessionManager.open(file);
}

describe('a session that pi wrote', () => {
  it('gives the same conversation in rye as in pi', () => {
    const { manager, text } = fullSession();
    const { drafts, problems, model, messages } = imported(text);
    expect(problems).toEqual([]);
    expect(model).toEqual({ provider: 'anthropic', model: 'claude-opus-4-5' });
    expect(messages).toBe(10);
    const tree = buildTree(place(drafts));
    expect(tree.problems).toEqual([]);
    const context = foldContext(tree);
    expect(ryeTexts(context.messages)).toEqual([
      'user: Everything so far.',
      'assistant: It says: content of a.',
      'user: It led nowhere.',
      'user: Another way.',
      'assistant: There.',
      'user: And on.',
      'assistant: Done.',
    ]);
    const theirs = textsOf(manager.buildSessionContext().messages).map((line) =>
      line.replace(/^(compactionSummary|branchSummary|custom):/, 'user:'),
    );
    expect(theirs).toEqual(ryeTexts(context.messages));
    expect(context.settings).toEqual({
      model: { provider: 'anthropic', model: 'claude-opus-4-5' },
      thinking: 'medium',
    });
    expect([...tree.labels.values()]).toEqual(['start']);
    expect(tree.leafId).toBe(manager.getLeafId());
  });

  it('goes back byte for byte', () => {
    const { text } = fullSession();
    expect(roundTrip(text)).toBe(text);
  });

  it('exports with the entries that rye appended, and pi opens it', () => {
    const { text } = fullSession();
    const added: EventDraft[] = [userMessage('From rye.')];
    const events = place([...imported(text).drafts, ...added]);
    const back = exported(events);
    expect(back.startsWith(text)).toBe(true);
    const opened = open(back);
    expect(textsOf(opened.buildSessionContext().messages).at(-1)).toBe('user: From rye.');
    expect(opened.getEntries()).toHaveLength(text.trim().split('\n').length);
  });

  it('goes back with its leaf where it was moved to', () => {
    const { manager, text } = fullSession();
    const [first] = manager.getBranch();
    const move: EventDraft = { event_type: 'leaf', payload: { target_id: first?.id ?? '' } };
    const events = place([...imported(text).drafts, move]);
    const opened = open(exported(events));
    expect(opened.getBranch()[0]?.id).toBe(first?.id);
    expect(opened.getBranch()).toHaveLength(2);
    expect(opened.buildSessionContext().messages).toEqual([]);
  });

  it('is a new session in pi when a branch was extracted to a thread', () => {
    const { manager, text } = fullSession();
    const tree = buildTree(place(imported(text).drafts));
    const events = place(extractDrafts(tree, tree.entries, tree.leafId ?? ''), 'n');
    const header = { ...HEADER, branched_from: { thread_id: 'x', entry_id: 'y' } };
    const opened = open(exported(events, header));
    expect(opened.getSessionId()).not.toBe(manager.getSessionId());
    expect(opened.getSessionId()).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab]/);
    expect(opened.buildSessionContext().messages).toEqual(manager.buildSessionContext().messages);
    expect(opened.getTree()).toHaveLength(1);
  });
});

describe('older sessions', () => {
  const V1 = [
    { type: 'session', id: 's-1', timestamp: '2025-12-01T10:00:00.000Z', cwd: '/w', provider: 'x' },
    { type: 'message', timestamp: '2025-12-01T10:00:01.000Z', message: user('one') },
    {
      type: 'message',
      timestamp: '2025-12-01T10:00:02.000Z',
      message: answer([{ type: 'text', text: 'two' }]),
    },
    { type: 'message', timestamp: '2025-12-01T10:00:03.000Z', message: user('three') },
    {
      type: 'compaction',
      timestamp: '2025-12-01T10:00:04.000Z',
      summary: 'sum',
      firstKeptEntryIndex: 3,
      tokensBefore: 9,
    },
    {
      type: 'message',
      timestamp: '2025-12-01T10:00:05.000Z',
      message: answer([{ type: 'text', text: 'four' }]),
    },
  ].map((value) => JSON.stringify(value));

  it('of version 1 become what pi makes of them', () => {
    const back = roundTrip(`${V1.join('\n')}\n`);
    const theirs = V1.map((line) => JSON.parse(line) as JsonObject);
    pi.migrateSessionEntries(theirs);
    const ours = back
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as JsonObject);
    const links = (entries: readonly JsonObject[]) => {
      const index = new Map(entries.map(({ id }, at) => [id, at]));
      return entries.map(({ type, version, parentId, firstKeptEntryId, message }) => ({
        type,
        version,
        message,
        parent: index.get(parentId),
        kept: index.get(firstKeptEntryId),
      }));
    };
    expect(links(ours)).toEqual(links(theirs));
    expect(textsOf(open(back).buildSessionContext().messages)).toEqual([
      'compactionSummary: sum',
      'user: three',
      'assistant: four',
    ]);
    const { messages } = foldContext(buildTree(place(imported(V1.join('\n')).drafts)));
    expect(ryeTexts(messages)).toEqual(['user: sum', 'user: three', 'assistant: four']);
  });

  // Requirement: broken-line-shifts-index
  it('of version 1 count their records as they were written, broken and fused ones too', () => {
    // two records on one line, a broken line, and three records before the meant record
    const broken = '{"type":"message","timesta';
    const [header, one, two, three, compaction, four] = V1;
    const shifted = String(compaction).replace(
      '"firstKeptEntryIndex":3',
      '"firstKeptEntryIndex":4',
    );
    const text = [header, `${one}${two}`, broken, three, shifted, four].join('\n');
    const { drafts, problems } = imported(text);
    expect(problems.map(({ kind, line }) => `${kind} ${line}`)).toEqual(['fused 2', 'malformed 3']);
    const { messages } = foldContext(buildTree(place(drafts)));
    expect(ryeTexts(messages)).toEqual(['user: sum', 'user: three', 'assistant: four']);
  });

  it('of version 2 keep their lines, but for a role that has another name now', () => {
    const hook = { role: 'hookMessage', customType: 'h', content: 'hook says', display: true };
    const lines = [
      { type: 'session', version: 2, id: 's-2', timestamp: '2026-01-01T00:00:00.000Z', cwd: '/w' },
      { type: 'message', id: 'aa', parentId: null, timestamp: 't', message: user('one') },
      { type: 'message', id: 'bb', parentId: 'aa', timestamp: 't', message: hook },
    ].map((value) => JSON.stringify(value));
    const back = roundTrip(`${lines.join('\n')}\n`)
      .trim()
      .split('\n');
    expect(back[0]).toContain('"version":3');
    expect(back[1]).toBe(lines[1]);
    expect(JSON.parse(back[2] ?? '')).toMatchObject({ id: 'bb', message: { role: 'custom' } });
    expect(textsOf(open(`${back.join('\n')}\n`).buildSessionContext().messages)).toEqual([
      'user: one',
      'custom: hook says',
    ]);
    const { messages } = foldContext(buildTree(place(imported(lines.join('\n')).drafts)));
    expect(ryeTexts(messages)).toEqual(['user: one', 'user: hook says']);
  });
});

describe('a thread of rye', () => {
  const DRAFTS: readonly EventDraft[] = [
    { event_type: 'system_prompt', payload: { text: 'Be brief.', tools: [] } },
    { event_type: 'model_change', payload: { provider: 'anthropic', model: 'claude-x' } },
    { event_type: 'thinking_change', payload: { level: 'high' } },
    userMessage('Go.'),
    { event_type: 'turn_started', payload: { turn: 1 } },
    {
      event_type: 'message',
      payload: {
        message: {
          role: 'assistant',
          content: [
            { type: 'thinking', text: 'hm', signature: 'sig' },
            { type: 'tool_call', call_id: 'c1', name: 'rye_bash', input: { command: 'ls' } },
          ],
          provider: 'anthropic',
          model: 'claude-x',
          stop_reason: 'tool_calls',
          usage: { ...NO_USAGE, input_tokens: 7, output_tokens: 3 },
        },
        turn: 1,
      },
    },
    {
      event_type: 'message',
      payload: {
        message: {
          role: 'tool_result',
          call_id: 'c1',
          name: 'rye_bash',
          content: [{ type: 'text', text: 'a.txt' }],
          outcome: 'error',
          data: { code: 1 },
        },
      },
    },
    { event_type: 'label', payload: { target_id: 'e4', label: 'start' } },
    { event_type: 'title', payload: { title: 'A thread' } },
    { event_type: 'leaf', payload: { target_id: 'e6' } },
    { event_type: 'branch_summary', payload: { from_id: 'e8', summary: 'Left it.' } },
    {
      event_type: 'custom_message',
      payload: { custom_type: 'hook', content: 'Remember.', display: true },
    },
    { event_type: 'context_edit', payload: { target_id: 'e6', action: 'omit' } },
    {
      event_type: 'compaction',
      payload: { summary: 'Sum.', first_kept_entry_id: null, tokens_before: 50 },
    },
    userMessage('On.'),
  ];

  it('is opened by pi with its branches, labels, name and context', () => {
    const text = exported(place(DRAFTS));
    const opened = open(text);
    expect(opened.getSessionName()).toBe('A thread');
    expect(opened.getLabel('e4')).toBe('start');
    expect(textsOf(opened.buildSessionContext().messages)).toEqual([
      'compactionSummary: Sum.',
      'user: On.',
    ]);
    expect(opened.buildSessionContext().thinkingLevel).toBe('high');
    opened.branch('e11');
    expect(textsOf(opened.buildSessionContext().messages)).toEqual([
      'user: Go.',
      'assistant: thinking|toolCall',
      'toolResult: a.txt',
      'branchSummary: Left it.',
      'custom: Remember.',
    ]);
    expect(opened.getTree()).toHaveLength(1);
  });

  it('can be written on by pi, and comes back', () => {
    const text = exported(place(DRAFTS));
    const opened = open(text);
    opened.appendMessage(user('From pi.'));
    opened.appendMessage(answer([{ type: 'text', text: 'Answered.' }]));
    const written = readFileSync(opened.getSessionFile() ?? '', 'utf8');
    expect(written.startsWith(text)).toBe(true);
    const { drafts, problems } = imported(written);
    expect(problems).toEqual([]);
    const { messages } = foldContext(buildTree(place(drafts)));
    expect(ryeTexts(messages)).toEqual([
      'user: Sum.',
      'user: On.',
      'user: From pi.',
      'assistant: Answered.',
    ]);
    expect(roundTrip(written)).toBe(written);
  });

  it('has the same session id at each export', () => {
    const render = () => exported(place(DRAFTS));
    expect(render()).toBe(render());
  });
});

describe('summaries', () => {
  const DETAILS = { read_files: ['a.txt'], changed_files: ['b.txt'], reason: 'manual' };
  const drafts = (own: JsonObject): EventDraft[] => [
    userMessage('one'),
    {
      event_type: 'compaction',
      payload: { summary: 's', first_kept_entry_id: 'e1', tokens_before: 1, details: own },
    },
    { event_type: 'branch_summary', payload: { from_id: 'e1', summary: 'b', details: own } },
  ];
  const summariesOf = (text: string): JsonObject[] =>
    text
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as JsonObject)
      .filter(({ summary }) => summary !== undefined);
  const detailsAfter = (text: string) =>
    imported(text).drafts.flatMap((draft) =>
      draft.event_type === 'compaction' || draft.event_type === 'branch_summary'
        ? [draft.payload.details]
        : [],
    );

  it("have their file lists under pi's names there, and under ours here", () => {
    const text = exported(place(drafts(DETAILS)));
    for (const entry of summariesOf(text)) {
      expect(entry).not.toHaveProperty('fromHook');
      expect(entry['details']).toEqual({
        readFiles: ['a.txt'],
        modifiedFiles: ['b.txt'],
        reason: 'manual',
      });
    }
    const bare = `${text.trim()}\n`;
    expect(detailsAfter(bare)).toEqual([DETAILS, DETAILS]);
    expect(roundTrip(bare)).toBe(bare);
  });

  it('of hooks are marked, and what they hold stays as it is', () => {
    const own = { ...DETAILS, from_hook: true };
    const text = exported(place(drafts(own)));
    for (const entry of summariesOf(text)) {
      expect(entry).toMatchObject({ fromHook: true, details: DETAILS });
    }
    expect(detailsAfter(text)).toEqual([own, own]);
  });
});

describe('what a file may hold', () => {
  const head = (rest: object = {}) =>
    JSON.stringify({ type: 'session', version: 3, id: 's-3', timestamp: 't', cwd: '/w', ...rest });
  const line = (id: unknown, parentId: unknown, text = 'x') =>
    JSON.stringify({ type: 'message', id, parentId, timestamp: 't', message: user(text) });
  const kinds = (text: string) => imported(text).problems.map(({ kind }) => kind);
  const texts = (text: string) =>
    foldContext(buildTree(place(imported(text).drafts))).messages.map(({ content }) =>
      textOf(content),
    );

  it('a torn tail: the entries before it count', () => {
    const text = [head(), line('a', null, 'one'), line('b', 'a').slice(0, 40)].join('\n');
    expect(kinds(text)).toEqual(['torn_tail']);
    expect(texts(text)).toEqual(['one']);
  });

  it('a last record without a line feed is a record', () => {
    const text = [head(), line('a', null, 'one')].join('\n');
    expect(kinds(text)).toEqual([]);
    expect(texts(text)).toEqual(['one']);
  });

  it('fused lines: every record, and a torn one before a whole one', () => {
    const torn = line('b', 'a').slice(0, 60);
    const text = [
      head(),
      line('a', null, 'one') + line('c', 'a', 'two'),
      torn + line('d', 'c', 'three {"type":"text"}'),
      '',
    ].join('\n');
    expect(kinds(text)).toEqual(['fused', 'fused', 'malformed']);
    expect(texts(text)).toEqual(['one', 'two', 'three {"type":"text"}']);
    const lines = roundTrip(text).trim().split('\n');
    expect(lines).toEqual([
      head(),
      line('a', null, 'one'),
      line('c', 'a', 'two'),
      line('d', 'c', 'three {"type":"text"}'),
    ]);
  });

  it('orphans: attached to the preceding entry, and reported', () => {
    const text = [head(), line('a', null, 'one'), line('b', 'gone', 'two'), ''].join('\n');
    expect(imported(text).problems).toEqual([
      {
        kind: 'orphan',
        line: 3,
        message: 'the parent of entry b is not in the file; it hangs on the entry before it',
      },
    ]);
    expect(texts(text)).toEqual(['one', 'two']);
    expect(open(roundTrip(text)).buildSessionContext().messages).toHaveLength(2);
  });

  it('a parent that follows its child', () => {
    const text = [head(), line('b', 'a', 'two'), line('a', null, 'one'), line('c', 'b', 'three')];
    expect(texts(text.join('\n'))).toEqual(['one', 'two', 'three']);
    expect(kinds(text.join('\n'))).toEqual([]);
  });

  it('a file that pi wrote twice into itself', () => {
    const once = [head(), line('a', null, 'one'), line('b', 'a', 'two')];
    expect(kinds([...once, ...once].join('\n'))).toEqual(['duplicate', 'duplicate', 'duplicate']);
    expect(texts([...once, ...once].join('\n'))).toEqual(['one', 'two']);
  });

  it('kinds that rye has no equal of: kept in place, told to no model, given back', () => {
    const odd = JSON.stringify({
      type: 'hologram',
      id: 'h',
      parentId: 'a',
      timestamp: 't',
      x: [1],
    });
    const evil = JSON.stringify({ type: '<b>\u001b[2J', id: 'i', parentId: 'h', timestamp: 't' });
    const role = JSON.stringify({
      type: 'message',
      id: 'j',
      parentId: 'i',
      timestamp: 't',
      message: { role: 'oracle', content: 'psst' },
    });
    const text = `${[head(), line('a', null, 'one'), odd, evil, role, line('k', 'j', 'two')].join('\n')}\n`;
    expect(kinds(text)).toEqual(['not_understood', 'not_understood', 'not_understood']);
    expect(texts(text)).toEqual(['one', 'two']);
    expect(roundTrip(text)).toBe(text);
    const types = imported(text).drafts.flatMap((draft) =>
      draft.event_type === 'custom' ? [draft.payload.custom_type] : [],
    );
    expect(types).toEqual(['pi/hologram', 'pi/unknown', 'pi/message']);
  });

  // Requirement: migrated-id-collides
  it('ids that are made up never take one that is there', () => {
    const bare = JSON.stringify({ type: 'message', timestamp: 't', message: user('bare') });
    const again = ['a', 'a', 'b', 'c', 'd'];
    const reader = createPiReader({ path: 'x', newId: () => again.shift() ?? 'e' });
    for (const text of [head(), line('a', null, 'one'), bare, bare]) reader.push(text);
    expect(reader.end().entries.map(({ id }) => id)).toEqual(['a', 'b', 'c']);
  });

  // Requirement: branch-summary-ambiguous
  it('branch summaries that name where the branch begins, or the leaf that was left', () => {
    const summary = (id: string, fromId: string) =>
      JSON.stringify({
        type: 'branch_summary',
        id,
        parentId: 'a',
        timestamp: 't',
        fromId,
        summary: id,
      });
    const text = [head(), line('a', null, 'one'), line('b', 'a', 'two'), summary('c', 'a')];
    expect(texts(text.join('\n')).at(-1)).toContain('<summary>\nc\n</summary>');
    expect(texts([...text, summary('d', 'b')].join('\n')).at(-1)).toContain('d');
    expect(texts([...text, summary('e', 'root')].join('\n'))).toHaveLength(2);
  });

  it('a call with a result on another branch: it has the result on both', () => {
    const entry = (id: string, parentId: string | null, message: JsonObject) =>
      JSON.stringify({ type: 'message', id, parentId, timestamp: 't', message });
    const text = [
      head(),
      line('a', null, 'one'),
      entry('b', 'a', answer([CALL], 'toolUse')),
      entry('c', 'b', result('toolu_1', 'content of a')),
      line('d', 'b', 'another way'),
    ].join('\n');
    expect(texts(text)).toEqual(['one', '', 'content of a', 'another way']);
    const tree = buildTree(place(imported(text).drafts));
    const [, , settled] = foldContext(tree).messages;
    expect(settled).toMatchObject({ role: 'tool_result', call_id: 'toolu_1', outcome: 'ok' });
  });

  it('a title before the header, as omp writes it', () => {
    const text = ['{"type":"title","title":"T"}', head(), line('a', null, 'one')].join('\n');
    expect(kinds(text)).toEqual(['before_header']);
    expect(texts(text)).toEqual(['one']);
  });

  it('commands of a person, images, cut answers, and context edits', () => {
    const entries = [
      line('a', null, 'one'),
      JSON.stringify({
        type: 'message',
        id: 'b',
        parentId: 'a',
        timestamp: 't',
        message: { role: 'bashExecution', command: 'ls', output: 'a.txt', exitCode: 2 },
      }),
      JSON.stringify({
        type: 'message',
        id: 'c',
        parentId: 'b',
        timestamp: 't',
        message: { role: 'bashExecution', command: 'x', output: 'y', excludeFromContext: true },
      }),
      JSON.stringify({
        type: 'custom_message',
        id: 'd',
        parentId: 'c',
        timestamp: 't',
        customType: 'shot',
        content: [{ type: 'image', data: 'aGk=', mimeType: 'image/png' }],
        display: true,
      }),
      JSON.stringify({
        type: 'context_edit',
        id: 'e',
        parentId: 'd',
        timestamp: 't',
        targetId: 'a',
        replacement: { content: [{ type: 'text', text: 'another one' }] },
      }),
    ];
    const { messages } = foldContext(
      buildTree(place(imported([head(), ...entries].join('\n')).drafts)),
    );
    expect(messages).toEqual([
      { role: 'user', content: [{ type: 'text', text: 'another one' }] },
      {
        role: 'user',
        content: [
          { type: 'text', text: 'Ran `ls`\n```\na.txt\n```\n\nCommand exited with code 2' },
        ],
      },
      { role: 'user', content: [{ type: 'image', media_type: 'image/png', data: 'aGk=' }] },
    ]);
  });

  const REFUSED: readonly (readonly [string, string, RegExp])[] = [
    ['an empty file', '', /it is empty/],
    ['blank lines only', '\n\n \n', /it is empty/],
    ['a file of something else', '{"a":1}\n', /first record is not a session header/],
    ['a Markdown file', '# Notes\n', /first record is not a session header/],
    ['a log of rye', '{"event_type":"thread","version":1}\n', /not a session header/],
    ['a newer version', `${head({ version: 4 })}\n`, /version 4 is not known/],
    ['a version that is none', `${head({ version: '3' })}\n`, /version "3" is not known/],
    ['a session id that is a path', head({ id: '../../etc/passwd' }), /session id/],
    ['a session id with control characters', head({ id: 'a\u001b[2J' }), /session id/],
    ['an entry id that is a path', [head(), line('../x', null)].join('\n'), /the ID of an entry/],
    ['an entry id with markup', [head(), line('<script>', null)].join('\n'), /the ID of an entry/],
    ['an entry id that is a number', [head(), line(7, null)].join('\n'), /the ID of an entry/],
    [
      'an id of two entries',
      [head(), line('a', null), line('a', null, 'y')].join('\n'),
      /two diff/,
    ],
    ['an entry below itself', [head(), line('a', 'a')].join('\n'), /its own ancestor/],
    ['a loop', [head(), line('a', 'b'), line('b', 'a')].join('\n'), /its own ancestor/],
    ['two sessions', [head(), head({ id: 's-4' })].join('\n'), /second session begins/],
  ];
  it.each(REFUSED)('is not %s', (_name, text, message) => {
    expect(() => imported(text)).toThrow(message);
    expect(() => imported(text)).toThrow(expect.objectContaining({ code: 'session_malformed' }));
  });

  it('has no control characters in a refusal', () => {
    let refusal = '';
    try {
      imported([head(), line('\u001b[2J', null)].join('\n'));
    } catch (error) {
      refusal = String(error);
    }
    expect(refusal).toContain('session.jsonl:2');
    expect(refusal).not.toContain('\u001b');
  });

  it('a chain of 30,000 entries, in order and reversed', () => {
    const entries = Array.from({ length: 30_000 }, (_, index) =>
      line(`n${index}`, index === 0 ? null : `n${index - 1}`),
    );
    expect(imported([head(), ...entries].join('\n')).messages).toBe(30_000);
    const upside = [head(), ...entries.slice(0, 5_000).toReversed()].join('\n');
    expect(imported(upside).messages).toBe(5_000);
  });
});
