import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { foldContext, type SessionContext } from '../../src/kernel/log/context.ts';
import {
  branchDrafts,
  branchWithSummaryDrafts,
  extractDrafts,
  labelDraft,
} from '../../src/kernel/log/continuation.ts';
import {
  buildTree,
  childrenOf,
  entryById,
  pathTo,
  type SessionTree,
} from '../../src/kernel/log/tree.ts';
import { place, userMessage } from '../log/support.ts';
import { exported, HEADER, imported, roundTrip } from './pi-lab.ts';

/*
 * What the tests of pi's session manager assert, by their names. "Differs" names what rye decided otherwise: an unknown
 * head is an error, an orphan hangs on the entry before it, made-up ids have 16 digits, loops and damaged files are
 * refused and never rewritten.
 */

type Check = readonly [name: string, check: () => void];

const AT = '2025-01-01T00:00:00Z';
const at = (type: string, id: string, parentId: string | null, rest: JsonObject): JsonObject => ({
  type,
  id,
  parentId,
  timestamp: AT,
  ...rest,
});
const user = (id: string, parentId: string | null, content: string) =>
  at('message', id, parentId, { message: { role: 'user', content, timestamp: 1 } });
const assistant = (id: string, parentId: string | null, text: string) =>
  at('message', id, parentId, {
    message: {
      role: 'assistant',
      content: [{ type: 'text', text }],
      provider: 'anthropic',
      model: 'claude-test',
      usage: { input: 1, output: 1, cacheRead: 0, cacheWrite: 0 },
      stopReason: 'stop',
    },
  });
const compaction = (id: string, parentId: string, summary: string, firstKeptEntryId: string) =>
  at('compaction', id, parentId, { summary, firstKeptEntryId, tokensBefore: 1000 });
const summaryOf = (id: string, parentId: string, summary: string, fromId: string) =>
  at('branch_summary', id, parentId, { summary, fromId });
const modelChange = (id: string, parentId: string, provider: string, modelId: string) =>
  at('model_change', id, parentId, { provider, modelId });
const thinking = (id: string, parentId: string, thinkingLevel: string) =>
  at('thinking_level_change', id, parentId, { thinkingLevel });

const session = (entries: readonly JsonObject[], version: number | undefined = 3): string =>
  [{ type: 'session', version, id: 'sess-1', timestamp: AT, cwd: '/w' }, ...entries]
    .map((value) => `${JSON.stringify(value)}\n`)
    .join('');

const treeOf = (text: string): SessionTree => buildTree(place(imported(text).drafts));

function contextOf(entries: readonly JsonObject[], leafId?: string | null): SessionContext {
  return foldContext(treeOf(session(entries)), leafId === undefined ? {} : { leafId });
}

const texts = ({ messages }: SessionContext): string[] =>
  messages.map(({ content }) => {
    const text = textOf(content);
    return /<summary>\n([^]*)\n<\/summary>/.exec(text)?.[1] ?? text;
  });

const rolesOf = ({ messages }: SessionContext): string[] => messages.map(({ role }) => role);

const SPOKEN = { provider: 'anthropic', model: 'claude-test' };
const TWO = [user('1', null, 'hello'), assistant('2', '1', 'hi')];
const COMPACTED = [
  user('1', null, 'first'),
  assistant('2', '1', 'response1'),
  user('3', '2', 'second'),
  assistant('4', '3', 'response2'),
  compaction('5', '4', 'Summary of first two turns', '3'),
  user('6', '5', 'third'),
  assistant('7', '6', 'response3'),
];
const BRANCHED = [
  user('1', null, 'start'),
  assistant('2', '1', 'r1'),
  user('3', '2', 'q2'),
  assistant('4', '3', 'r2'),
  compaction('5', '4', 'Compacted history', '3'),
  user('6', '5', 'q3'),
  assistant('7', '6', 'r3'),
  user('8', '3', 'wrong path'),
  assistant('9', '8', 'wrong response'),
  summaryOf('10', '3', 'Tried wrong approach', '9'),
  user('11', '10', 'better approach'),
];

