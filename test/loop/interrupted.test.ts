import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import {
  type Message,
  type ToolCallBlock,
  textOf,
  userText,
} from '../../src/kernel/core/message.ts';
import { foldContext, startedCallIds } from '../../src/kernel/log/context.ts';
import { CONTINUE_DRAFT, crashedAnswer } from '../../src/kernel/log/interruption.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { projectContext } from '../../src/kernel/loop/conversation.ts';
import { runLoop } from '../../src/kernel/loop/loop.ts';
import {
  buildRequest as anthropicRequest,
  traitsOfId,
} from '../../src/kernel/providers/anthropic/request.ts';
import { CAPABILITIES, type Dialect } from '../../src/kernel/providers/catalog.ts';
import { DIALECT_TRAITS } from '../../src/kernel/providers/openai/dialect.ts';
import { buildRequest as chatRequest } from '../../src/kernel/providers/openai/request.ts';
import type { ModelEvent } from '../../src/kernel/providers/provider.ts';
import { aRequest } from '../../testing/conformance/provider.ts';
import { type ChatBody, checkChatRequest } from '../helpers/chat-rules.ts';
import { runs } from '../helpers/runs.ts';
import { shippedRules } from '../helpers/shipped-rules.ts';
import { checkRequest, type WireBody } from '../helpers/wire-rules.ts';
import {
  answers,
  logOf,
  MODEL,
  planOf,
  play,
  portsOf,
  type Turn,
  toolOf,
  VirtualClock,
} from './scripted.ts';

const START: ModelEvent = { type: 'start', model: 'model-1' };
const TOOLS = { rye_echo: toolOf('rye/echo') };
const DIALECTS = Object.keys(DIALECT_TRAITS) as readonly Dialect[];

/** The events of one streamed block. */
const block = fc.oneof(
  fc
    .array(fc.string({ unit: 'grapheme', maxLength: 8 }), { minLength: 1, maxLength: 4 })
    .map((texts): ModelEvent[] => texts.map((text) => ({ type: 'text_delta', text }))),
  fc.constantFrom<ModelEvent[]>(
    [{ type: 'text_delta', text: 'ends in blanks \n\n' }],
    [{ type: 'thinking_delta', text: 'a thought' }],
    [
      { type: 'thinking_delta', text: 'half ' },
      { type: 'thinking_delta', text: 'a thought' },
    ],
  ),
  fc.uuid().map((id): ModelEvent[] => [
    { type: 'toolcall_start', call_id: id, name: 'rye_echo' },
    { type: 'toolcall_delta', call_id: id, json: '{"a"' },
    { type: 'toolcall_delta', call_id: id, json: ':1}' },
    { type: 'toolcall_end', call_id: id },
  ]),
);
const stream = fc.array(block, { maxLength: 5 }).map((blocks) => [START, ...blocks.flat()]);

function spokenIn(events: readonly ModelEvent[]): string {
  return events.map((event) => (event.type === 'text_delta' ? event.text : '')).join('');
}

/** Streams these events; then a person stops the run. */
function stopsAfter(events: readonly ModelEvent[], cancel: AbortController): Turn {
  return async function* (_request, signal) {
    yield* events;
    cancel.abort('interrupted by Ctrl-C');
    await new Promise<void>((resolve) => {
      if (signal.aborted) resolve();
      signal.addEventListener('abort', () => resolve(), { once: true });
    });
    yield { type: 'error', failure: { message: 'aborted', phase: 'aborted' } };
  };
}

