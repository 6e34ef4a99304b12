import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type {
  AssistantMessage,
  Message,
  ToolOutcome,
  ToolResultMessage,
} from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { carryPath, carryTail, continuePath } from '../../src/kernel/log/continuation.ts';
import { openCalls, settlementDrafts, unfinishedCalls } from '../../src/kernel/log/open-calls.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { place, userMessage } from './support.ts';

function asks(...calls: readonly string[]): EventDraft {
  const message: AssistantMessage = {
    role: 'assistant',
    content: calls.map((call_id) => ({ type: 'tool_call', call_id, name: 'rye_bash', input: {} })),
    provider: 'p',
    model: 'm',
    stop_reason: 'tool_calls',
    usage: NO_USAGE,
  };
  return { event_type: 'message', payload: { message } };
}

function answers(call_id: string, text = 'done'): EventDraft {
  const message: ToolResultMessage = {
    role: 'tool_result',
    call_id,
    name: 'rye_bash',
    content: [{ type: 'text', text }],
    outcome: 'ok',
  };
  return { event_type: 'message', payload: { message } };
}

function starts(call_id: string): EventDraft {
  const payload = { call_id, tool: 'rye/bash', name: 'rye_bash', input: {}, turn: 1 };
  return { event_type: 'tool_call_start', payload };
}

function settles(call_id: string, outcome: ToolOutcome = 'ok'): EventDraft {
  const payload = { call_id, tool: 'rye/bash', outcome, duration_ms: 1, output_bytes: 1 };
  return { event_type: 'tool_settled', payload };
}

const textOfMessage = ({ content }: Message): string => JSON.stringify(content);

const PROMPT: EventDraft = { event_type: 'system_prompt', payload: { text: 'sys', tools: [] } };

function fates(drafts: readonly EventDraft[]): readonly (readonly [string, string])[] {
  const events = place(drafts);
  return openCalls(buildTree(events), events).map(({ call, fate }) => [call.call_id, fate]);
}

describe('open calls of a log that a crash cut', () => {
  it.each<[string, readonly EventDraft[], readonly (readonly [string, string])[]]>([
    ['no answer yet', [userMessage('go')], []],
    ['all answered', [userMessage('go'), asks('a'), starts('a'), settles('a'), answers('a')], []],
    [
      'none started',
      [userMessage('go'), asks('a', 'b')],
      [
        ['a', 'not_started'],
        ['b', 'not_started'],
      ],
    ],
    [
      'one started',
      [userMessage('go'), asks('a', 'b'), starts('b')],
      [
        ['a', 'not_started'],
        ['b', 'interrupted'],
      ],
    ],
    [
      'one done after one that runs',
      [userMessage('go'), asks('a', 'b'), starts('a'), starts('b'), settles('b')],
      [
        ['a', 'interrupted'],
        ['b', 'result_lost'],
      ],
    ],
    [
      'only the last answer counts',
      [
        userMessage('go'),
        asks('a'),
        starts('a'),
        settles('a'),
        answers('a'),
        asks('b'),
        starts('b'),
      ],
      [['b', 'interrupted']],
    ],
  ])('%s', (_, drafts, expected) => {
    expect(fates(drafts)).toEqual(expected);
  });

  // Requirement: interrupted-call-result
  it('have exactly one result each after the settlement, and none claims success', () => {
    const cut = [userMessage('go'), asks('a', 'b', 'c'), starts('a'), starts('b'), settles('b')];
    const events = place(cut);
    const open = openCalls(buildTree(events), events);
    const whole = place([...cut, ...settlementDrafts(open)]);
    const { messages, sources } = foldContext(buildTree(whole));
    expect(sources).not.toContain(null);
    const results = messages.filter((message) => message.role === 'tool_result');
    expect(
      results.map(({ call_id, outcome, data }) => [call_id, outcome, data?.['recovered']]),
    ).toEqual([
      ['a', 'aborted', 'interrupted'],
      ['b', 'aborted', 'result_lost'],
      ['c', 'skipped', 'not_started'],
    ]);
    // a call that the log records as ended is not settled a second time
    const settled = whole.filter(({ event_type }) => event_type === 'tool_settled');
    expect(settled).toHaveLength(3);
    expect(openCalls(buildTree(whole), whole)).toEqual([]);
    expect(unfinishedCalls(messages, ['interrupted'])?.calls).toMatchObject([
      { call: { call_id: 'a' }, fate: 'interrupted' },
    ]);
    expect(unfinishedCalls(messages.slice(0, 1), ['interrupted'])).toBeUndefined();
  });
});

