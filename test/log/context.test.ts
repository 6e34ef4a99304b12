import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import {
  type AssistantMessage,
  type Message,
  type StopReason,
  textOf,
  toolCallsOf,
} from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { foldContext, repairPairing, startedCallIds } from '../../src/kernel/log/context.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { place, userMessage } from './support.ts';

function assistant(
  text: string,
  calls: readonly string[] = [],
  stop: StopReason = 'end',
): AssistantMessage {
  return {
    role: 'assistant',
    content: [
      ...(text === '' ? [] : [{ type: 'text', text } as const]),
      ...calls.map(
        (call_id) => ({ type: 'tool_call', call_id, name: 'rye_bash', input: {} }) as const,
      ),
    ],
    provider: 'p',
    model: 'm',
    stop_reason: stop,
    usage: NO_USAGE,
  };
}

function result(call_id: string, text = 'done'): Message {
  return {
    role: 'tool_result',
    call_id,
    name: 'rye_bash',
    content: [{ type: 'text', text }],
    outcome: 'ok',
  };
}

const entry = (message: Message): EventDraft => ({ event_type: 'message', payload: { message } });

function omit(target_id: string): EventDraft {
  return { event_type: 'context_edit', payload: { target_id, action: 'omit' } };
}

function replace(target_id: string, content: string): EventDraft {
  return { event_type: 'context_edit', payload: { target_id, action: 'replace', content } };
}

function compaction(summary: string, first_kept_entry_id: string | null): EventDraft {
  return { event_type: 'compaction', payload: { summary, first_kept_entry_id, tokens_before: 1 } };
}

/** One short word per message: its role's first letter and its text. */
function folded(drafts: readonly EventDraft[], leafId?: string | null): readonly string[] {
  const events = place(drafts);
  const tree = buildTree(events);
  const options = {
    startedCalls: startedCallIds(events),
    ...(leafId === undefined ? {} : { leafId }),
  };
  return foldContext(tree, options).messages.map(
    (message) =>
      `${message.role[0]}:${textOf(message.content).replaceAll('\n', ' ')}${
        message.role === 'assistant'
          ? toolCallsOf(message)
              .map((call) => `(${call.call_id})`)
              .join('')
          : ''
      }`,
  );
}

describe('the fold', () => {
  it('takes messages, injected messages and branch summaries in path order, and nothing else', () => {
    expect(
      folded([
        userMessage('hello'),
        { event_type: 'title', payload: { title: 't' } },
        { event_type: 'custom', payload: { custom_type: 'hook', data: { x: 1 } } },
        {
          event_type: 'custom_message',
          payload: { custom_type: 'rule', content: 'mind it', display: false },
        },
        { event_type: 'branch_summary', payload: { from_id: 'x', summary: 'was bad' } },
        { event_type: 'branch_summary', payload: { from_id: 'x', summary: '' } },
        entry(assistant('fine')),
      ]),
    ).toEqual([
      'u:hello',
      'u:mind it',
      'u:Another branch of this conversation was tried and left. Its summary: <summary> was bad </summary>',
      'a:fine',
    ]);
  });

  it('takes settings, prompt and tools from their last change', () => {
    const tool = { name: 'rye_bash' };
    const tree = buildTree(
      place([
        { event_type: 'system_prompt', payload: { text: 'old', tools: [] } },
        { event_type: 'model_change', payload: { provider: 'p', model: 'small' } },
        { event_type: 'system_prompt', payload: { text: 'new', tools: [tool] } },
        { event_type: 'model_change', payload: { provider: 'p', model: 'big' } },
        { event_type: 'thinking_change', payload: { level: 'high' } },
        { event_type: 'title', payload: { title: 'Count' } },
      ]),
    );
    expect(foldContext(tree)).toEqual({
      messages: [],
      sources: [],
      system: 'new',
      tools: [tool],
      settings: { model: { provider: 'p', model: 'big' }, thinking: 'high', title: 'Count' },
    });
    expect(foldContext(tree, { leafId: 'e2' })).toMatchObject({
      system: 'old',
      settings: { model: { model: 'small' } },
    });
    expect(foldContext(tree, { leafId: null }).settings).toEqual({});
  });

  it('starts with the last compaction, then what it kept, then what follows', () => {
    const drafts = [
      userMessage('a'),
      userMessage('b'),
      compaction('one', 'e2'),
      userMessage('c'),
      userMessage('d'),
      compaction('two', 'e2'),
      userMessage('e'),
    ];
    expect(folded(drafts)).toEqual([
      'u:What happened before this point was summarised: <summary> two </summary>',
      'u:b',
      'u:c',
      'u:d',
      'u:e',
    ]);
    expect(folded(drafts, 'e4').slice(1)).toEqual(['u:b', 'u:c']);
  });

  it.each([null, 'gone', 'e9'])('keeps nothing for first_kept_entry_id %s', (kept) => {
    const drafts = [userMessage('a'), userMessage('b'), compaction('s', kept), userMessage('c')];
    expect(folded(drafts).slice(1)).toEqual(['u:c']);
  });

  it('names the entry of each message', () => {
    const tree = buildTree(
      place([userMessage('a'), entry(assistant('', ['c1'])), userMessage('b')]),
    );
    expect(foldContext(tree).sources).toEqual(['e1', 'e2', null, 'e3']);
  });
});