const CONTEXT: readonly Check[] = [
  [
    'empty entries returns empty context',
    () => expect(contextOf([])).toMatchObject({ messages: [], settings: {} }),
  ],
  ['null leaf returns no messages', () => expect(contextOf(TWO, null).messages).toEqual([])],
  ['single user message', () => expect(rolesOf(contextOf(TWO.slice(0, 1)))).toEqual(['user'])],
  [
    'simple conversation',
    () => {
      const context = contextOf([
        ...TWO,
        user('3', '2', 'how are you'),
        assistant('4', '3', 'great'),
      ]);
      expect(rolesOf(context)).toEqual(['user', 'assistant', 'user', 'assistant']);
    },
  ],
  [
    'tracks thinking level changes',
    () => {
      const context = contextOf([
        user('1', null, 'hello'),
        thinking('2', '1', 'high'),
        assistant('3', '2', 'hard'),
      ]);
      expect(context.settings.thinking).toBe('high');
      expect(context.messages).toHaveLength(2);
    },
  ],
  [
    'tracks model from assistant message',
    () => expect(contextOf(TWO).settings.model).toEqual(SPOKEN),
  ],
  [
    'tracks model from model change entry: an answer overwrites it',
    () => {
      const changed = [user('1', null, 'hello'), modelChange('2', '1', 'openai', 'gpt-4')];
      expect(contextOf(changed).settings.model).toEqual({ provider: 'openai', model: 'gpt-4' });
      expect(contextOf([...changed, assistant('3', '2', 'hi')]).settings.model).toEqual(SPOKEN);
    },
  ],
  [
    'includes summary before kept messages',
    () =>
      expect(texts(contextOf(COMPACTED))).toEqual([
        'Summary of first two turns',
        'second',
        'response2',
        'third',
        'response3',
      ]),
  ],
  [
    'handles compaction keeping from first message',
    () => {
      const entries = [
        ...TWO,
        compaction('3', '2', 'Empty summary', '1'),
        user('4', '3', 'second'),
      ];
      expect(texts(contextOf(entries))).toEqual(['Empty summary', 'hello', 'hi', 'second']);
    },
  ],
  [
    'multiple compactions uses latest',
    () => {
      const entries = [
        ...TWO,
        compaction('3', '2', 'First summary', '1'),
        user('4', '3', 'c'),
        assistant('5', '4', 'd'),
        compaction('6', '5', 'Second summary', '4'),
        user('7', '6', 'e'),
      ];
      expect(texts(contextOf(entries))).toEqual(['Second summary', 'c', 'd', 'e']);
    },
  ],
  [
    'follows path to specified leaf',
    () => {
      const entries = [...TWO, user('3', '2', 'branch A'), user('4', '2', 'branch B')];
      expect(texts(contextOf(entries, '3'))).toEqual(['hello', 'hi', 'branch A']);
      expect(texts(contextOf(entries, '4'))).toEqual(['hello', 'hi', 'branch B']);
    },
  ],
  [
    'includes branch summary in path',
    () => {
      const entries = [
        ...TWO,
        user('3', '2', 'abandoned path'),
        summaryOf('4', '2', 'Summary of abandoned work', '3'),
        user('5', '4', 'new direction'),
      ];
      expect(texts(contextOf(entries, '5'))).toEqual([
        'hello',
        'hi',
        'Summary of abandoned work',
        'new direction',
      ]);
    },
  ],
  [
    'complex tree with multiple branches and compaction',
    () => {
      expect(texts(contextOf(BRANCHED, '7'))).toEqual([
        'Compacted history',
        'q2',
        'r2',
        'q3',
        'r3',
      ]);
      expect(texts(contextOf(BRANCHED, '11'))).toEqual([
        'start',
        'r1',
        'q2',
        'Tried wrong approach',
        'better approach',
      ]);
    },
  ],
  [
    'differs: an unknown leaf is refused',
    () =>
      expect(() => contextOf(TWO, 'nonexistent')).toThrow(
        expect.objectContaining({ code: 'entry_not_found' }),
      ),
  ],
  [
    'differs: orphaned entries hang on the entry before them',
    () =>
      expect(
        texts(contextOf([user('1', null, 'hello'), assistant('2', 'missing', 'orphan')], '2')),
      ).toEqual(['hello', 'orphan']),
  ],
  ...(
    [
      ['two-node', ['b', 'a']],
      ['longer', ['c', 'a', 'b']],
    ] as const
  ).map(
    ([name, parents]): Check => [
      `differs: ${name} parent cycles are refused`,
      () => {
        const entries = parents.map((parent, index) => user('abc'[index] ?? '', parent, 'x'));
        expect(() => contextOf(entries)).toThrow(/its own ancestor/);
      },
    ],
  ),
];

