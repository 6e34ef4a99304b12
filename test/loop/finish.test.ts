import { describe, expect, it } from 'vitest';
import { userText } from '../../src/kernel/core/message.ts';
import type { OutputDeclaration } from '../../src/kernel/core/plan.ts';
import { hiddenMessage } from '../../src/kernel/loop/conversation.ts';
import { errorOutput, textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, fails, planOf, play, resultText, toolOf, trace } from './scripted.ts';

const output = (name: string, required = true): OutputDeclaration => ({
  name,
  type: 'string',
  required,
  description: '',
});
/** A plan whose behavior asks a model that uses no tool once more. */
const NUDGED = { behavior: { nudge: true } };
const LS = { rye_ls: toolOf('rye/ls') };
const ls = (id: string) => ({ id, name: 'rye_ls' });
const returns = (id: string, input = {}, name = 'rye_directive_return') => ({ id, name, input });

describe('a directive with outputs', () => {
  const plan = { outputs: [output('greeting')] };

  it.each(['rye_directive_return', 'directive_return'])('finishes by %s', async (name) => {
    const { outcome, events, hooks } = await play({
      plan,
      turns: [answers('Hello.', [returns('r', { greeting: 'hi' }, name)])],
    });
    expect(outcome).toMatchObject({
      kind: 'completed',
      result: 'Hello.',
      outputs: { greeting: 'hi' },
    });
    expect(trace(events)).toEqual([
      'turn 1',
      'delta Hello.',
      'assistant tool_calls r',
      'settled r ok',
      'result r ok',
      'cost 1',
    ]);
    expect(hooks.map(({ event }) => event)).toEqual([
      'tool_after',
      'directive_return',
      'after_step',
    ]);
  });

  it('finishes by rye_execute of the return', async () => {
    const input = {
      item_type: 'tool',
      item_id: 'rye/agent/threads/directive_return',
      parameters: { greeting: 'hi' },
    };
    const { outcome } = await play({
      plan,
      turns: [answers('', [returns('r', input, 'rye_execute')])],
    });
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { greeting: 'hi' } });
  });

  it('is told what is missing and may return again', async () => {
    const { outcome, events } = await play({
      plan,
      turns: [answers('', [returns('r')]), answers('', [returns('s', { greeting: '' })])],
    });
    expect(resultText(events, 'r')).toBe('Validation error: greeting is required');
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { greeting: '' } });
  });

  it('is told when the arguments are no JSON object', async () => {
    const { outcome, events } = await play({
      plan,
      turns: [
        answers('', [{ ...returns('r'), malformed: '{"greeting' }]),
        answers('', [returns('s', { greeting: 'x' })]),
      ],
    });
    expect(trace(events)).toContain('result r invalid');
    expect(outcome.kind).toBe('completed');
  });

  // Requirement: skipped-call-result
  it('runs the calls before the return and skips those after it', async () => {
    const { outcome, events } = await play({
      plan,
      tools: LS,
      turns: [answers('', [ls('a'), returns('r', { greeting: 'x' }), ls('b')])],
    });
    expect(outcome.kind).toBe('completed');
    expect(trace(events).filter((line) => line.startsWith('result'))).toEqual([
      'result a ok',
      'result r ok',
      'result b skipped',
    ]);
    expect(trace(events)).not.toContain('start b rye/ls');
  });

  it('has to return again when a call before it failed', async () => {
    const { outcome, events } = await play({
      plan,
      tools: { rye_ls: toolOf('rye/ls', { run: () => Promise.resolve(errorOutput('gone')) }) },
      turns: [
        answers('', [ls('a'), returns('r', { greeting: 'x' })]),
        answers('', [returns('s', { greeting: 'y' })]),
      ],
    });
    expect(trace(events)).toContain('result r skipped');
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { greeting: 'y' } });
  });

  it('is not finished where the first of two calls beside the return failed', async () => {
    const { outcome, events } = await play({
      plan,
      tools: {
        rye_bad: toolOf('rye/bad', { run: () => Promise.resolve(errorOutput('gone')) }),
        rye_ls: toolOf('rye/ls', {
          run: async () => {
            // it ends after the other one
            for (let step = 0; step < 100; step += 1) await Promise.resolve();
            return textOutput('there');
          },
        }),
      },
      turns: [
        answers('', [{ id: 'a', name: 'rye_bad' }, ls('b'), returns('r', { greeting: 'x' })]),
        answers('', [returns('s', { greeting: 'y' })]),
      ],
    });
    expect(trace(events)).toEqual(
      expect.arrayContaining(['result a error', 'result b ok', 'result r skipped']),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { greeting: 'y' } });
  });

  it('takes the first of two returns', async () => {
    const { outcome, events } = await play({
      plan,
      turns: [answers('', [returns('r', { greeting: 'x' }), returns('s', { greeting: 'y' })])],
    });
    expect(outcome).toMatchObject({ outputs: { greeting: 'x' } });
    expect(trace(events)).toContain('result s skipped');
  });

  it('gets one nudge for ending in text, then fails', async () => {
    const { outcome, events } = await play({ plan, turns: [answers('Bye.'), answers('Bye!')] });
    expect(trace(events).filter((line) => line.startsWith('inject'))).toEqual([
      'inject nudge_outputs',
    ]);
    expect(outcome).toMatchObject({
      kind: 'error',
      error: { code: 'outputs_missing', details: { missing: ['greeting'] } },
    });
  });

  it.each([
    '<tool_call>\n{"name": "rye_ls", "arguments": {}}\n</tool_call>',
    'I look.\n```tool_call\n{"name": "rye_ls"}\n```',
    '<function=rye_ls>{}</function>',
  ])('that writes its calls as text fails with one hint: %j', async (text) => {
    const { outcome, events } = await play({
      plan,
      tools: LS,
      turns: [answers(text), answers(text), answers(text)],
    });
    expect(outcome).toMatchObject({
      kind: 'error',
      error: {
        code: 'outputs_missing',
        hint: expect.stringContaining('capabilities of the model') as string,
      },
    });
    expect(events.filter(({ event_type }) => event_type === 'note')).toHaveLength(1);
  });

  it('may mention calls in the middle of a line', async () => {
    const { events } = await play({ tools: LS, turns: [answers('Write `<tool_call>` to call.')] });
    expect(events.filter(({ event_type }) => event_type === 'note')).toEqual([]);
  });

  it('completes in text after one request when all outputs are optional', async () => {
    const { outcome, requests } = await play({
      plan: { outputs: [output('greeting', false)] },
      turns: [answers('Bye.'), answers('Bye!')],
    });
    expect(outcome).toEqual(expect.objectContaining({ kind: 'completed', result: 'Bye.' }));
    expect(requests).toHaveLength(1);
    expect(outcome).not.toHaveProperty('outputs');
  });

  it('is not joined with an earlier answer that was cut', async () => {
    const { outcome } = await play({
      plan: NUDGED,
      tools: LS,
      turns: [answers('One ', [], { reason: 'max_tokens' }), answers('two'), answers('Bye.')],
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Bye.' });
  });

  it('can still be failed by a hook of the step', async () => {
    const { outcome } = await play({
      plan,
      turns: [answers('', [returns('r', { greeting: 'x' })])],
      control: (event) =>
        event === 'after_step' ? { control: 'fail', error: 'not good enough' } : undefined,
    });
    expect(outcome).toMatchObject({ kind: 'error', error: { message: 'not good enough' } });
  });
});