describe('context edits', () => {
  it('omit and replace, the newest on the path counts', () => {
    expect(folded([userMessage('a'), userMessage('b'), omit('e1'), replace('e2', 'B')])).toEqual([
      'u:B',
    ]);
    expect(folded([userMessage('a'), replace('e1', 'x'), omit('e1'), replace('e1', 'y')])).toEqual([
      'u:y',
    ]);
  });

  it('count on their own branch only', () => {
    const leaf: EventDraft = { event_type: 'leaf', payload: { target_id: 'e1' } };
    expect(folded([userMessage('a'), omit('e1'), leaf, userMessage('b')])).toEqual(['u:a', 'u:b']);
  });

  it('leave calls and results paired', () => {
    const base = [entry(assistant('long', ['c1'])), entry(result('c1', 'huge'))];
    expect(folded([...base, replace('e1', 'short')])).toEqual(['a:short(c1)', 't:huge']);
    expect(folded([...base, replace('e2', 'tiny')])).toEqual(['a:long(c1)', 't:tiny']);
    expect(folded([...base, omit('e2')])).toEqual(['a:long(c1)', 't:(left out of the context)']);
    expect(folded([...base, omit('e1')])).toEqual([]);
  });
});

describe('cut answers', () => {
  it('stay as far as they got', () => {
    expect(
      folded([userMessage('a'), entry(assistant('half', [], 'aborted')), userMessage('b')]),
    ).toEqual(['u:a', 'a:half', 'u:b']);
  });

  it('go when a retry took their place or when they are empty', () => {
    expect(
      folded([
        userMessage('a'),
        entry(assistant('half', [], 'aborted')),
        entry(assistant('whole')),
      ]),
    ).toEqual(['u:a', 'a:whole']);
    expect(folded([userMessage('a'), entry(assistant('', [], 'aborted'))])).toEqual(['u:a']);
  });
});

describe('pairing', () => {
  it('adds missing results and states whether the call was started', () => {
    const started: EventDraft = {
      event_type: 'tool_call_start',
      payload: { call_id: 'c2', tool: 'rye/bash', name: 'rye_bash', input: {}, turn: 1 },
    };
    expect(folded([entry(assistant('go', ['c1', 'c2'])), started, userMessage('next')])).toEqual([
      'a:go(c1)(c2)',
      't:This call was not started.',
      't:This call was interrupted. It may have taken effect in part or in full: check before repeating it.',
      'u:next',
    ]);
  });

  it('puts results in the order of the calls, before messages in between', () => {
    expect(
      folded([
        entry(assistant('', ['c1', 'c2'])),
        entry(result('c2', 'two')),
        userMessage('hey'),
        entry(result('c1', 'one')),
      ]),
    ).toEqual(['a:(c1)(c2)', 't:one', 't:two', 'u:hey']);
  });

  it('drops results without a call, second results and results that come too late', () => {
    expect(
      folded([
        entry(result('c0')),
        entry(assistant('', ['c1'])),
        entry(result('c1', 'first')),
        entry(result('c1', 'again')),
        entry(assistant('', ['c1'])),
        entry(result('c1', 'second turn')),
        entry(assistant('bye')),
        entry(result('c1', 'late')),
      ]),
    ).toEqual(['a:(c1)', 't:first', 'a:(c1)', 't:second turn', 'a:bye']);
  });

  it('holds for any sequence of messages', () => {
    const id = fc.constantFrom('a', 'b', 'c');
    const message = fc.oneof(
      fc.array(id, { maxLength: 3 }).map((calls) => assistant('t', calls)),
      id.map((call) => result(call)),
      fc.constant<Message>({ role: 'user', content: [{ type: 'text', text: 'u' }] }),
    );
    fc.assert(
      fc.property(fc.array(message, { maxLength: 12 }), (messages) => {
        const sources = messages.map((_, index) => String(index));
        const whole = repairPairing({ messages, sources });
        const repaired = whole.messages;
        expect(whole.sources.map((source) => messages[Number(source ?? 'none')])).toEqual(
          whole.sources.map((source, index) => (source === null ? undefined : repaired[index])),
        );
        for (let at = 0; at < repaired.length; at += 1) {
          const current = repaired[at];
          if (current?.role !== 'assistant') continue;
          const calls = toolCallsOf(current).map((call) => call.call_id);
          const answers = repaired.slice(at + 1, at + 1 + calls.length);
          expect(answers.map((answer) => answer.role === 'tool_result' && answer.call_id)).toEqual(
            calls,
          );
          expect(repaired[at + 1 + calls.length]?.role).not.toBe('tool_result');
        }
        expect(repairPairing(whole)).toEqual(whole);
        expect(repaired.filter(({ role }) => role !== 'tool_result')).toEqual(
          messages.filter(({ role }) => role !== 'tool_result'),
        );
      }),
      { numRuns: 300, seed: 5 },
    );
  });
});