/** The operations of pi's session manager on a log of rye. Ids are e1, e2… */
class Session {
  readonly drafts: EventDraft[] = [];

  get tree(): SessionTree {
    return buildTree(place(this.drafts));
  }

  append(...drafts: readonly EventDraft[]): string {
    this.drafts.push(...drafts);
    return this.tree.leafId ?? '';
  }

  say(text: string): string {
    return this.append(userMessage(text));
  }

  answer(text: string): string {
    const message = {
      role: 'assistant' as const,
      content: [{ type: 'text' as const, text }],
      ...SPOKEN,
      stop_reason: 'end' as const,
      usage: NO_USAGE,
    };
    return this.append({ event_type: 'message', payload: { message } });
  }

  branch(id: string): void {
    this.append(...branchDrafts(this.tree, id));
  }

  parent(id: string): string | null {
    return entryById(this.tree, id).parent_id;
  }

  /** Entries but for moves of the head, which pi does not write. */
  children(id: string | null): string[] {
    return childrenOf(this.tree, id)
      .filter(({ event_type: type }) => type !== 'leaf')
      .map((entry) => entry.id);
  }

  path(id = this.tree.leafId): string[] {
    return pathTo(this.tree, id).map((entry) => entry.id);
  }
}

function started(...words: readonly string[]): {
  readonly made: Session;
  readonly ids: readonly string[];
} {
  const made = new Session();
  return {
    made,
    ids: words.map((text, index) => (index % 2 === 0 ? made.say(text) : made.answer(text))),
  };
}

const APPENDED: readonly (readonly [string, EventDraft])[] = [
  ['appendThinkingLevelChange', { event_type: 'thinking_change', payload: { level: 'high' } }],
  [
    'appendModelChange',
    { event_type: 'model_change', payload: { provider: 'openai', model: 'gpt-4' } },
  ],
  [
    'appendCompaction',
    {
      event_type: 'compaction',
      payload: { summary: 's', first_kept_entry_id: 'e1', tokens_before: 1000 },
    },
  ],
  [
    'appendCustomEntry',
    { event_type: 'custom', payload: { custom_type: 'my_data', data: { key: 'value' } } },
  ],
];