/** Checks a conversation by the rules of every API, and returns what each of them is sent as text. */
function asSent(history: readonly Message[]): string[] {
  const sentTo = (provider: string, model: string) => projectContext(history, { provider, model });
  const model = 'claude-sonnet-5-5';
  const request = aRequest({
    model,
    thinking: 'high',
    max_tokens: 8192,
    messages: sentTo('anthropic', model),
  });
  const receiver = { name: 'anthropic', wire: shippedRules('anthropic') };
  const body = anthropicRequest(request, traitsOfId(model), receiver) as unknown as WireBody;
  expect(checkRequest(body)).toEqual([]);
  const chats = DIALECTS.map((dialect) => {
    const messages = sentTo('openai', 'gpt-6-sol');
    const wire = shippedRules(dialect);
    const traits = { provider: 'openai', dialect, capabilities: CAPABILITIES, wire };
    const chat = chatRequest(aRequest({ model: 'gpt-6-sol', messages }), traits);
    const plain = JSON.parse(JSON.stringify(chat)) as ChatBody;
    expect(checkChatRequest(plain, dialect)).toEqual([]);
    return plain.messages.map(({ content }) => content ?? '');
  });
  const words = body.messages.flatMap(({ content }) =>
    typeof content === 'string' ? [content] : content.map(({ text = '' }) => text),
  );
  return [words, ...chats].map((one) => JSON.stringify(one));
}

const NEXT: readonly Message[] = [userText('go on'), userText(CONTINUE_DRAFT.payload.content)];

describe('an answer that a person stops', () => {
  it('stays in the next request as far as it came, on every wire, wherever it is cut', async () => {
    await fc.assert(
      fc.asyncProperty(stream, fc.nat(), fc.boolean(), async (events, at, usesTool) => {
        const heard = events.slice(0, 1 + (at % events.length));
        const cancel = new AbortController();
        const first = usesTool
          ? [answers('Let me look.', [{ id: 'first', name: 'rye_echo' }])]
          : [];
        const { events: log, outcome } = await play({
          tools: TOOLS,
          signal: cancel.signal,
          turns: [...first, stopsAfter(heard, cancel)],
        });
        const text = spokenIn(heard);
        const isSpoken = text.trim() !== '';
        expect(outcome.kind).toBe('cancelled');
        if (isSpoken) expect(outcome.last_text).toBe(text);
        const { messages } = foldContext(buildTree(log), { startedCalls: startedCallIds(log) });
        const history = [userText('Do it.'), ...messages];
        const last = history.findLast(({ role }) => role === 'assistant');
        if (isSpoken) expect(textOf(last?.content ?? [])).toBe(text);
        const calls = last?.content.filter((one): one is ToolCallBlock => one.type === 'tool_call');
        if (isSpoken) expect(calls).toEqual([]);
        for (const next of NEXT) {
          for (const sent of asSent([...history, next])) {
            if (isSpoken) expect(sent).toContain(JSON.stringify(text));
            expect(sent.includes('[Your answer was interrupted here by the user.]')).toBe(isSpoken);
          }
        }
      }),
      runs(60),
    );
  });

  it('stays after a compaction that keeps it, with its mark', async () => {
    const cancel = new AbortController();
    const half = stopsAfter([START, { type: 'text_delta', text: 'Half of it ' }], cancel);
    const { events } = await play({ signal: cancel.signal, turns: [half] });
    const log = logOf();
    log.append(events.map(({ event_type, payload }) => ({ event_type, payload }) as EventDraft));
    const kept = log.events.find(({ event_type }) => event_type === 'message');
    const first = { first_kept_entry_id: kept?.id ?? null, tokens_before: 9 };
    log.append([{ event_type: 'compaction', payload: { summary: 'A story.', ...first } }]);
    const { messages } = foldContext(buildTree(log.events));
    expect(messages.slice(1).map(({ content }) => textOf(content))).toEqual([
      'Half of it ',
      '[Your answer was interrupted here by the user.]',
    ]);
    for (const sent of asSent([...messages, userText('go on')])) {
      expect(sent).toContain('"Half of it "');
    }
  });

  it('is not kept where a retry took its place', async () => {
    const cut: ModelEvent[] = [
      START,
      { type: 'text_delta', text: 'Hal' },
      { type: 'error', failure: { message: 'reset', phase: 'stream' } },
    ];
    const cancel = new AbortController();
    const { events } = await play({
      signal: cancel.signal,
      turns: [cut, stopsAfter([START, { type: 'text_delta', text: 'Half of' }], cancel)],
    });
    const { messages } = foldContext(buildTree(events));
    expect(messages.map(({ content }) => textOf(content))).toEqual([
      'Half of',
      '[Your answer was interrupted here by the user.]',
    ]);
  });
});

