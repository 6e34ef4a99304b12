import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/core/events.ts';
import { runLoop } from '../../src/loop/loop.ts';
import { errorOutput, textOutput } from '../../src/tools/tool.ts';
import {
  fails,
  hangs,
  planOf,
  play,
  portsOf,
  resultText,
  type Script,
  says,
  toolOf,
  trace,
} from './scripted.ts';

const ECHO = { rye_echo: toolOf('rye/echo') };
const echo = (id: string) => ({ id, name: 'rye_echo' });

/** Whole event traces: the order of a turn is the contract. */
const SCENARIOS: readonly { name: string; script: Script; kind: string; trace: string[] }[] = [
  {
    name: 'plain',
    script: { turns: [says('Hi.')] },
    kind: 'completed',
    trace: ['turn 1', 'delta Hi.', 'assistant end', 'cost 1'],
  },
  {
    name: 'tools',
    script: { tools: ECHO, turns: [says('Look.', [echo('a')]), says('Done.')] },
    kind: 'completed',
    trace: [
      'turn 1',
      'delta Look.',
      'assistant tool_calls a',
      'start a rye/echo',
      'settled a ok',
      'result a ok',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'parallel batch',
    script: {
      tools: ECHO,
      turns: [says('', [echo('a'), echo('b'), echo('c')]), says('Done.')],
    },
    kind: 'completed',
    trace: [
      'turn 1',
      'assistant tool_calls a b c',
      'start a rye/echo',
      'start b rye/echo',
      'start c rye/echo',
      'settled a ok',
      'result a ok',
      'settled b ok',
      'result b ok',
      'settled c ok',
      'result c ok',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'blocked',
    script: {
      plan: { capabilities: ['rye.execute.tool.rye.other'] },
      tools: ECHO,
      turns: [says('', [echo('a')]), says('Done.')],
    },
    kind: 'completed',
    trace: [
      'turn 1',
      'assistant tool_calls a',
      'settled a blocked',
      'result a blocked',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'unknown',
    script: { tools: ECHO, turns: [says('', [{ id: 'a', name: 'rye_ecko' }]), says('Done.')] },
    kind: 'completed',
    trace: [
      'turn 1',
      'assistant tool_calls a',
      'settled a unknown',
      'result a unknown',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'invalid',
    script: {
      tools: { rye_echo: toolOf('rye/echo', { schema: { type: 'object', required: ['x'] } }) },
      turns: [says('', [echo('a'), { ...echo('b'), malformed: '{"x": ' }]), says('Done.')],
    },
    kind: 'completed',
    trace: [
      'turn 1',
      'assistant tool_calls a b',
      'settled a invalid',
      'result a invalid',
      'settled b invalid',
      'result b invalid',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'thrown',
    script: {
      tools: {
        rye_echo: toolOf('rye/echo', {
          run: () => {
            throw new Error('boom');
          },
        }),
      },
      turns: [says('', [echo('a')]), says('Done.')],
    },
    kind: 'completed',
    trace: [
      'turn 1',
      'assistant tool_calls a',
      'start a rye/echo',
      'settled a error',
      'result a error',
      'cost 1',
      'turn 2',
      'delta Done.',
      'assistant end',
      'cost 2',
    ],
  },
  {
    name: 'retried',
    script: {
      turns: [
        fails(),
        fails({ phase: 'stream', message: 'reset' }, [
          { type: 'start', model: 'model-1' },
          { type: 'text_delta', text: 'Hal' },
        ]),
        says('Done.'),
      ],
    },
    kind: 'completed',
    trace: [
      'turn 1',
      'classified transient',
      'retry 1 after 1000',
      'delta Hal',
      'assistant aborted',
      'omit e5',
      'classified transient',
      'retry 2 after 1000',
      'delta Done.',
      'assistant end',
      'cost 1',
    ],
  },
];

describe('event traces', () => {
  it.each(SCENARIOS)('$name', async ({ script, trace: expected, kind }) => {
    const { outcome, events } = await play(script);
    expect(trace(events)).toEqual(expected);
    expect(outcome.kind).toBe(kind);
  });

  it('aborted', async () => {
    const cancel = new AbortController();
    const { outcome, events } = await play({
      turns: [hangs('Thinking about')],
      signal: cancel.signal,
      onEvent: ({ event_type }) => {
        if (event_type === 'token_delta') cancel.abort();
      },
    });
    expect(trace(events)).toEqual([
      'turn 1',
      'delta Thinking about',
      'assistant aborted',
      'omit e3',
      'cost 1',
    ]);
    expect(outcome).toMatchObject({ kind: 'cancelled' });
    expect(outcome.cost.output_tokens).toBeGreaterThan(0);
  });

  it('ends each turn with its cost event, after which the caller checkpoints the log', async () => {
    const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
    const script: Script = { tools: ECHO, turns: [says('', [echo('a')]), says('Done.')] };
    const loop = runLoop(planOf(), portsOf(script, facts), new AbortController().signal);
    const costs: EventDraft[] = [];
    let step = await loop.next();
    while (step.done !== true) {
      costs.push(...step.value.filter(({ event_type }) => event_type === 'cost'));
      step = await loop.next([]);
    }
    expect(costs).toMatchObject([
      { payload: { turn: 1, usage: { input_tokens: 100 } } },
      { payload: { turn: 2, total: { input_tokens: 200, turns: 2 } } },
    ]);
  });

  it('says in the result why a call did not run', async () => {
    const { events } = await play({
      plan: { capabilities: ['rye.execute.tool.rye.echo', 'rye.execute.tool.rye.fail'] },
      tools: {
        ...ECHO,
        rye_bash: toolOf('rye/bash'),
        rye_fail: toolOf('rye/fail', { run: () => Promise.resolve(errorOutput('no such file')) }),
        rye_empty: toolOf('rye/echo', { run: () => Promise.resolve(textOutput('')) }),
      },
      turns: [
        says('', [
          { id: 'a', name: 'rye_bash' },
          { id: 'b', name: 'nope' },
          { id: 'c', name: 'rye_echo', malformed: '{' },
          { id: 'd', name: 'rye_fail' },
          { id: 'e', name: 'rye_empty' },
        ]),
        says('Done.'),
      ],
    });
    expect(resultText(events, 'a')).toBe(
      'Blocked: this thread does not hold the capability rye.execute.tool.rye.bash',
    );
    expect(resultText(events, 'b')).toMatch(/^Unknown tool: nope\. Did you mean rye_echo or /);
    expect(resultText(events, 'c')).toMatch(/^Validation error: the arguments of rye_echo/);
    expect(resultText(events, 'd')).toBe('no such file');
    expect(resultText(events, 'e')).toBe('(no output)');
  });
});