const TREE: readonly Check[] = [
  [
    'appendMessage creates entry with correct parentId chain',
    () => {
      const { made, ids } = started('first', 'second', 'third');
      expect(ids.map((id) => made.parent(id))).toEqual([null, ids[0], ids[1]]);
    },
  ],
  ...APPENDED.map(
    ([name, draft]): Check => [
      `${name} integrates into tree`,
      () => {
        const { made, ids } = started('hello');
        const id = made.append(draft);
        const next = made.answer('response');
        expect([made.parent(id), made.parent(next)]).toEqual([ids[0], id]);
        expect(entryById(made.tree, id)).toMatchObject(draft);
      },
    ],
  ),
  [
    'leaf pointer advances after each append',
    () => {
      const made = new Session();
      expect(made.tree.leafId).toBeNull();
      for (const id of [
        made.say('1'),
        made.answer('2'),
        made.append(...APPENDED.map(([, draft]) => draft)),
      ]) {
        expect(made.path()).toContain(id);
      }
      expect(made.tree.leafId).toBe(made.path().at(-1));
    },
  ],
  [
    'getPath: returns empty array for empty session',
    () => expect(new Session().path()).toEqual([]),
  ],
  [
    'getPath: returns single entry path, full path, and path from specified entry',
    () => {
      const { made, ids } = started('1', '2', '3', '4');
      expect(made.path(ids[0])).toEqual(ids.slice(0, 1));
      expect(made.path()).toEqual(ids);
      expect(made.path(ids[1])).toEqual(ids.slice(0, 2));
    },
  ],
  [
    'getTree: returns empty array for empty session',
    () => expect(new Session().children(null)).toEqual([]),
  ],
  [
    'getTree: returns single root for linear session',
    () => {
      const { made, ids } = started('1', '2', '3');
      expect([null, ...ids].map((id) => made.children(id))).toEqual([...ids.map((id) => [id]), []]);
    },
  ],
  [
    'getTree: returns tree with branches after branch',
    () => {
      const { made, ids } = started('1', '2', '3');
      made.branch(ids[1] ?? '');
      const other = made.say('4-branch');
      expect(made.children(null)).toEqual([ids[0]]);
      expect(made.children(ids[1] ?? '')).toEqual([ids[2], other]);
    },
  ],
  [
    'getTree: handles multiple branches at same point',
    () => {
      const { made, ids } = started('root', 'response');
      const branches = ['A', 'B', 'C'].map((text) => {
        made.branch(ids[1] ?? '');
        return made.say(text);
      });
      expect(made.children(ids[1] ?? '')).toEqual(branches);
    },
  ],
  [
    'getTree: handles deep branching',
    () => {
      const { made, ids } = started('1', '2', '3', '4');
      made.branch(ids[1] ?? '');
      const five = made.say('5');
      const six = made.answer('6');
      made.branch(five);
      const seven = made.say('7');
      expect(made.children(ids[1] ?? '')).toEqual([ids[2], five]);
      expect(made.children(five)).toEqual([six, seven]);
      expect(made.children(ids[2] ?? '')).toEqual([ids[3]]);
    },
  ],
  [
    'branch: moves leaf pointer to specified entry; new appends become its children',
    () => {
      const { made, ids } = started('1', '2', '3');
      made.branch(ids[0] ?? '');
      expect(made.tree.leafId).toBe(ids[0]);
      expect(made.parent(made.say('branched'))).toBe(ids[0]);
    },
  ],
  [
    'branch and branchWithSummary: throw for non-existent entry',
    () => {
      const { made } = started('hello');
      const missing = expect.objectContaining({ code: 'entry_not_found' });
      expect(() => made.branch('nonexistent')).toThrow(missing);
      expect(() => branchWithSummaryDrafts(made.tree, 'nonexistent', { summary: 's' })).toThrow(
        missing,
      );
    },
  ],
  [
    'branchWithSummary: inserts branch summary and advances leaf',
    () => {
      const { made, ids } = started('1', '2', '3');
      const id = made.append(
        ...branchWithSummaryDrafts(made.tree, ids[0] ?? '', { summary: 'Left.' }),
      );
      expect(made.parent(id)).toBe(ids[0]);
      expect(entryById(made.tree, id)).toMatchObject({
        event_type: 'branch_summary',
        payload: { summary: 'Left.', from_id: ids[2] },
      });
    },
  ],
  [
    'getLeafEntry: returns undefined for empty session; returns current leaf entry',
    () => {
      const { made, ids } = started('1', '2');
      expect(new Session().path().at(-1)).toBeUndefined();
      expect(entryById(made.tree, made.tree.leafId ?? '').id).toBe(ids[1]);
    },
  ],
  [
    'getEntry: returns entry by id; undefined for non-existent id',
    () => {
      const { made, ids } = started('first', 'second');
      expect(made.tree.byId.get(ids[1] ?? '')?.event_type).toBe('message');
      expect(made.tree.byId.get('nonexistent')).toBeUndefined();
    },
  ],
  [
    'buildSessionContext: returns messages from current branch only',
    () => {
      const { made, ids } = started('msg1', 'msg2', 'msg3');
      made.branch(ids[1] ?? '');
      made.answer('msg4-branch');
      expect(texts(foldContext(made.tree))).toEqual(['msg1', 'msg2', 'msg4-branch']);
    },
  ],
  [
    'createBranchedSession: has the path to the entry, from a branched tree too; throws for a non-existent one',
    () => {
      const { made, ids } = started('1', '2', '3', '4');
      made.branch(ids[2] ?? '');
      const five = made.say('5');
      expect(
        extractDrafts(made.tree, place(made.drafts), ids[1] ?? '').map(({ id }) => id),
      ).toEqual(ids.slice(0, 2));
      expect(extractDrafts(made.tree, place(made.drafts), five).map(({ id }) => id)).toEqual([
        ...ids.slice(0, 3),
        five,
      ]);
      expect(() => extractDrafts(made.tree, place(made.drafts), 'nonexistent')).toThrow(/no entry/);
    },
  ],
];

