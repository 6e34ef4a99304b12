import { describe, expect, it } from 'vitest';
import type { LogEvent } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { composeHandlers } from '../../src/kernel/hooks/handlers.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, play, resultText, type Script, toolOf, trace } from './scripted.ts';

const echo = (id: string, input: JsonObject = {}) => ({ id, name: 'rye_echo', input });
const ECHO = { rye_echo: toolOf('rye/echo') };

function outcomes(events: readonly LogEvent[]): string[] {
  return trace(events).filter((line) => line.startsWith('settled'));
}

/** The counts that the gates were told, call by call. */
function counting(script: Script): { script: Script; counts: unknown[] } {
  const counts: unknown[] = [];
  const gate = (context: JsonObject) => {
    counts.push(context['run_tool_counts']);
    return {};
  };
  return { script: { ...script, gate }, counts };
}

describe('counts', () => {
  // Requirement: call-facts-before-run, counts-are-snapshots, batch-counts
  it('hooks see the counts before the batch', async () => {
    const { script, counts } = counting({
      tools: ECHO,
      turns: [answers('', [echo('a'), echo('b')]), answers('', [echo('c')]), answers('Done.')],
    });
    await play(script);
    expect(counts).toEqual([{}, {}, { 'rye/echo': 2 }]);
    expect(Object.isFrozen(counts[0])).toBe(true);
  });

  // Requirement: refusal-text, refusals-not-counted
  it('refused calls are not counted', async () => {
    const counts: unknown[] = [];
    const { events } = await play({
      tools: ECHO,
      turns: [answers('', [echo('a')]), answers('', [echo('b')]), answers('Done.')],
      gate: (context) => {
        counts.push(context['run_tool_counts']);
        return context['call_id'] === 'a' ? { decision: { control: 'fail', error: 'no' } } : {};
      },
    });
    expect(counts).toEqual([{}, {}]);
    expect(resultText(events, 'a')).toBe('Blocked: no');
  });

  // Requirement: bad-calls-use-budget
  it('counts include unknown and invalid calls', async () => {
    const { script, counts } = counting({
      tools: { rye_echo: toolOf('rye/echo', { schema: { type: 'object', required: ['x'] } }) },
      turns: [
        answers('', [{ id: 'u', name: 'nope' }, echo('i')]),
        answers('', [{ ...echo('m'), malformed: '{"x":' }]),
        answers('', [echo('b', { x: 1 })]),
        answers('Done.'),
      ],
    });
    await play(script);
    expect(counts).toEqual([{}, {}, { nope: 1, 'rye/echo': 2 }]);
  });

  it('a budget bounds a model that repeats a call that cannot run', async () => {
    const { events } = await play({
      plan: { behavior: { tool_budgets: { rye_echo: 1, nope: 1 }, loop_repeats: 0 } },
      tools: { rye_echo: toolOf('rye/echo', { schema: { type: 'object', required: ['x'] } }) },
      turns: [
        answers('', [{ id: 'a', name: 'nope' }, echo('b')]),
        answers('', [{ id: 'c', name: 'nope' }, echo('d', { x: 1 })]),
        answers('Done.'),
      ],
    });
    expect(outcomes(events)).toEqual([
      'settled a unknown',
      'settled b invalid',
      'settled c blocked',
      'settled d blocked',
    ]);
  });

  // Requirement: substitute-counted, refusals-not-counted
  it('a substitute is counted like a call that runs, so that it uses up a budget', async () => {
    const { events } = await play({
      plan: { behavior: { tool_budgets: { 'rye/echo': 1 } } },
      tools: ECHO,
      turns: [answers('', [echo('a')]), answers('', [echo('b')]), answers('Done.')],
      ports: { handlers: () => composeHandlers({ tool_gate: () => ({ result: 'in its place' }) }) },
    });
    expect(resultText(events, 'a')).toBe('in its place');
    expect(resultText(events, 'b')).toContain('Blocked: ');
  });

  // Requirement: counts-are-snapshots
  it('counts start again with each run', async () => {
    let more = 1;
    const { script, counts } = counting({
      tools: ECHO,
      turns: [
        answers('', [echo('a')]),
        answers('Done.'),
        answers('', [echo('b')]),
        answers('Done.'),
      ],
      ports: {
        inbox: {
          take: () => Promise.resolve([]),
          next: () => {
            more -= 1;
            const content = 'More.';
            return Promise.resolve(
              more < 0
                ? []
                : [
                    {
                      event_type: 'custom_message',
                      payload: { custom_type: 'x', content, display: true },
                    },
                  ],
            );
          },
        },
      },
    });
    await play(script);
    expect(counts).toEqual([{}, {}]);
  });
});