describe('a context that is carried over', () => {
  const history = [
    PROMPT,
    userMessage('go'),
    asks('a'),
    starts('a'),
    settles('a'),
    answers('a'),
    asks('b', 'c'),
    starts('b'),
  ];
  const events = place(history);
  const tree = buildTree(events);

  it('is the same in the new log, results that were missing put on record', () => {
    const carried = carryPath({ tree, events, leafId: tree.leafId });
    const copy = foldContext(buildTree(place(carried.drafts, 'n')));
    expect(copy.messages).toEqual(carried.messages);
    expect(copy.sources).not.toContain(null);
    expect(copy.system).toBe('sys');
    const results = copy.messages.filter((message) => message.role === 'tool_result');
    expect(results.map(({ call_id, outcome }) => [call_id, outcome])).toEqual([
      ['a', 'ok'],
      ['b', 'aborted'],
      ['c', 'skipped'],
    ]);
  });

  it('drops the recovered results of calls that run again, and no others', () => {
    const settled = place([...history, ...settlementDrafts(openCalls(tree, events))]);
    const whole = buildTree(settled);
    const rerun = new Set(['a', 'b']);
    const carried = carryPath({ tree: whole, events: settled, leafId: whole.leafId, rerun });
    const ids = carried.messages.flatMap((message) =>
      message.role === 'tool_result' ? [message.call_id] : [],
    );
    expect(ids).toEqual(['a', 'c']);
    expect(carried.drafts.map((draft) => JSON.stringify(draft)).join('')).not.toContain(
      '"b","name":"rye_bash","content"',
    );
  });

  it('copies no recovered result of a call that runs again onto a branch at its answer', () => {
    const settled = place([...history, ...settlementDrafts(openCalls(tree, events))]);
    const whole = buildTree(settled);
    const rerun = new Set(['b']);
    const moved = continuePath({ tree: whole, events: settled, leafId: tree.leafId, rerun });
    const copied = moved.drafts.flatMap((draft) =>
      draft.event_type === 'message' && draft.payload.message.role === 'tool_result'
        ? draft.payload.message.call_id
        : [],
    );
    expect(copied).toEqual(['c']);
  });

  it('is cut to its opening and its latest messages, never after a call', () => {
    const long = 'x'.repeat(4000);
    const turns = ['1', '2', '3', '4'].flatMap((id) => [asks(id), answers(id, long)]);
    const all = place([PROMPT, userMessage('go'), ...turns]);
    const whole = buildTree(all);
    const around = Array.from({ length: 25 }, (_, at) => 990 + 5 * at);
    for (const ceiling of [0, 900, ...around, 1300, 2100, 3500, 100_000]) {
      const carried = carryTail({ tree: whole, events: all, leafId: whole.leafId }, ceiling);
      expect(carried.messages[0]).toMatchObject({ role: 'user', content: [{ text: 'go' }] });
      expect(carried.messages[1]?.role).not.toBe('tool_result');
      const copy = foldContext(buildTree(place(carried.drafts, 'n')));
      expect(copy.messages).toEqual(carried.messages);
      expect(copy.sources).not.toContain(null);
    }
    const two = carryTail({ tree: whole, events: all, leafId: whole.leafId }, 2200);
    expect(two.messages).toHaveLength(5);
  });

  it('carries a summary on as text', () => {
    const all = place([
      PROMPT,
      userMessage('go'),
      userMessage('later'),
      {
        event_type: 'compaction',
        payload: { summary: 'sum', first_kept_entry_id: 'e3', tokens_before: 9 },
      },
      userMessage('last'),
    ]);
    const whole = buildTree(all);
    const carried = carryTail({ tree: whole, events: all, leafId: whole.leafId }, 100_000);
    expect(JSON.stringify(carried.messages[0])).toContain('sum');
    expect(foldContext(buildTree(place(carried.drafts, 'n'))).messages).toEqual(carried.messages);
  });

  it('keeps what a compaction left of the messages before the tail', () => {
    const long = 'x'.repeat(4000);
    const all = place([
      PROMPT,
      userMessage('go'),
      userMessage('rules'),
      userMessage('later'),
      {
        event_type: 'compaction',
        payload: {
          summary: 'sum',
          first_kept_entry_id: null,
          protected_entry_ids: ['e2', 'e3'],
          tokens_before: 9,
        },
      },
      ...['1', '2', '3'].flatMap((id) => [asks(id), answers(id, long)]),
    ]);
    const whole = buildTree(all);
    for (const [ceiling, has] of [
      [0, ['go', 'sum']],
      [1200, ['go', 'rules', 'sum', long]],
      [100_000, ['go', 'rules', 'sum', long, long, long]],
    ] as const) {
      const { messages } = carryTail({ tree: whole, events: all, leafId: whole.leafId }, ceiling);
      const texts = messages.filter(({ role }) => role !== 'assistant').map(textOfMessage);
      expect(texts.map((text, at) => text.includes(has[at] ?? 'nothing'))).toEqual(
        has.map(() => true),
      );
    }
  });

  it('may be empty', () => {
    expect(carryPath({ tree: buildTree([]), events: [], leafId: null }).messages).toEqual([]);
  });
});