const LABELS: readonly Check[] = [
  [
    'sets and gets labels; clears them with undefined; last label wins',
    () => {
      const { made, ids } = started('hello');
      const [id = ''] = ids;
      const set = (label: string | null) => made.append(labelDraft(made.tree, id, label));
      expect(made.tree.labels.get(id)).toBeUndefined();
      for (const label of ['first', 'second', 'third']) set(label);
      expect(made.tree.labels.get(id)).toBe('third');
      set(null);
      expect(made.tree.labels.get(id)).toBeUndefined();
    },
  ],
  [
    'labels are entries of the tree and not in the context',
    () => {
      const { made, ids } = started('1', '2');
      const label = made.append(labelDraft(made.tree, ids[0] ?? '', 'checkpoint'));
      expect(made.parent(label)).toBe(ids[1]);
      expect(texts(foldContext(made.tree))).toEqual(['1', '2']);
    },
  ],
  [
    'labels are preserved in a branched session; those off the path are not',
    () => {
      const { made, ids } = started('1', '2', '3');
      made.append(
        labelDraft(made.tree, ids[0] ?? '', 'kept'),
        labelDraft(made.tree, ids[2] ?? '', 'left'),
      );
      const copy = buildTree(
        place(extractDrafts(made.tree, place(made.drafts), ids[1] ?? ''), 'n'),
      );
      expect([...copy.labels]).toEqual([[ids[0], 'kept']]);
    },
  ],
  [
    'labels are loaded from a file',
    () => {
      const label = at('label', '3', '2', { targetId: '1', label: 'start' });
      expect([...treeOf(session([...TWO, label])).labels]).toEqual([['1', 'start']]);
    },
  ],
  [
    'throws when labeling a non-existent entry',
    () => expect(() => labelDraft(started('x').made.tree, 'nonexistent', 'l')).toThrow(/no entry/),
  ],
];

const bare = ({ id: _id, parentId: _parent, ...rest }: JsonObject): JsonObject => rest;
const parsed = (text: string): JsonObject[] =>
  text
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as JsonObject);

const MIGRATION: readonly Check[] = [
  [
    'differs: adds ids of 16 digits and parents to v1 entries',
    () => {
      const [header, first, second] = parsed(roundTrip(session(TWO.map(bare), undefined)));
      expect(header?.['version']).toBe(3);
      expect([first?.['id'], second?.['id']]).toEqual([
        expect.stringMatching(/^[0-9a-f]{16}$/),
        expect.stringMatching(/^[0-9a-f]{16}$/),
      ]);
      expect([first?.['parentId'], second?.['parentId']]).toEqual([null, first?.['id']]);
    },
  ],
  [
    'should repair v2 sessions that contain trailing entries without id/parentId',
    () => {
      const [kept = {}, ...rest] = TWO;
      const entries = [kept, ...[...rest, user('3', '2', 'later')].map(bare)];
      const [, first, second, third] = parsed(roundTrip(session(entries, 2)));
      expect([first?.['id'], first?.['parentId']]).toEqual(['1', null]);
      expect([second?.['parentId'], third?.['parentId']]).toEqual(['1', second?.['id']]);
    },
  ],
  [
    'should be idempotent (skip already migrated)',
    () => {
      const once = roundTrip(session(TWO, 2));
      expect(parsed(once).map(({ id }) => id)).toEqual(['sess-1', '1', '2']);
      expect(roundTrip(once)).toBe(once);
    },
  ],
];

