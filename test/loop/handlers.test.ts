import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Message, userText } from '../../src/kernel/core/message.ts';
import {
  composeHandlers,
  type HandlerMap,
  type ResultContext,
} from '../../src/kernel/hooks/handlers.ts';
import { errorOutput, type Tool, textOutput } from '../../src/kernel/tools/tool.ts';
import { runs } from '../helpers/runs.ts';
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

const echo = (id: string) => ({ id, name: 'rye_echo', input: { x: '1' } });
type GateDecision = { block?: string; result?: string } | undefined | 'throw';

const TURNS = [answers('', [echo('a')]), answers('Done.')];

async function playWith(
  handlers: HandlerMap | readonly HandlerMap[],
  script: Partial<Script> = {},
) {
  const maps = Array.isArray(handlers) ? (handlers as HandlerMap[]) : [handlers as HandlerMap];
  return await play({
    tools: { rye_echo: toolOf('rye/echo') },
    turns: TURNS,
    ...script,
    ports: { ...script.ports, handlers: () => composeHandlers(...maps) },
  });
}

function notes({ events }: Played): string[] {
  return events.flatMap((event) => (event.event_type === 'note' ? [event.payload.text] : []));
}

function outcomeOf({ events }: Played, id: string): string | undefined {
  return trace(events).find((line) => line.startsWith(`settled ${id}`));
}

describe('gates', () => {
  it('refuse a call, or replace its tool', async () => {
    const refused = await playWith({ tool_gate: () => ({ block: 'not today' }) });
    expect(resultText(refused.events, 'a')).toBe('Blocked: not today');
    const replaced = await playWith({ tool_gate: () => ({ result: 'from the cache' }) });
    expect(resultText(replaced.events, 'a')).toBe('from the cache');
    expect(outcomeOf(replaced, 'a')).toBe('settled a substituted');
  });

  // Requirement: refusal-beats-substitute, last-writer-wins
  it('a refusal is final, even if another handler decides differently', async () => {
    const decision = fc.oneof<fc.Arbitrary<GateDecision>[]>(
      fc.constant(undefined),
      fc.constant({}),
      fc.constant({ result: 'allowed' }),
      fc.constant({ block: 'refused' }),
      fc.constant({ block: 'refused', result: 'allowed' }),
      fc.constant('throw'),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(decision, { minLength: 1, maxLength: 5 }), async (decisions) => {
        const played = await playWith(
          decisions.map((one) => ({
            tool_gate: () => {
              if (one === 'throw') throw new Error('broken');
              return one;
            },
          })),
        );
        const refuses = decisions.some((one) => one === 'throw' || one?.block !== undefined);
        expect(outcomeOf(played, 'a') === 'settled a blocked').toBe(refuses);
      }),
      runs(60),
    );
  });

  it('cannot let through what a hook or a policy refuses', async () => {
    const asked: string[] = [];
    const tool_gate = ({ call_id }: { call_id: string }) => {
      asked.push(call_id);
      return { result: 'allowed' };
    };
    const byHook = await playWith(
      { tool_gate },
      { gate: () => ({ decision: { control: 'fail', error: 'no' } }) },
    );
    const byPolicy = await playWith({ tool_gate }, { ports: { gates: [() => 'never'] } });
    expect([outcomeOf(byHook, 'a'), outcomeOf(byPolicy, 'a')]).toEqual([
      'settled a blocked',
      'settled a blocked',
    ]);
    expect(asked).toEqual([]);
  });

  it.each<[string, unknown]>([
    ['a text', 'no'],
    ['a member that does not exist', { blok: 'no' }],
    ['a result that is none', { result: 7 }],
    ['a result with an unknown block', { result: [{ type: 'thinking', text: 'hm' }] }],
    ['a text block without its text', { result: [{ type: 'text' }] }],
    ['an image without its data', { result: [{ type: 'image', media_type: 'image/png' }] }],
    ['an image without its type', { result: [{ type: 'image', data: 'AAAA' }] }],
    [
      'one good and one bad block',
      {
        result: [
          { type: 'text', text: 'a' },
          { type: 'image', data: 'AAAA' },
        ],
      },
    ],
  ])('refuse when they return %s', async (_, decision) => {
    const played = await playWith({ tool_gate: () => decision as object });
    expect(outcomeOf(played, 'a')).toBe('settled a blocked');
    expect(notes(played)[0]).toMatch(/^a handler of tool_gate failed: /);
  });

  it('that take too long refuse', async () => {
    const played = await playWith({ tool_gate: () => new Promise<undefined>(() => {}) });
    expect(resultText(played.events, 'a')).toContain('took longer than 30 s');
  });

  it('get a copy, so that changes to it have no effect', async () => {
    const inputs: unknown[] = [];
    await playWith(
      {
        tool_gate: ({ input }) => {
          Object.assign(input, { x: 'changed' });
        },
      },
      {
        tools: {
          rye_echo: toolOf('rye/echo', {
            run: (input) => {
              inputs.push(input);
              return Promise.resolve(textOutput('done'));
            },
          }),
        },
      },
    );
    expect(inputs).toEqual([{ x: '1' }]);
  });
});