describe('a directive with tools', () => {
  it('may answer without them in one request', async () => {
    const { outcome, requests } = await play({
      tools: LS,
      turns: [answers('Bye.'), answers('Bye!')],
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Bye.' });
    expect(requests).toHaveLength(1);
  });

  it('gets one nudge when its first turn uses none and its behavior asks for it', async () => {
    const { outcome, events } = await play({
      plan: NUDGED,
      tools: LS,
      turns: [answers('Bye.'), answers('Bye!')],
    });
    expect(trace(events)).toEqual([
      'turn 1',
      'delta Bye.',
      'assistant end',
      'inject nudge_tools',
      'cost 1',
      'turn 2',
      'delta Bye!',
      'assistant end',
      'cost 2',
    ]);
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Bye!' });
  });

  it('gets none on later turns, nor when it continues a thread that used tools', async () => {
    const later = await play({
      plan: NUDGED,
      tools: LS,
      turns: [answers('', [ls('a')]), answers('Bye.')],
    });
    expect(trace(later.events).join()).not.toContain('inject');
    const resumed = await play({
      plan: NUDGED,
      tools: LS,
      turns: [answers('Bye.')],
      ports: {
        history: [
          userText('Do it.'),
          {
            role: 'assistant',
            content: [{ type: 'tool_call', call_id: 'a', name: 'rye_ls', input: {} }],
            provider: 'scripted',
            model: 'model-1',
            stop_reason: 'tool_calls',
            usage: {
              input_tokens: 0,
              output_tokens: 0,
              cache_read_tokens: 0,
              cache_write_tokens: 0,
            },
          },
          { role: 'tool_result', call_id: 'a', name: 'rye_ls', content: [], outcome: 'ok' },
        ],
      },
    });
    expect(trace(resumed.events).join()).not.toContain('inject');
  });
});

describe('the inbox', () => {
  it('is emptied at safe points only: before a request and at the end', async () => {
    const points: string[] = [];
    const { outcome, requests } = await play({
      tools: LS,
      turns: [answers('', [ls('a')]), answers('First.')],
      ports: {
        inbox: {
          take: (point) => {
            points.push(point);
            const isSecond = points.length === 2;
            return Promise.resolve(isSecond ? [hiddenMessage('delivery', 'steer')] : []);
          },
        },
      },
    });
    expect(points).toEqual(['before_turn', 'before_turn', 'at_end']);
    expect(outcome).toMatchObject({ kind: 'completed', result: 'First.' });
    expect(requests[1]?.messages.at(-1)).toEqual(userText('steer'));
  });

  // Requirement: steer-extends-run
  it('prolongs a run whose model has finished', async () => {
    let given = false;
    const { outcome, requests } = await play({
      turns: [answers('First.'), answers('Second.')],
      ports: {
        inbox: {
          take: (point) => {
            if (point === 'before_turn' || given) return Promise.resolve([]);
            given = true;
            return Promise.resolve([hiddenMessage('delivery', 'And now?')]);
          },
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Second.' });
    expect(requests[1]?.messages.at(-1)).toEqual(userText('And now?'));
  });

  it('keeps its messages for the next run if no turn is left for them', async () => {
    const points: string[] = [];
    const { outcome } = await play({
      plan: { limits: { ...planOf().limits, turns: 1 } },
      turns: [answers('First.')],
      ports: {
        inbox: {
          take: (point) => {
            points.push(point);
            return Promise.resolve(
              point === 'at_end' ? [hiddenMessage('delivery', 'And now?')] : [],
            );
          },
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'First.' });
    expect(points).toEqual(['before_turn']);
  });

  it.each<[string, Parameters<typeof play>[0]['turns'], number]>([
    ['fails', [fails({ status: 400, type: 'auth' })], 25],
    ['has no turn left', [answers('', [ls('a')])], 2],
  ])('keeps the end of the thread if the run of a message %s', async (_, turns, most) => {
    const failed: string[] = [];
    let isGiven = false;
    const { outcome, events } = await play({
      plan: { limits: { ...planOf().limits, turns: most } },
      tools: LS,
      turns: [answers('First.'), ...turns],
      ports: {
        inbox: {
          take: () => Promise.resolve([]),
          next: () => {
            const next = isGiven ? [] : [hiddenMessage('delivery', 'And now?')];
            isGiven = true;
            return Promise.resolve(next);
          },
          fail: () => {
            failed.push('failed');
            return Promise.resolve([
              { event_type: 'note', payload: { text: 'the delivery is back' } } as const,
            ]);
          },
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'First.' });
    expect(failed).toEqual(['failed']);
    const notes = events.flatMap(({ event_type: type, payload }) =>
      type === 'note' ? [payload.text] : [],
    );
    expect(notes.slice(-2)).toEqual([
      'the delivery is back',
      expect.stringMatching(/^a delivery failed: /),
    ]);
  });
});