describe('an answer that a limit cuts', () => {
  it('is continued where it stopped once a hook raised the limit', async () => {
    const usage = {
      input_tokens: 0,
      output_tokens: 0,
      cache_read_tokens: 0,
      cache_write_tokens: 0,
    };
    const long = 'word '.repeat(400);
    const { outcome, requests } = await play({
      plan: { limits: { ...planOf().limits, spend: 0.004 } },
      turns: [
        [START, { type: 'usage', usage }, { type: 'text_delta', text: long }],
        answers('and the end.'),
      ],
      control: (event) =>
        event === 'limit' ? { control: 'escalate', limit: 'spend', to: 1 } : undefined,
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: `${long}and the end.` });
    expect(requests[1]?.messages.map(({ content }) => textOf(content))).toEqual([
      'Do it.',
      long,
      '[Your answer was interrupted here: the limit spend was reached.]',
      CONTINUE_DRAFT.payload.content,
    ]);
  });
});

/** The characters of streamed pieces, which the loop may merge. */
function sizeOf(events: readonly { readonly payload: object }[]): number {
  return events.reduce((sum, { payload }) => {
    const { text = '', json = '' } = payload as { text?: string; json?: string };
    return sum + (text + json).length;
  }, 0);
}

describe('an answer whose process died', () => {
  /** The log of a run that is left after so many events of the stream. */
  async function logUntil(events: readonly ModelEvent[]) {
    const log = logOf();
    const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
    const hangs: Turn = async function* () {
      yield* events;
      await new Promise(() => {});
    };
    const loop = runLoop(
      planOf(),
      portsOf({ turns: [hangs], ports: { clock: new VirtualClock({ auto: false }) } }, facts),
      new AbortController().signal,
    );
    const wanted = sizeOf(events.map((event) => ({ payload: event })));
    let step = await loop.next();
    while (step.done !== true) {
      log.append(step.value);
      const isHeard = sizeOf(log.events) >= wanted;
      if (isHeard) break;
      step = await loop.next([]);
    }
    return log;
  }

  it('is kept as far as the log has its text', async () => {
    await fc.assert(
      fc.asyncProperty(stream, async (events) => {
        const log = await logUntil(events);
        log.append(crashedAnswer(log.events, { provider: MODEL.provider, model: MODEL.id }));
        const { messages } = foldContext(buildTree(log.events));
        const text = spokenIn(events);
        const spoken =
          text.trim() === ''
            ? []
            : [text, '[Your answer was interrupted here: the process ended.]'];
        expect(messages.map(({ content }) => textOf(content))).toEqual(spoken);
        asSent([userText('Do it.'), ...messages, userText('go on')]);
      }),
      runs(40),
    );
  });

  it('is not kept if it had ended, failed or was not begun', () => {
    const model = { provider: 'p', model: 'm' };
    const log = logOf();
    expect(crashedAnswer(log.events, model)).toEqual([]);
    log.append([
      { event_type: 'turn_started', payload: { turn: 1 } },
      { event_type: 'token_delta', payload: { text: 'Half' } },
    ]);
    expect(crashedAnswer(log.events, model)).toHaveLength(2);
    log.append([
      {
        event_type: 'error_classified',
        payload: { category: 'transient', retryable: true, message: 'reset' },
      },
    ]);
    expect(crashedAnswer(log.events, model)).toEqual([]);
  });
});