describe('handlers of results', () => {
  // Requirement: gates-first
  it('gates judge a call of an unknown tool before anything answers for it', async () => {
    const turns = [answers('', [{ id: 'a', name: 'nope', input: { x: 1 } }]), answers('Done.')];
    const asked: unknown[] = [];
    const tool_unknown = () => {
      asked.push('tool_unknown');
      return { result: 'answered' };
    };
    const tool_gate = ({ tool, name, input }: { tool: string; name: string; input: unknown }) => {
      asked.push([tool, name, input]);
      return { block: 'not here', result: 'in its place' };
    };
    const refused = await playWith([{ tool_gate }, { tool_unknown }], { turns });
    expect(resultText(refused.events, 'a')).toBe('Blocked: not here');
    expect(asked).toEqual([['nope', 'nope', { x: 1 }]]);
    const given = await playWith([{ tool_gate: () => ({ result: 'given' }) }, { tool_unknown }], {
      turns,
    });
    expect(resultText(given.events, 'a')).toBe('given');
    const byHook = await playWith(
      { tool_unknown },
      {
        turns,
        gate: () => ({ decision: { control: 'fail', error: 'a hook said no' } }),
      },
    );
    expect(resultText(byHook.events, 'a')).toBe('Blocked: a hook said no');
    expect(asked).toHaveLength(1);
    const open = await playWith([{ tool_gate: () => undefined }, { tool_unknown }], { turns });
    expect(resultText(open.events, 'a')).toBe('answered');
  });

  // Requirement: unknown-tool-substitute, unknown-tool-error, unknown-call-untransformed
  it('answer for an unknown tool', async () => {
    const asked: string[] = [];
    const turns = [answers('', [{ id: 'a', name: 'nope' }]), answers('Done.')];
    const observe = {
      tool_error: ({ error }: { error: { message: string } }) => {
        asked.push(error.message);
      },
      tool_transform: () => {
        asked.push('transform');
      },
    };
    const plain = await playWith([{ tool_unknown: () => undefined }, observe], { turns });
    expect(resultText(plain.events, 'a')).toMatch(/^Unknown tool: nope\./);
    expect(asked).toEqual([expect.stringMatching(/^Unknown tool: nope\./)]);
    const quiet = await playWith(
      [{ tool_unknown: () => ({ result: 'It moved.', suppress_error: true }) }, observe],
      { turns },
    );
    expect(resultText(quiet.events, 'a')).toBe('It moved.');
    expect(asked).toHaveLength(1);
    const answered = await playWith(
      { tool_error: () => ({ result: 'Use the other.' }) },
      { turns },
    );
    expect(resultText(answered.events, 'a')).toBe('Use the other.');
  });

  it.each<Tool['execute']>([
    () => Promise.reject(new Error('boom')),
    () => Promise.resolve(errorOutput('boom')),
    // Requirement: thrown-error-result
  ])('answer for a tool that failed', async (run) => {
    const seen: unknown[] = [];
    const played = await playWith(
      {
        tool_error: ({ tool, error }) => {
          seen.push([tool, error.message]);
          return { result: 'instead' };
        },
        tool_transform: ({ content }) => ({ result: `${JSON.stringify(content)}!` }),
      },
      { tools: { rye_echo: toolOf('rye/echo', { run }) } },
    );
    expect(seen).toEqual([['rye/echo', 'boom']]);
    expect(resultText(played.events, 'a')).toBe('[{"type":"text","text":"instead"}]!');
  });

  // Requirement: substitute-counted, result-transform
  it('transform what a tool or a substitute gave', async () => {
    const contexts: ResultContext[] = [];
    const tool_transform = (context: ResultContext) => {
      contexts.push(context);
      return { result: 'shorter', is_error: true };
    };
    const ran = await playWith({ tool_transform });
    const replaced = await playWith({ tool_transform, tool_gate: () => ({ result: 'ééé' }) });
    const refused = await playWith({ tool_transform, tool_gate: () => ({ block: 'no' }) });
    expect(contexts.map(({ outcome, output_bytes }) => [outcome, output_bytes])).toEqual([
      ['ok', 13],
      ['substituted', 6],
    ]);
    expect([ran, replaced].map((one) => outcomeOf(one, 'a'))).toEqual([
      'settled a error',
      'settled a error',
    ]);
    expect(resultText(ran.events, 'a')).toBe('shorter');
    expect(outcomeOf(refused, 'a')).toBe('settled a blocked');
  });

  // Requirement: last-writer-wins
  it('the last one to change a result wins', async () => {
    const played = await playWith([
      { tool_transform: () => ({ result: 'first' }) },
      { tool_transform: ({ content }) => ({ result: `${JSON.stringify(content)} second` }) },
      { tool_transform: () => undefined },
    ]);
    expect(resultText(played.events, 'a')).toBe('[{"type":"text","text":"first"}] second');
  });

  // Requirement: result-transform
  it('each know the size before any of them changed it', async () => {
    const sizes: number[] = [];
    const tool_transform = ({ output_bytes: bytes }: ResultContext) => {
      sizes.push(bytes);
      return { result: 'changed to something longer' };
    };
    await playWith({ tool_transform: [tool_transform, tool_transform] });
    expect(sizes).toEqual([13, 13]);
  });

  it('that fail change nothing', async () => {
    const played = await playWith({
      tool_transform: [
        () => {
          throw new Error('broken');
        },
        () => ({ result: 'by the second' }),
      ],
    });
    expect(resultText(played.events, 'a')).toBe('by the second');
    expect(notes(played)).toEqual(['a handler of tool_transform failed: broken']);
  });

  // Requirement: coercions-reported, call-facts-before-run
  it('see what was coerced, only where something was', async () => {
    const settled: unknown[] = [];
    const { events } = await playWith(
      {},
      {
        turns: [answers('', [echo('a')]), answers('', [echo('b')]), answers('Done.')],
        ports: {
          validate: (_schema, input) =>
            Promise.resolve({
              ok: true,
              input,
              coerced: settled.push(0) === 1 ? ['x: "1" → 1'] : [],
            }),
        },
      },
    );
    expect(
      events.flatMap((event) =>
        event.event_type === 'tool_settled' ? [event.payload.coerced] : [],
      ),
    ).toEqual([['x: "1" → 1'], undefined]);
  });
});

