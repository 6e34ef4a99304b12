import { describe, expect, it } from 'vitest';
import { userText } from '../../src/kernel/core/message.ts';
import { hiddenMessage } from '../../src/kernel/loop/conversation.ts';
import type { ReturnCheck } from '../../src/kernel/loop/ports.ts';
import { answers, planOf, play, resultText, type Script, toolOf, trace } from './scripted.ts';

const SCHEMA = {
  type: 'object',
  properties: { n: { type: 'integer' } },
  required: ['n'],
  additionalProperties: false,
};

function wants(script: Omit<Script, 'plan'>, plan: Script['plan'] = {}): Script {
  return { plan: { behavior: { schema: SCHEMA }, ...plan }, ...script };
}

const output = (id: string, input: object) => ({
  id,
  name: 'rye_directive_return',
  input: { ...input },
});

describe('a result that must match a schema', () => {
  it('is taken from the answer where that is it already', async () => {
    for (const text of ['{"n": 4}', '```json\n{"n": 4}\n```']) {
      const { outcome, requests } = await play(wants({ turns: [answers(text)] }));
      expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 4 }, result: text });
      expect(requests).toHaveLength(1);
      expect(requests[0]?.output_schema).toMatchObject(SCHEMA);
    }
  });

  // Requirement: structured-result
  it('is asked for again by a forced return if the model ends without one', async () => {
    const { outcome, requests, events, hooks } = await play(
      wants({ turns: [answers('It is four.'), answers('{"n": 4}')] }),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 4 } });
    expect(requests.map(({ tool_choice: choice }) => choice)).toEqual([
      undefined,
      { name: 'rye_directive_return' },
    ]);
    expect(trace(events)).toContain('inject output_request');
    const returned = hooks.filter(({ event }) => event === 'directive_return');
    expect(returned).toMatchObject([{ context: { outputs: { n: 4 } } }]);
    expect(outcome.cost.turns).toBe(2);
  });

  it('may come as a call, which gets its result like every other', async () => {
    const { outcome, events } = await play(
      wants({
        tools: { rye_echo: toolOf('rye/echo') },
        turns: [
          answers('', [{ id: 'a', name: 'rye_echo' }]),
          answers('It is four.'),
          answers('', [output('b', { n: 4 }), { id: 'c', name: 'rye_echo' }]),
        ],
      }),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 4 } });
    expect(resultText(events, 'b')).toBe('Returned.');
    expect(resultText(events, 'c')).toBe('Skipped: the directive returned before this call');
  });

  it('is asked for again with what is wrong, three times in all', async () => {
    const { outcome, requests, events } = await play(
      wants({
        turns: [
          answers('no'),
          answers('{"m": 1}'),
          answers('', [output('a', {})]),
          answers('', [{ ...output('b', {}), malformed: '{' }]),
        ],
      }),
    );
    expect(requests).toHaveLength(4);
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'outputs_missing' } });
    expect(resultText(events, 'a')).toBe('Validation error: n is required');
    expect(JSON.stringify(requests[2]?.messages)).toContain('The problem: n is required');
  });

  it('waits for queued messages first, and is asked for once', async () => {
    let waiting = [hiddenMessage('steer', 'Count again.')];
    const take = async (point: string) => {
      const drafts = point === 'at_end' ? waiting : [];
      if (point === 'at_end') waiting = [];
      return drafts;
    };
    const { outcome, requests, hooks } = await play(
      wants({
        turns: [answers('Four.'), answers('Five.'), answers('{"n": 5}')],
        ports: { inbox: { take } },
      }),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 5 } });
    expect(requests.map(({ tool_choice: choice }) => choice !== undefined)).toEqual([
      false,
      false,
      true,
    ]);
    expect(hooks.filter(({ event }) => event === 'directive_return')).toHaveLength(1);
  });

  it('is read again from the answer to a message that came while it was checked', async () => {
    let visits = 0;
    const take = async (point: string) => {
      if (point !== 'at_end') return [];
      visits += 1;
      return visits === 2 ? [hiddenMessage('steer', 'Count again.')] : [];
    };
    const { outcome } = await play(
      wants({ turns: [answers('{"n": 4}'), answers('{"n": 5}')], ports: { inbox: { take } } }),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 5 } });
  });

  it('is not asked of a model that can only follow steps', async () => {
    const plan = planOf();
    const { outcome, requests } = await play(
      wants({ turns: [answers('done')] }, { model: { ...plan.model, kind: 'literal' } }),
    );
    expect(outcome).toMatchObject({ kind: 'error', error: { code: 'outputs_missing' } });
    expect(requests).toHaveLength(1);
  });

  it('has no text of an earlier turn beside returned outputs', async () => {
    const outputs = [{ name: 'n', type: 'integer', required: true, description: '' }] as const;
    const { outcome } = await play({
      plan: { outputs },
      tools: { rye_echo: toolOf('rye/echo') },
      turns: [
        answers('Waiting.', [{ id: 'a', name: 'rye_echo' }]),
        answers('', [{ id: 'b', name: 'rye_directive_return', input: { n: 1 } }]),
      ],
    });
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 1 }, result: '' });
  });

  it('leaves declared outputs to their return', async () => {
    const outputs = [{ name: 'n', type: 'integer', required: true, description: '' }] as const;
    const { outcome, requests } = await play(
      wants(
        { turns: [answers('', [{ id: 'a', name: 'rye_directive_return', input: { n: 1 } }])] },
        { outputs },
      ),
    );
    expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 1 } });
    expect(requests).toHaveLength(1);
  });

  it('a schema that cannot be used ends the run', async () => {
    const checkReturn = (): Promise<ReturnCheck> => Promise.reject(new Error('no such keyword'));
    const { outcome } = await play(wants({ turns: [answers('{"n": 4}')], ports: { checkReturn } }));
    expect(outcome).toMatchObject({ kind: 'error', error: { message: 'no such keyword' } });
  });
});

