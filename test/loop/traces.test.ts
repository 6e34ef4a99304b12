import { describe, expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import { runLoop } from '../../src/kernel/loop/loop.ts';
import { errorOutput, textOutput } from '../../src/kernel/tools/tool.ts';
import { ECHO, echo, SCENARIOS } from './scenarios.ts';
import {
  answers,
  hangs,
  planOf,
  play,
  portsOf,
  resultText,
  type Script,
  toolOf,
  trace,
} from './scripted.ts';

describe('event traces', () => {
  it.each(SCENARIOS)('$name', async ({ script, trace: expected, kind }) => {
    const { outcome, events } = await play(script);
    expect(trace(events)).toEqual(expected);
    expect(outcome.kind).toBe(kind);
  });

  // Requirement: cancelled-turn-usage
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
      'inject interrupted',
      'cost 1',
    ]);
    expect(outcome).toMatchObject({ kind: 'cancelled', last_text: 'Thinking about' });
    expect(outcome.cost.output_tokens).toBeGreaterThan(0);
  });

  // Requirement: turn-closed-with-usage, running-totals
  it('ends each turn with its cost event, after which the caller checkpoints the log', async () => {
    const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
    const script: Script = { tools: ECHO, turns: [answers('', [echo('a')]), answers('Done.')] };
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

  // Requirement: invalid-arguments, call-id-and-blocks, refusal-reason
  it('states in the result why a call did not run', async () => {
    const { events } = await play({
      plan: { capabilities: ['rye.execute.tool.rye.echo', 'rye.execute.tool.rye.fail'] },
      tools: {
        ...ECHO,
        rye_bash: toolOf('rye/bash'),
        rye_fail: toolOf('rye/fail', { run: () => Promise.resolve(errorOutput('no such file')) }),
        rye_empty: toolOf('rye/echo', { run: () => Promise.resolve(textOutput('')) }),
      },
      turns: [
        answers('', [
          { id: 'a', name: 'rye_bash' },
          { id: 'b', name: 'nope' },
          { id: 'c', name: 'rye_echo', malformed: '{' },
          { id: 'd', name: 'rye_fail' },
          { id: 'e', name: 'rye_empty' },
        ]),
        answers('Done.'),
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