describe('tool budgets', () => {
  // Requirement: tool-call-cap, tool-call-cap-action, tool-call-cap-event
  it('exactly so many calls are let through', async () => {
    const { events } = await play({
      plan: { behavior: { tool_budgets: { 'rye/echo': 2 } } },
      tools: ECHO,
      turns: [
        answers('', [echo('a')]),
        answers('', [echo('b')]),
        answers('', [echo('c')]),
        answers('Done.'),
      ],
    });
    expect(outcomes(events)).toEqual(['settled a ok', 'settled b ok', 'settled c blocked']);
    expect(resultText(events, 'c')).toBe(
      'Blocked: rye_echo has had its 2 calls of this run. Continue with what you know.',
    );
    expect(events.find(({ event_type }) => event_type === 'tool_budget_exceeded')?.payload).toEqual(
      {
        call_id: 'c',
        tool: 'rye/echo',
        count: 2,
        max: 2,
        mode: 'block',
      },
    );
  });

  // Requirement: batch-within-budget
  it('a batch cannot exceed a budget', async () => {
    const { events } = await play({
      plan: { behavior: { tool_budgets: { rye_echo: { max: '2', message: 'Enough.' } } } },
      tools: ECHO,
      turns: [
        answers(
          '',
          ['a', 'b', 'c', 'd'].map((id) => echo(id)),
        ),
        answers('Done.'),
      ],
    });
    expect(outcomes(events).toSorted()).toEqual([
      'settled a ok',
      'settled b ok',
      'settled c blocked',
      'settled d blocked',
    ]);
    expect(resultText(events, 'd')).toBe('Blocked: Enough.');
  });

  // Requirement: tool-call-cap-action
  it('steer tells the model once and refuses after the grace', async () => {
    const { events, requests } = await play({
      plan: {
        behavior: { tool_budgets: { 'rye/echo': { max: 1, on_exceed: 'steer', grace: 2 } } },
      },
      tools: ECHO,
      turns: [...['a', 'b', 'c', 'd'].map((id) => answers('', [echo(id)])), answers('Done.')],
    });
    expect(trace(events).filter((line) => /settled|inject/.test(line))).toEqual([
      'settled a ok',
      'settled b ok',
      'inject tool_budget',
      'settled c ok',
      'settled d blocked',
    ]);
    expect(JSON.stringify(requests[2]?.messages.at(-1))).toContain('has had its one call');
  });

  // Requirement: policy-order, budget-before-replay
  it('budgets refuse before an earlier result is replayed', async () => {
    const { events } = await play({
      plan: { behavior: { tool_budgets: { 'rye/echo': 1 }, dedup_tools: ['rye/echo'] } },
      tools: ECHO,
      turns: [answers('', [echo('a')]), answers('', [echo('b')]), answers('Done.')],
    });
    expect(outcomes(events)).toEqual(['settled a ok', 'settled b blocked']);
  });
});

describe('earlier results', () => {
  const dedup = { behavior: { dedup_tools: 'rye_echo rye/write' } };
  let runs = 0;
  const numbered = toolOf('rye/echo', {
    run: () => {
      runs += 1;
      return Promise.resolve(textOutput(`run ${runs}`));
    },
  });

  // Requirement: identical-call-replayed
  it('a listed tool that is called alike again gives the earlier result', async () => {
    runs = 0;
    const transformed: string[] = [];
    const { events, hooks } = await play({
      plan: dedup,
      tools: { rye_echo: numbered },
      turns: [
        answers('', [echo('a', { q: 1 })]),
        answers('', [echo('b', { q: 1 })]),
        answers('', [echo('c', { q: 2 })]),
        answers('', [echo('d', { q: 1 })]),
        answers('Done.'),
      ],
      ports: {
        handlers: () =>
          composeHandlers({
            tool_transform: ({ call_id }) => {
              transformed.push(call_id);
            },
          }),
      },
    });
    expect(['a', 'b', 'c', 'd'].map((id) => resultText(events, id))).toEqual([
      'run 1',
      'run 1',
      'run 2',
      'run 3',
    ]);
    expect(outcomes(events)[1]).toBe('settled b substituted');
    expect(transformed).toEqual(['a', 'b', 'c', 'd']);
    expect(hooks.filter(({ event }) => event === 'tool_after')).toHaveLength(4);
  });

  it('is stale as soon as something may have changed, or has left the view', async () => {
    runs = 0;
    const writer = toolOf('rye/write', { traits: { reads_only: false } });
    const { events } = await play({
      plan: dedup,
      tools: { rye_echo: numbered, rye_write: writer },
      turns: [
        answers('', [echo('a')]),
        answers('', [{ id: 'w', name: 'rye_write' }]),
        answers('', [echo('b')]),
        answers('', [{ id: 'x', name: 'rye_write' }]),
        answers('Done.'),
      ],
    });
    expect(resultText(events, 'b')).toBe('run 2');
    expect(outcomes(events)).not.toContain('settled x substituted');
  });
});

// Requirement: turn-output-budget, turn-output-event
it('too much output in one turn asks for a summary, once, and cuts nothing', async () => {
  const tools = {
    rye_echo: toolOf('rye/echo', { run: () => Promise.resolve(textOutput('x'.repeat(60))) }),
  };
  const { events, requests } = await play({
    plan: { behavior: { tool_output_budget: 100 } },
    tools,
    turns: [answers('', [echo('a')]), answers('', [echo('b'), echo('c')]), answers('Done.')],
  });
  expect(resultText(events, 'b')).toHaveLength(60);
  expect(events.filter(({ event_type }) => event_type === 'output_budget_exceeded')).toMatchObject([
    { payload: { turn: 2, bytes: 120, budget: 100 } },
  ]);
  expect(JSON.stringify(requests[1]?.messages)).not.toContain('budget exceeded');
  expect(JSON.stringify(requests[2]?.messages.at(-1))).toContain(
    '[Tool output budget exceeded: 120 bytes were returned in this turn, the cap is 100.',
  );
});

it.each([
  [119, 1],
  [120, 0],
  [121, 0],
])('output of 120 bytes in a turn exceeds a budget of %i: %i', async (budget, count) => {
  const tools = {
    rye_echo: toolOf('rye/echo', { run: () => Promise.resolve(textOutput('x'.repeat(60))) }),
  };
  const { events } = await play({
    plan: { behavior: { tool_output_budget: budget } },
    tools,
    turns: [answers('', [echo('a'), echo('b')]), answers('Done.')],
  });
  const exceeded = events.filter(({ event_type }) => event_type === 'output_budget_exceeded');
  expect(exceeded).toHaveLength(count);
});