describe('thinking', () => {
  const decay = { thinking_decay: { after_runs: 1, floor: 'low' } };

  // Requirement: thinking-decreases
  it('goes down a level with each run, never within one and never below the floor', async () => {
    let deliveries = 3;
    const next = async () => {
      deliveries -= 1;
      return deliveries >= 0
        ? [{ event_type: 'message', payload: { message: userText('more') } } as const]
        : [];
    };
    const take = () => Promise.resolve([]);
    const { requests, events } = await play({
      plan: { thinking: 'high', behavior: decay },
      tools: { rye_echo: toolOf('rye/echo') },
      turns: [
        answers('', [{ id: 'a', name: 'rye_echo' }]),
        answers('one'),
        answers('', [{ id: 'b', name: 'rye_echo' }]),
        answers('two'),
        answers('three'),
        answers('four'),
      ],
      ports: { inbox: { take, next } },
    });
    expect(requests.map(({ thinking }) => thinking)).toEqual([
      'high',
      'high',
      'medium',
      'medium',
      'low',
      'low',
    ]);
    const changes = events.filter(({ event_type }) => event_type === 'thinking_change');
    expect(changes.map(({ payload }) => payload)).toEqual([{ level: 'medium' }, { level: 'low' }]);
  });
});

it('a return beyond the calls that an answer may hold is skipped like the others', async () => {
  const looks = Array.from({ length: 256 }, (_, at) => ({ id: `c${at}`, name: 'rye_echo' }));
  const { outcome, events, requests } = await play(
    wants({
      tools: { rye_echo: toolOf('rye/echo') },
      turns: [
        answers('', [...looks, output('late', { n: 4 })]),
        answers('', [output('b', { n: 5 })]),
      ],
    }),
  );
  expect(outcome).toMatchObject({ kind: 'completed', outputs: { n: 5 } });
  expect(requests).toHaveLength(2);
  expect(resultText(events, 'late')).toContain('at most 256 calls');
});

it('a return beside a call at which a hook ends the thread does not count, also one that reports an error', async () => {
  const failed = { status: 'error', error_detail: 'I give up.' };
  const { outcome, events } = await play(
    wants({
      tools: { rye_echo: toolOf('rye/echo') },
      gate: () => ({ decision: { control: 'suspend', reason: 'ask a person' } }),
      turns: [answers('', [{ id: 'a', name: 'rye_echo' }, output('end', failed)])],
    }),
  );
  expect(outcome).toMatchObject({ kind: 'suspended', reason: 'ask a person' });
  expect(resultText(events, 'end')).toContain('return again');
});
