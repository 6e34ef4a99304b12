import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { AssistantMessage, ToolCallBlock } from '../../src/kernel/core/message.ts';
import type { AwaitedCall } from '../../src/kernel/log/open-calls.ts';
import type { ApprovalPort } from '../../src/kernel/loop/ports.ts';
import { type Tool, type ToolContext, textOutput } from '../../src/kernel/tools/tool.ts';
import {
  answers,
  MODEL,
  type Played,
  play,
  resultText,
  type Script,
  toolOf,
  trace,
} from './scripted.ts';

const NOTE: EventDraft = { event_type: 'note', payload: { text: 'after' } };

function pendingAnswer(...calls: readonly ToolCallBlock[]): AssistantMessage {
  const usage = { input_tokens: 1, output_tokens: 1, cache_read_tokens: 0, cache_write_tokens: 0 };
  const { provider, id: model } = MODEL;
  return { role: 'assistant', content: calls, provider, model, stop_reason: 'tool_calls', usage };
}

function wait(call_id: string): ToolCallBlock {
  return { type: 'tool_call', call_id, name: 'rye_wait', input: { for: 'kid' } };
}

/** A tool that notes how it is called, and what it was to wait for. */
function waits(seen: unknown[], run?: Tool['execute']): Tool {
  return toolOf('rye/wait', {
    traits: { reads_only: false },
    run: async (input: JsonObject, context: ToolContext) => {
      seen.push({ input, awaited: context.awaited });
      return (await run?.(input, context)) ?? textOutput('the kid is done');
    },
  });
}

const AWAITED: AwaitedCall = {
  tool: 'rye/wait',
  input: { for: 'kid' },
  threads: ['kid-1'],
  owned: true,
};

/** Continues a run whose call `a` waits for a thread, and whose call `b` never started. */
async function continued(
  script: Omit<Partial<Script>, 'ports'> & {
    readonly awaited?: readonly string[];
    readonly ports?: Script['ports'] | undefined;
  } = {},
) {
  const { awaited = ['a'], ports, ...rest } = script;
  const seen: unknown[] = [];
  const played: Played = await play({
    tools: { rye_wait: waits(seen) },
    turns: [answers('Done.')],
    ...rest,
    ports: {
      pending: {
        answer: pendingAnswer(wait('a'), wait('b')),
        after: [NOTE],
        awaited: new Map(awaited.map((id) => [id, AWAITED])),
      },
      ...ports,
    },
  });
  return { ...played, seen };
}

it('a call that waited in an earlier run ends in this one: no gate is asked and no intent is written again', async () => {
  const { events, seen, outcome } = await continued({
    gate: () => ({ decision: { control: 'fail', error: 'frozen' } }),
  });
  expect(seen).toEqual([{ input: { for: 'kid' }, awaited: ['kid-1'] }]);
  expect(resultText(events, 'a')).toBe('the kid is done');
  // one that had not started is a new call
  expect(resultText(events, 'b')).toBe('Blocked: frozen');
  const lines = trace(events);
  expect(lines.filter((line) => line.startsWith('start'))).toEqual([]);
  expect(lines.indexOf('note')).toBeGreaterThan(lines.indexOf('result b blocked'));
  expect(outcome.kind).toBe('completed');
});

it.each<[string, Script['ports'], RegExp]>([
  [
    'is another tool now',
    {
      tools: {
        resolve: (_name, input) => {
          const need = { verb: 'execute', item_type: 'tool', item_id: 'rye/other' } as const;
          const tool = toolOf('rye/other');
          return Promise.resolve({ kind: 'resolved', call: { tool, input, need } });
        },
      },
    },
    /not offered any more/,
  ],
  [
    'is unknown now',
    { tools: { resolve: () => Promise.resolve({ kind: 'unknown', near: [] }) } },
    /not offered any more/,
  ],
  [
    'can not be loaded',
    { tools: { resolve: () => Promise.reject(new Error('no disk')) } },
    /no disk/,
  ],
])('a call that waited in an earlier run is given up if its tool %s', async (_, ports, why) => {
  const { events, seen } = await continued({ awaited: ['a', 'b'], ports });
  expect(seen).toEqual([]);
  expect(resultText(events, 'a')).toMatch(why);
  expect(trace(events)).toContain('settled a aborted');
});

const later = async (): Promise<never> => await new Promise(() => undefined);
/** Asks no one, and notes what is withdrawn. */
function desk(withdrawn: string[]): ApprovalPort {
  return {
    review: async (calls) => calls.map(() => ({ kind: 'allowed' })),
    publish: async () => undefined,
    waitsInline: async () => true,
    wait: later,
    confirm: later,
    withdraw: async (ids) => {
      withdrawn.push(...ids);
      return [{ event_type: 'note', payload: { text: `withdrawn ${ids.join()}` } }];
    },
    pending: () => 0,
  };
}

const parks: Tool['execute'] = async (_input, { callId }) => ({
  ...textOutput(''),
  waiting: { threads: [`kid-of-${callId}`], approvals: ['apr-9'], owned: true },
});

it('calls that wait for people suspend the run once, and those after them have their results', async () => {
  const seen: unknown[] = [];
  const withdrawn: string[] = [];
  const calls = ['a', 'b'].map((id) => ({ id, name: 'rye_wait', input: { for: 'kid' } }));
  const { events, outcome } = await play({
    tools: { rye_wait: waits(seen, parks), rye_look: toolOf('rye/look') },
    turns: [answers('', [...calls, { id: 'c', name: 'rye_look' }])],
    ports: { approvals: desk(withdrawn) },
  });
  expect(outcome).toMatchObject({
    kind: 'suspended',
    approvals: ['apr-9'],
    threads: ['kid-of-a', 'kid-of-b'],
  });
  expect(withdrawn).toEqual([]);
  const lines = trace(events);
  expect(lines).toContain('result c ok');
  expect(lines.filter((line) => line.startsWith('settled'))).toEqual(['settled c ok']);
  // what they wait for is in the conversation, for the run that continues them
  const open = events.flatMap(({ event_type: type, payload }) =>
    type === 'message' && payload.message.role === 'tool_result' && payload.message.data
      ? [payload.message.data]
      : [],
  );
  expect(open).toMatchObject([
    { threads: ['kid-of-a'], owned: true },
    { threads: ['kid-of-b'], owned: true },
  ]);
});

it.each(['abort', 'suspend', 'fail'] as const)(
  'a hook that ends the thread (%s) leaves nothing to people',
  async (control) => {
    const withdrawn: string[] = [];
    const tools = {
      rye_wait: waits([], parks),
      rye_break: toolOf('rye/break', { run: () => Promise.reject(new Error('broken')) }),
    };
    const { outcome, events } = await play({
      tools,
      turns: [
        answers('', [
          { id: 'a', name: 'rye_wait', input: {} },
          { id: 'b', name: 'rye_break' },
        ]),
      ],
      control: (event) => (event === 'error' ? { control } : undefined),
      ports: { approvals: desk(withdrawn) },
    });
    expect(withdrawn).toEqual(['apr-9']);
    expect(events.map(({ payload }) => (payload as { text?: string }).text)).toContain(
      'withdrawn apr-9',
    );
    expect(outcome.kind).toBe(control === 'suspend' ? 'suspended' : 'error');
    expect(outcome).not.toHaveProperty('approvals');
  },
);
