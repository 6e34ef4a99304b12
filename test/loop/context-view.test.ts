import { describe, expect, it } from 'vitest';
import { type Message, type ToolOutcome, userText } from '../../src/kernel/core/message.ts';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import { ContextView, Conversation } from '../../src/kernel/loop/conversation.ts';
import { Outbox } from '../../src/kernel/loop/outbox.ts';
import type { LoopPorts } from '../../src/kernel/loop/ports.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, MODEL, planOf, play, toolOf } from './scripted.ts';

interface Turn {
  readonly name?: string;
  readonly path?: string;
  readonly bytes: number;
  readonly outcome?: ToolOutcome;
}

/** A conversation of one call per turn. */
function talk(...turns: readonly Turn[]): Message[] {
  return [
    userText('go'),
    ...turns.flatMap(
      ({ name = 'rye_bash', path = 'a', bytes, outcome = 'ok' }, index): Message[] => [
        {
          role: 'assistant',
          content: [{ type: 'tool_call', call_id: `c${index}`, name, input: { path } }],
          provider: 'p',
          model: 'm',
          stop_reason: 'tool_calls',
          usage: NO_USAGE,
        },
        {
          role: 'tool_result',
          call_id: `c${index}`,
          name,
          outcome,
          content: [{ type: 'text', text: 'x'.repeat(bytes) }],
        },
      ],
    ),
  ];
}

function stubs(messages: readonly Message[]): string[] {
  return messages.flatMap((message) =>
    message.role === 'tool_result' && JSON.stringify(message.content).includes('were omitted')
      ? [message.call_id]
      : [],
  );
}

function viewOf(options: { threshold?: number; keepTurns?: number; stale?: boolean }) {
  const shrinks: number[] = [];
  const { threshold, keepTurns = 2, stale = false } = options;
  const view = new ContextView({
    tail: threshold === undefined ? undefined : { thresholdBytes: threshold, keepTurns },
    elideStaleReads: stale,
    onShrink: () => shrinks.push(1),
  });
  return { view, shrinks };
}

const READ = 'rye_file_system_read';
const EDIT = 'rye_file_system_edit';

describe('old results', () => {
  it('stay while they are few', () => {
    const { view, shrinks } = viewOf({ threshold: 1000 });
    const messages = talk({ bytes: 400 }, { bytes: 400 });
    expect(view.project(messages)).toBe(messages);
    expect(shrinks).toEqual([]);
  });

  it('are counted from the start once a summary has replaced the conversation', () => {
    const history = talk({ bytes: 400 }, { bytes: 10 });
    const definitions = () => ({ version: 1, tools: [] });
    const ports = { system: '', history, definitions } as unknown as LoopPorts;
    const conversation = new Conversation(ports, new Outbox(() => undefined), {
      tail: { thresholdBytes: 1000, keepTurns: 2 },
      elideStaleReads: false,
      onShrink: () => undefined,
    });
    expect(stubs(conversation.outgoing(MODEL))).toEqual([]);
    conversation.replace(talk({ bytes: 400 }, { bytes: 400 }, { bytes: 400 }, { bytes: 10 }));
    expect(stubs(conversation.outgoing(MODEL))).toEqual(['c0', 'c1']);
  });

  // Requirement: old-results-dropped
  it('become stubs above the threshold, except results of the last turns', () => {
    const { view, shrinks } = viewOf({ threshold: 1000 });
    const messages = talk({ bytes: 400 }, { bytes: 400 }, { bytes: 400 }, { bytes: 10 });
    const shown = view.project(messages);
    expect(stubs(shown)).toEqual(['c0', 'c1']);
    expect(JSON.stringify(shown[2])).toContain('[400 bytes of this result were omitted');
    expect(shown).toHaveLength(messages.length);
    expect(messages[2]).not.toBe(shown[2]);
    expect(shrinks).toEqual([1]);
  });

  // Requirement: old-results-dropped
  it('leave in steps: between two of them the beginning of every request is the same', () => {
    const { view } = viewOf({ threshold: 4000 });
    const turns: Turn[] = Array.from({ length: 60 }, () => ({ bytes: 500 }));
    const steps: number[] = [];
    let before: readonly Message[] = [];
    for (let count = 1; count <= turns.length; count += 1) {
      const shown = view.project(talk(...turns.slice(0, count)));
      const kept = JSON.stringify(shown.slice(0, before.length)) === JSON.stringify(before);
      if (!kept) steps.push(count);
      before = shown;
    }
    // of 60 turns, only those at which what is shown has grown beyond the threshold again
    expect(steps).toEqual([9, 16, 23, 30, 37, 44, 51, 58]);
  });

  it('are not given up for a step that would free little', () => {
    const { view } = viewOf({ threshold: 1000 });
    expect(stubs(view.project(talk({ bytes: 100 }, { bytes: 600 }, { bytes: 600 })))).toEqual([]);
  });

  it('of skills and of tool_search stay', () => {
    const { view } = viewOf({ threshold: 1000, keepTurns: 0 });
    const messages = talk(
      { name: 'skills_use', bytes: 900 },
      { name: 'tool_search', bytes: 900 },
      { bytes: 900 },
    );
    expect(stubs(view.project(messages))).toEqual(['c2']);
  });

  it('keep their images', () => {
    const { view } = viewOf({ threshold: 10, keepTurns: 0 });
    const [first, answer, result] = talk({ bytes: 100 });
    const image = { type: 'image', media_type: 'image/png', data: 'aGk=' } as const;
    if (!first || !answer || result?.role !== 'tool_result') throw new Error('not as made');
    const shown = view.project([first, answer, { ...result, content: [...result.content, image] }]);
    expect(shown[2]?.content).toEqual([expect.objectContaining({ type: 'text' }), image]);
  });

  it('that were omitted stay omitted when the context is replaced', () => {
    const { view } = viewOf({ threshold: 1000 });
    const messages = talk({ bytes: 600 }, { bytes: 600 }, { bytes: 10 }, { bytes: 10 });
    expect(stubs(view.project(messages))).toEqual(['c0', 'c1']);
    view.reset();
    expect(stubs(view.project(messages.slice(3)))).toEqual(['c1']);
  });
});