describe('handlers of requests', () => {
  // Requirement: messages-per-request
  it('change the messages of one request and nothing in the log', async () => {
    const turns: number[] = [];
    const played = await playWith({
      context_transform: ({ turn, messages }) => {
        turns.push(turn);
        return turn === 1 ? { messages: [userText('Something else.'), ...messages] } : undefined;
      },
    });
    expect(turns).toEqual([1, 2]);
    expect(played.requests[0]?.messages).toEqual([userText('Something else.'), userText('Do it.')]);
    expect(played.requests[1]?.messages[0]).toEqual(userText('Do it.'));
    expect(JSON.stringify(played.events)).not.toContain('Something else.');
  });

  it('cannot part a call from its result', async () => {
    const { requests } = await playWith({
      context_transform: ({ messages }) => ({
        messages: messages.filter(({ role }) => role !== 'tool_result'),
      }),
    });
    expect(requests[1]?.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool_result',
    ]);
  });

  it('that return something else are skipped', async () => {
    const played = await playWith({
      context_transform: () => ({ messages: 'all' }) as unknown as { messages: Message[] },
    });
    expect(played.requests[0]?.messages).toEqual([userText('Do it.')]);
    expect(notes(played)[0]).toContain('messages is not a list');
  });

  it('change the system text of one request, one after the other', async () => {
    const played = await playWith([
      {
        system_transform: ({ turn, system }) =>
          turn === 2 ? { system: `${system} Two.` } : undefined,
      },
      {
        system_transform: ({ turn, system }) =>
          turn === 2 ? { system: `${system} End.` } : undefined,
      },
    ]);
    const [first, second] = played.requests.map(({ system }) => system);
    expect(second).toBe(`${first} Two. End.`);
    expect(JSON.stringify(played.events)).not.toContain('Two. End.');
  });

  it.each([
    ['fails', () => Promise.reject(new Error('no weather'))],
    ['returns something else', () => ({ system: 7 }) as unknown as { system: string }],
  ])('a system_transform that %s leaves the system text', async (_, system_transform) => {
    const played = await playWith({ system_transform });
    const [first, second] = played.requests.map(({ system }) => system);
    expect(first).toBe(second);
    expect(notes(played)).toHaveLength(2);
    expect(notes(played)[0]).toContain('a handler of system_transform failed: ');
  });

  it('a longer system text is paid for before it is sent', async () => {
    const { outcome, requests } = await playWith(
      { system_transform: () => ({ system: 'x'.repeat(30_000_000) }) },
      { plan: { model: { ...MODEL, context_window: 100_000_000 } } },
    );
    expect(outcome).toMatchObject({ kind: 'limit', name: 'spend' });
    expect(requests).toEqual([]);
  });

  it('what they add is paid for before it is sent', async () => {
    const { outcome } = await playWith(
      { context_transform: () => ({ messages: [userText('x'.repeat(30_000_000))] }) },
      { plan: { model: { ...MODEL, context_window: 100_000_000 } } },
    );
    expect(outcome).toMatchObject({ kind: 'limit', name: 'spend' });
  });
});
