import {
  type Arbitrary,
  array,
  assert,
  constantFrom,
  nat,
  oneof,
  option,
  property,
  record,
  string,
} from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { exportPathLog } from '../../src/kernel/export/path-log.ts';
import { decodeHeader, decodeLine } from '../../src/kernel/log/codec.ts';
import { foldContext, startedCallIds } from '../../src/kernel/log/context.ts';
import { buildTree, pathTo } from '../../src/kernel/log/tree.ts';
import { place, THREAD, userMessage } from '../log/support.ts';
import { sourceOf } from './support.ts';

function exported(events: readonly LogEvent[]) {
  const [first = '', ...rest] = [...exportPathLog(sourceOf(events))].join('').split('\n');
  expect(rest.pop()).toBe('');
  const pieces = rest.flatMap((line) => decodeLine(line));
  const read = pieces.flatMap((piece) => ('event' in piece ? [piece.event] : []));
  expect(read).toHaveLength(rest.length);
  return { header: decodeHeader(first), events: read, tree: buildTree(read) };
}

function called(id: string): EventDraft {
  const content = [{ type: 'tool_call', call_id: id, name: 'rye_bash', input: {} }] as const;
  const stop_reason = 'tool_calls';
  const message = { role: 'assistant', provider: 'p', model: 'm', usage: NO_USAGE } as const;
  return {
    event_type: 'message',
    payload: { message: { ...message, content, stop_reason } },
  };
}

function started(id: string): EventDraft {
  const payload = { call_id: id, tool: 'rye/bash', name: 'rye_bash', input: {}, turn: 1 };
  return { event_type: 'tool_call_start', payload };
}

function answered(id: string): EventDraft {
  const message = { role: 'tool_result', call_id: id, name: 'rye_bash' } as const;
  const content = [{ type: 'text', text: `result of ${id}` }] as const;
  return { event_type: 'message', payload: { message: { ...message, content, outcome: 'ok' } } };
}

const target = nat(12).map((n) => `e${n}`);
const draft: Arbitrary<EventDraft> = oneof(
  string().map(userMessage),
  constantFrom('c1', 'c2', 'c3').chain((id) => constantFrom(called(id), answered(id))),
  constantFrom('c1', 'c2', 'c3').map(started),
  record({ target_id: target, label: option(constantFrom('', 'one', 'two')) }).map(
    (payload): EventDraft => ({ event_type: 'label', payload }),
  ),
  target.map((target_id): EventDraft => ({ event_type: 'leaf', payload: { target_id } })),
  target.map(
    (first): EventDraft => ({
      event_type: 'compaction',
      payload: { summary: 'so far', first_kept_entry_id: first, tokens_before: 9 },
    }),
  ),
  target.map(
    (target_id): EventDraft => ({
      event_type: 'context_edit',
      payload: { target_id, action: 'omit' },
    }),
  ),
);

describe('the path as a separate log', () => {
  it('of any tree is a sound chain that folds to the same context', () => {
    assert(
      property(array(draft, { maxLength: 30 }), (drafts) => {
        const events = place(drafts);
        const original = buildTree(events);
        const copy = exported(events);
        expect(copy.tree.problems).toEqual([]);
        expect(copy.events.map(({ seq }) => seq)).toEqual(copy.events.map((_, at) => at + 1));
        const ids = copy.tree.entries.map(({ id }) => id);
        expect(copy.tree.entries.map(({ parent_id }) => parent_id)).toEqual(
          ids.length === 0 ? [] : [null, ...ids.slice(0, -1)],
        );
        const options = (from: readonly LogEvent[]) => ({ startedCalls: startedCallIds(from) });
        expect(
          foldContext(copy.tree, options(copy.events as readonly LogEvent[])).messages,
        ).toEqual(foldContext(original, options(events)).messages);
        const stays = pathTo(original, original.leafId).filter(
          ({ event_type }) => !['label', 'leaf'].includes(event_type),
        );
        const onPath = new Set(stays.map(({ id }) => id));
        expect(copy.tree.labels).toEqual(
          new Map([...original.labels].filter(([id]) => onPath.has(id))),
        );
      }),
      { numRuns: 500, seed: 5 },
    );
  });

  it('keeps ids and times, and names the original thread', () => {
    const events = place([
      userMessage('a'),
      userMessage('left'),
      { event_type: 'leaf', payload: { target_id: 'e1' } },
      userMessage('b'),
      { event_type: 'label', payload: { target_id: 'e1', label: 'start' } },
    ]);
    const { header, events: copy } = exported(events);
    expect(header).toMatchObject({
      header: { thread_id: THREAD, branched_from: { thread_id: THREAD, entry_id: 'e5' } },
    });
    expect(copy.map(({ id, event_type }) => `${id} ${event_type}`)).toEqual([
      'e1 message',
      'e4 message',
      'e5 label',
    ]);
    expect(copy.map(({ timestamp }) => timestamp)).toEqual(
      [0, 3, 4].map((index) => events[index]?.timestamp),
    );
  });

  it('of an empty log is its header', () => {
    expect(exported([])).toMatchObject({ header: { header: { thread_id: THREAD } }, events: [] });
  });
});