describe('stale reads', () => {
  const big = 20_000;

  it('leave once enough of them is stale', () => {
    const { view, shrinks } = viewOf({ stale: true });
    const messages = talk(
      { name: READ, path: 'a', bytes: big },
      { name: READ, path: 'b', bytes: big },
      { name: EDIT, path: 'a', bytes: 10 },
    );
    expect(stubs(view.project(messages.slice(0, 5)))).toEqual([]);
    const shown = view.project(messages);
    expect(stubs(shown)).toEqual(['c0']);
    expect(JSON.stringify(shown[2])).toContain('changed after this read');
    expect(shrinks).toEqual([1]);
  });

  it('stay while they are small, if the change failed, and if the option is off', () => {
    const small = talk({ name: READ, bytes: 10 }, { name: EDIT, bytes: 10 });
    const failed = talk({ name: READ, bytes: big }, { name: EDIT, bytes: 10, outcome: 'error' });
    expect(stubs(viewOf({ stale: true }).view.project(small))).toEqual([]);
    expect(stubs(viewOf({ stale: true }).view.project(failed))).toEqual([]);
    const messages = talk({ name: READ, bytes: big }, { name: EDIT, bytes: 10 });
    expect(viewOf({}).view.project(messages)).toBe(messages);
  });

  it('a read after the change is fresh', () => {
    const messages = talk(
      { name: READ, bytes: big },
      { name: EDIT, bytes: 10 },
      { name: READ, bytes: big },
    );
    expect(stubs(viewOf({ stale: true }).view.project(messages))).toEqual(['c0']);
  });
});

// Requirement: identical-read-stub
it('a run sends the view, keeps the whole in its log, and tells tools to forget what left', async () => {
  let forgotten = 0;
  const call = (id: string) => answers('', [{ id, name: 'rye_echo' }]);
  const { requests, events } = await play({
    plan: {
      behavior: { compact_strategy: 'tail', compact_threshold: 1000, compact_keep_turns: 1 },
      settings: planOf().settings,
    },
    tools: { rye_echo: toolOf('rye/echo', { run: async () => textOutput('y'.repeat(700)) }) },
    turns: [call('a'), call('b'), call('c'), answers('Done.')],
    ports: { forgetReads: () => void (forgotten += 1) },
  });
  expect(requests.map(({ messages }) => stubs(messages))).toEqual([[], [], ['a'], ['a', 'b']]);
  expect(forgotten).toBe(2);
  expect(JSON.stringify(events)).not.toContain('were omitted');
});

it('a result that went to an artifact is forgotten, so that a second read is a read', async () => {
  let forgotten = 0;
  await play({
    tools: { rye_echo: toolOf('rye/echo', { run: async () => textOutput('y'.repeat(40_000)) }) },
    turns: [answers('', [{ id: 'a', name: 'rye_echo' }]), answers('Done.')],
    ports: { forgetReads: () => void (forgotten += 1) },
  });
  expect(forgotten).toBe(1);
});