const FILES: readonly Check[] = [
  ...(
    [
      ['an empty file', ''],
      ['a file without valid session header', '{"type":"message","id":"1"}\n'],
      ['malformed JSON', 'not json\n'],
    ] as const
  ).map(
    ([name, text]): Check => [
      `differs: ${name} is refused`,
      () =>
        expect(() => imported(text)).toThrow(
          expect.objectContaining({ code: 'session_malformed' }),
        ),
    ],
  ),
  ['loads valid session file', () => expect(imported(session(TWO)).messages).toBe(2)],
  [
    'skips malformed lines but keeps valid ones',
    () => {
      const { messages, problems } = imported(session(TWO).replace('\n', '\nnot valid json\n'));
      expect(messages).toBe(2);
      expect(problems).toMatchObject([{ kind: 'malformed', line: 2 }]);
    },
  ],
  [
    'deduplicates duplicate entry IDs when building tree from malformed files',
    () => {
      const again = [...TWO, ...TWO, user('3', '2', 'leaf')];
      expect(texts(contextOf(again))).toEqual(['hello', 'hi', 'leaf']);
    },
  ],
  [
    'has one header and each id once when it is written back',
    () => {
      const records = parsed(roundTrip(session([...TWO, ...TWO])));
      expect(records.map(({ type }) => type)).toEqual(['session', 'message', 'message']);
      expect(new Set(records.map(({ id }) => id)).size).toBe(records.length);
    },
  ],
];

const SAVED: readonly Check[] = [
  [
    'saves custom entries and includes them in tree traversal, not in the context',
    () => {
      const { made, ids } = started('hello');
      const id = made.append({
        event_type: 'custom',
        payload: { custom_type: 'my_data', data: { foo: 'bar' } },
      });
      const answer = made.answer('hi');
      expect(made.path()).toEqual([ids[0], id, answer]);
      expect(texts(foldContext(made.tree))).toEqual(['hello', 'hi']);
      const saved = parsed(exported(place(made.drafts))).find(({ type }) => type === 'custom');
      expect(saved).toMatchObject({
        id,
        parentId: ids[0],
        customType: 'my_data',
        data: { foo: 'bar' },
      });
    },
  ],
  [
    'uses the provided session id, and the same id at each export',
    () => {
      expect(parsed(roundTrip(session(TWO)))[0]?.['id']).toBe('sess-1');
      const { made } = started('hello');
      const [first, second] = [1, 2].map(() => parsed(exported(place(made.drafts)))[0]?.['id']);
      expect(first).toMatch(/^[0-9a-f-]{36}$/);
      expect(second).toBe(first);
    },
  ],
  [
    'gives a session of another thread another id',
    () => {
      const { made } = started('hello');
      const [one, other] = ['a', 'b'].map(
        (thread_id) => parsed(exported(place(made.drafts), { ...HEADER, thread_id }))[0]?.['id'],
      );
      expect(one).not.toBe(other);
    },
  ],
  [
    'refuses a session id that is none',
    () => expect(() => imported(session(TWO).replace('sess-1', '-x y'))).toThrow(/session id/),
  ],
];

describe.each([
  ['buildSessionContext', CONTEXT],
  ['append and tree traversal', TREE],
  ['labels', LABELS],
  ['migrateSessionEntries', MIGRATION],
  ['file operations', FILES],
  ['saved entries and session ids', SAVED],
])('%s', (_, checks) => {
  it.each(checks)('%s', (_name, check) => check());
});
