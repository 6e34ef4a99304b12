import { beforeAll, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { isJsonObject, type JsonObject, toText } from '../../src/kernel/core/json.ts';
import { type Message, textOf, toolCallsOf } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { branchDrafts } from '../../src/kernel/log/continuation.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { place, userMessage } from '../log/support.ts';
import { exported, imported, loadPi } from './pi-lab.ts';

let pi: Awaited<ReturnType<typeof loadPi>>;
beforeAll(async () => {
  pi = await loadPi();
});

function assistant(text: string, callId?: string): EventDraft {
  const call = { type: 'tool_call', call_id: callId ?? '', name: 'read', input: {} } as const;
  const content = [{ type: 'text', text } as const, ...(callId === undefined ? [] : [call])];
  const message = {
    role: 'assistant',
    content,
    provider: 'anthropic',
    model: 'claude-x',
    stop_reason: callId === undefined ? 'end' : 'tool_calls',
    usage: NO_USAGE,
  } as const;
  return { event_type: 'message', payload: { message } };
}

function result(callId: string, text: string): EventDraft {
  const content = [{ type: 'text', text }] as const;
  const message = {
    role: 'tool_result',
    call_id: callId,
    name: 'read',
    content,
    outcome: 'ok',
  } as const;
  return { event_type: 'message', payload: { message } };
}

const edit = (target_id: string, content?: string): EventDraft => ({
  event_type: 'context_edit',
  payload: {
    target_id,
    ...(content === undefined ? { action: 'omit' } : { action: 'replace', content }),
  },
});

function piText({ role, content }: JsonObject): string {
  const blocks = Array.isArray(content) ? content.filter(isJsonObject) : [];
  const parts = blocks.map(({ text, type }) => toText(text ?? type ?? ''));
  return `${toText(role ?? '')}: ${Array.isArray(content) ? parts.join('|') : toText(content ?? '')}`;
}

const ROLES = { user: 'user', assistant: 'assistant', tool_result: 'toolResult' } as const;

function ryeText(message: Message): string {
  const calls = message.role === 'assistant' ? toolCallsOf(message).map(() => '|toolCall') : [];
  return `${ROLES[message.role]}: ${textOf(message.content)}${calls.join('')}`;
}

/** The context of a log in rye, and in pi once it is exported. */
function both(drafts: readonly EventDraft[]): { readonly rye: string[]; readonly inPi: string[] } {
  const events = place(drafts);
  const [, ...entries] = exported(events)
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as JsonObject);
  return {
    rye: foldContext(buildTree(events)).messages.map(ryeText),
    inPi: pi.buildSessionContext(entries).messages.map(piText),
  };
}

const TALK = [
  userMessage('one'),
  assistant('two', 'c1'),
  result('c1', 'three'),
  assistant('four'),
  userMessage('five'),
];

const CASES: readonly (readonly [string, readonly EventDraft[], readonly string[]])[] = [
  [
    'an omitted answer',
    [edit('e4')],
    ['user: one', 'assistant: two|toolCall', 'toolResult: three', 'user: five'],
  ],
  [
    'an omitted question',
    [edit('e1')],
    ['assistant: two|toolCall', 'toolResult: three', 'assistant: four', 'user: five'],
  ],
  ['an omitted answer with a call', [edit('e2')], ['user: one', 'assistant: four', 'user: five']],
  [
    'an omitted result',
    [edit('e3')],
    [
      'user: one',
      'assistant: two|toolCall',
      'toolResult: (left out of the context)',
      'assistant: four',
      'user: five',
    ],
  ],
  [
    'replaced messages, the last replacement of each',
    [edit('e1', 'x'), edit('e2', 'y'), edit('e3', 'z'), edit('e1', 'eins')],
    ['user: eins', 'assistant: y|toolCall', 'toolResult: z', 'assistant: four', 'user: five'],
  ],
];

it.each(CASES)('pi 0.73 has the context of rye after %s', (_, edits, expected) => {
  expect(both([...TALK, ...edits])).toEqual({ rye: expected, inPi: expected });
});

it('keeps what was omitted in the file, and the edit for newer versions of pi', () => {
  const text = exported(place([...TALK, edit('e4')]));
  expect(text).toContain('"customType":"rye/omitted"');
  expect(text).toContain('"text":"four"');
  expect(text).toContain('{"type":"context_edit","id":"e6","parentId":"e5"');
  const { messages } = foldContext(buildTree(place(imported(text).drafts)));
  expect(messages.map(({ content }) => textOf(content))).toEqual(['one', 'two', 'three', 'five']);
});

it('leaves an entry as it is for another branch without the edit', () => {
  const tree = buildTree(place([...TALK, edit('e1')]));
  const drafts = [...TALK, edit('e1'), ...branchDrafts(tree, 'e4'), userMessage('other')];
  const text = exported(place(drafts));
  expect(text).not.toContain('rye/omitted');
  expect(text).toContain('"type":"context_edit"');
});
