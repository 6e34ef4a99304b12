import { describe, expect, it } from 'vitest';
import type { ControlAction } from '../../src/kernel/core/hook.ts';
import type { Limits } from '../../src/kernel/core/limits.ts';
import { textOf, userText } from '../../src/kernel/core/message.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import {
  answers,
  fails,
  hangs,
  MODEL,
  planOf,
  play,
  type Script,
  toolOf,
  trace,
} from './scripted.ts';

const limits = (changes: Partial<Limits>): Limits => ({ ...planOf().limits, ...changes });
const TOOLS = { rye_echo: toolOf('rye/echo') };
const step = answers('', [{ id: 'a', name: 'rye_echo' }]);

const decide = (...actions: (ControlAction | undefined)[]) => {
  let next = 0;
  return (event: string) => {
    if (event !== 'limit') return undefined;
    next += 1;
    return actions[Math.min(next, actions.length) - 1];
  };
};

const run = (control: (event: string) => ControlAction | undefined, parentLimits?: Limits) =>
  play({
    plan: { limits: limits({ turns: 1 }) },
    tools: TOOLS,
    turns: [step, step, answers('Done.')],
    control,
    ...(parentLimits ? { ports: { parentLimits } } : {}),
  });

const spend = (usd: number) => ({ plan: { limits: limits({ spend: usd }) } });

describe('limits before a turn', () => {
  it.each([
    ['turns', { turns: 0 }, 0],
    ['tokens', { tokens: 0 }, 0],
    ['spend', { spend: 0 }, 0],
    ['duration_seconds', { duration_seconds: 0 }, 0],
  ] as const)('%s of zero ends the run before the first call', async (name, changes, max) => {
    const { outcome, events, requests } = await play({
      plan: { limits: limits(changes) },
      turns: [],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name, max, error: { code: `limit_${name}` } });
    expect(trace(events)).toEqual([`limit_${name}`]);
    expect(requests).toHaveLength(0);
  });

  // Requirement: turns-bounded
  it('ends after the turns that it allows, with their cost', async () => {
    const { outcome, events } = await play({
      plan: { limits: limits({ turns: 2 }) },
      tools: TOOLS,
      turns: [step, step, step],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', current: 2, max: 2 });
    expect(outcome.cost).toMatchObject({ turns: 2, input_tokens: 200, output_tokens: 20 });
    expect(trace(events).at(-1)).toBe('limit_turns');
  });

  it('is reported before a cancellation that came at the same time', async () => {
    const { outcome } = await play({
      plan: { limits: limits({ turns: 0 }) },
      turns: [],
      ports: { cancelled: () => 'stop' },
    });
    expect(outcome.kind).toBe('limit');
  });

  it('counts tokens of all kinds', async () => {
    const { outcome } = await play({
      plan: { limits: limits({ tokens: 110 }) },
      tools: TOOLS,
      turns: [step],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'tokens', current: 110 });
  });

  it('continues from the usage of a resumed thread', async () => {
    const { outcome } = await play({
      plan: { limits: limits({ turns: 3 }) },
      turns: [],
      ports: { spent: { ...NO_COST, turns: 3 } },
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', current: 3 });
  });
});

describe('limit hooks', () => {
  it('raise a limit', async () => {
    const { outcome } = await run(decide({ control: 'escalate', limit: 'turns', to: 5 }));
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Done.' });
  });

  it('raise it no further than the parent allows', async () => {
    const { outcome } = await run(
      decide({ control: 'escalate', limit: 'turns', to: 5 }),
      limits({ turns: 2 }),
    );
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', current: 2, max: 2 });
  });

  it.each([
    ['the same', { control: 'escalate', limit: 'turns', to: 1 }],
    ['another limit', { control: 'escalate', limit: 'tokens', to: 1e9 }],
    ['no limit', { control: 'escalate', limit: 'turn', to: 9 }],
    ['not a number', { control: 'escalate', limit: 'turns', to: Number.NaN }],
    ['continue alone', { control: 'continue' }],
    ['retry', { control: 'retry' }],
    ['nothing', undefined],
  ] as const)('do not get past it with %s', async (_name, action) => {
    const { outcome } = await run(decide(action));
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', current: 1 });
  });

  it('raise nothing that the budget above has no room for, and tell it', async () => {
    const { outcome, events } = await play({
      plan: { limits: limits({ turns: 1 }) },
      tools: TOOLS,
      turns: [step],
      control: (event) =>
        event === 'limit' ? { control: 'escalate', limit: 'turns', to: 5 } : undefined,
      ports: { raise: () => Promise.reject(new Error('the parent can spare nothing')) },
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', max: 1 });
    expect(events.map(({ event_type: type }) => type)).not.toContain('limit_raised');
    expect(JSON.stringify(events)).toContain('was not raised to 5: the parent can spare nothing');
  });

  it('may raise a limit only so often', async () => {
    let to = 1;
    const { outcome } = await play({
      plan: { limits: limits({ turns: 1 }), behavior: { loop_repeats: 0 } },
      tools: TOOLS,
      turns: Array.from({ length: 40 }, () => step),
      control: (event) => {
        if (event !== 'limit') return undefined;
        to += 1;
        return { control: 'escalate', limit: 'turns', to };
      },
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'turns', current: 11 });
  });

  it.each([
    [{ control: 'handoff' }, { kind: 'handoff' }],
    [
      { control: 'suspend', reason: 'ask' },
      { kind: 'suspended', reason: 'ask' },
    ],
    [{ control: 'abort' }, { kind: 'error', error: { code: 'aborted_by_hook' } }],
    [
      { control: 'fail', error: 'too long' },
      { kind: 'limit', error: { message: 'too long' } },
    ],
  ] as const)('decide %j', async (action, expected) => {
    expect((await run(decide(action))).outcome).toMatchObject(expected);
  });

  it('that fail are noted and decide nothing', async () => {
    const { outcome, events } = await run(() => {
      throw new Error('hook broke');
    });
    expect(outcome).toMatchObject({ kind: 'limit' });
    expect(events.filter(({ event_type }) => event_type === 'note')).not.toHaveLength(0);
  });
});

describe('duration', () => {
  it('cuts a running model call, charges for it and ends as a limit', async () => {
    const { outcome, events } = await play({
      plan: { limits: limits({ duration_seconds: 60 }) },
      turns: [hangs('Some words')],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'duration_seconds', max: 60 });
    expect(trace(events)).toEqual([
      'turn 1',
      'delta Some words',
      'assistant aborted',
      'inject interrupted',
      'cost 1',
      'limit_duration_seconds',
    ]);
    expect(outcome.cost.spend).toBeGreaterThan(0);
  });

  it('does not wait for a model that ignores the abort', async () => {
    const { outcome } = await play({
      plan: { limits: limits({ duration_seconds: 60 }) },
      turns: [hangs('', { obedient: false })],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'duration_seconds' });
  });

  it('cuts a running tool, whose call still gets its result', async () => {
    const { outcome, events } = await play({
      plan: { limits: limits({ duration_seconds: 60 }) },
      tools: { rye_echo: toolOf('rye/echo', { run: () => new Promise(() => undefined) }) },
      turns: [step],
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'duration_seconds' });
    expect(trace(events)).toContain('result a aborted');
  });

  it('extended by a hook, lets the model continue the answer that it cut', async () => {
    const { outcome, requests } = await play({
      plan: { limits: limits({ duration_seconds: 60 }) },
      turns: [hangs('Some words'), answers(' and more.')],
      control: (event) =>
        event === 'limit' ? { control: 'escalate', limit: 'duration_seconds', to: 120 } : undefined,
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'Some words and more.' });
    expect(requests[1]?.messages.map(({ content }) => textOf(content))).toEqual([
      'Do it.',
      'Some words',
      '[Your answer was interrupted here: the time limit was reached.]',
      expect.stringMatching(/^Continue exactly where/),
    ]);
  });
});

describe('the spend cap', () => {
  it('lowers max_tokens so that the worst case fits', async () => {
    const { requests } = await play({ ...spend(0.01), turns: [answers('Done.')] });
    const [request] = requests;
    // 10 micro-dollars per output token: never more than the limit in all
    expect(request?.max_tokens).toBeLessThan(1000);
    expect(request?.max_tokens).toBeGreaterThan(900);
  });

  it('leaves max_tokens alone when there is enough', async () => {
    const { requests } = await play({ ...spend(5), turns: [answers('Done.')] });
    expect(requests[0]?.max_tokens).toBe(MODEL.max_output_tokens);
  });

  const large = {
    ...MODEL,
    kind: 'anthropic',
    max_output_tokens: 128_000,
    context_window: 1_000_000,
  };
  const cut = answers('Long.', [], { reason: 'max_tokens' });
  const maxTokens = async (
    plan: Parameters<typeof play>[0]['plan'],
    turns = [answers('Done.')],
  ) => {
    const { requests } = await play({
      plan: { model: large, limits: limits({ spend: 50 }), ...plan },
      turns,
    });
    return requests.map(({ max_tokens }) => max_tokens);
  };

  it('allows an answer 16,384 tokens unless thinking, the directive or the model needs more', async () => {
    expect(await maxTokens({})).toEqual([16_384]);
    expect(await maxTokens({ thinking: 'medium' })).toEqual([32_768]);
    expect(await maxTokens({ thinking: 'high' })).toEqual([49_152]);
    expect(await maxTokens({ behavior: { max_tokens: 100_000 } })).toEqual([100_000]);
    expect(await maxTokens({ behavior: { max_tokens: 500 } })).toEqual([500]);
    expect(await maxTokens({ model: { ...large, max_output_tokens: 4096 } })).toEqual([4096]);
  });

  it('allows all that the model can write after an answer that was cut, also in a call', async () => {
    expect(await maxTokens({}, [cut, answers('Done.')])).toEqual([16_384, 128_000]);
    const half = answers('', [{ id: 'c1', name: 'write' }], { reason: 'max_tokens' });
    expect(await maxTokens({}, [half, answers('Done.')])).toEqual([16_384, 128_000]);
    // a directive that sets the limit keeps it
    const set = { behavior: { max_tokens: 500 } };
    expect(await maxTokens(set, [cut, answers('Done.')])).toEqual([500, 500]);
  });

  it('does not start a turn that has no room for 256 tokens', async () => {
    const { outcome, events, requests } = await play({ ...spend(0.0025), turns: [] });
    expect(outcome).toMatchObject({
      kind: 'limit',
      name: 'spend',
      error: {
        code: 'limit_spend',
        message:
          'Budget reached: the next call could cost up to $0.0026, and only $0.0025 of $0.0025 is left',
      },
    });
    expect(requests).toHaveLength(0);
    expect(trace(events)).toEqual(['limit_spend']);
    const limit = events.find(({ event_type }) => event_type === 'limit_reached');
    expect(limit?.payload).toMatchObject({
      current: 0,
      needed: expect.closeTo(0.0026, 4),
      left: 0.0025,
    });
  });

  it('is also held by what the budget has left', async () => {
    const { outcome } = await play({
      ...spend(5),
      turns: [],
      ports: {
        budget: {
          remainingMicroUsd: () => Promise.resolve(1000),
          report: () => Promise.resolve(),
        },
      },
    });
    expect(outcome).toMatchObject({ kind: 'limit', name: 'spend' });
  });

  it('reports a failed attempt before the next one', async () => {
    let left = 10_000;
    const usage = {
      input_tokens: 0,
      output_tokens: 500,
      cache_read_tokens: 0,
      cache_write_tokens: 0,
    };
    const { outcome, requests } = await play({
      ...spend(5),
      turns: [
        fails({ phase: 'stream' }, [
          { type: 'start', model: 'model-1' },
          { type: 'usage', usage },
        ]),
        answers('Done.'),
      ],
      ports: {
        budget: {
          remainingMicroUsd: () => Promise.resolve(left),
          report: (spent) => {
            left = 10_000 - spent;
            return Promise.resolve();
          },
        },
      },
    });
    expect(outcome.kind).toBe('completed');
    expect((requests[0]?.max_tokens ?? 0) - (requests[1]?.max_tokens ?? 0)).toBe(500);
  });

  it('never lets a run spend more than its limit, with any usage', async () => {
    for (const limit of [0.003, 0.01, 0.05]) {
      const { outcome } = await play({
        ...spend(limit),
        tools: TOOLS,
        turns: Array.from({ length: 30 }, () => (request: { max_tokens: number }) => {
          const output_tokens = request.max_tokens;
          const usage = {
            input_tokens: 20,
            output_tokens,
            cache_read_tokens: 0,
            cache_write_tokens: 0,
          };
          return replayed(answers('', [{ id: 'a', name: 'rye_echo' }], { usage }));
        }),
      });
      expect(outcome).toMatchObject({ kind: 'limit', name: 'spend' });
      expect(outcome.cost.spend).toBeLessThanOrEqual(limit);
    }
  });

  it('refuses a model without a price, unless that is allowed', async () => {
    const model = { ...MODEL, pricing: null };
    const refused = await play({ plan: { model }, turns: [] });
    expect(refused.outcome).toMatchObject({ kind: 'error', error: { code: 'model_unpriced' } });
    const allowed = await play({
      plan: { model, allow_unpriced: true },
      turns: [answers('Done.')],
    });
    expect(allowed.outcome).toMatchObject({ kind: 'completed', cost: { spend: 0 } });
  });

  // Requirement: root-spend-unrecorded
  it('reports the spend to the budget at each turn', async () => {
    const { reported, outcome } = await play({ tools: TOOLS, turns: [step, answers('Done.')] });
    expect(reported).toEqual([200, 400]);
    expect(outcome.cost.spend).toBe(0.0004);
  });

  it('reports an answer before its tools run, with its turn', async () => {
    const known: unknown[] = [];
    const facts: { spent: number; turns: number }[] = [];
    const tool = toolOf('rye/echo', {
      run: () => {
        known.push(facts.at(-1));
        return Promise.resolve(textOutput('x'));
      },
    });
    await play({
      tools: { rye_echo: tool },
      turns: [step, step, answers('Done.')],
      ports: {
        budget: {
          remainingMicroUsd: () => Promise.resolve(5_000_000),
          report: (spent, { turns }) => {
            facts.push({ spent, turns });
            return Promise.resolve();
          },
        },
      },
    });
    expect(known).toEqual([
      { spent: 200, turns: 1 },
      { spent: 400, turns: 2 },
    ]);
    expect(facts).toHaveLength(3);
  });
});

describe('a full context', () => {
  const window = { model: { ...MODEL, context_window: 1000 } };
  const big = toolOf('rye/echo', { run: () => Promise.resolve(textOutput('x'.repeat(5000))) });

  it('is compacted through the port', async () => {
    const { outcome, requests, hooks } = await play({
      plan: window,
      tools: { rye_echo: big },
      turns: [step, answers('Done.')],
      ports: {
        compact: () =>
          Promise.resolve({
            drafts: [],
            messages: [{ role: 'user', content: [{ type: 'text', text: 'Summary' }] }],
            usage: {
              input_tokens: 7,
              output_tokens: 0,
              cache_read_tokens: 0,
              cache_write_tokens: 0,
            },
          }),
      },
    });
    expect(outcome.kind).toBe('completed');
    expect(outcome.cost.input_tokens).toBe(207);
    expect(requests[1]?.messages).toHaveLength(1);
    expect(hooks.find(({ event }) => event === 'context_limit_reached')?.context).toMatchObject({
      tokens_limit: 1000,
    });
  });

  it.each<[string, Partial<Script>, readonly number[], readonly number[]]>([
    [
      'between two turns, by itself',
      { plan: window, turns: [step, answers('Done.')] },
      [1, 1, 2],
      [100, 7, 100],
    ],
    [
      'with the turn that it is made in',
      { turns: [fails({ status: 400, type: 'context_exceeded' }), answers('Done.')] },
      [1],
      [107],
    ],
  ])('is paid for once: %s', async (_, script, turns, tokens) => {
    const usage = { ...NO_USAGE, input_tokens: 7 };
    const messages = [userText('Summary')];
    const { events, outcome } = await play({
      tools: { rye_echo: big },
      turns: [],
      ...script,
      ports: { compact: () => Promise.resolve({ drafts: [], messages, usage }) },
    });
    const booked = events.flatMap(({ event_type: type, payload }) =>
      type === 'cost' ? [[payload.turn, payload.usage.input_tokens] as const] : [],
    );
    expect(booked).toEqual(turns.map((turn, at) => [turn, tokens[at]]));
    expect(outcome.cost.input_tokens).toBe(tokens.reduce((sum, one) => sum + one, 0));
  });

  it('asks the hooks once, not on every turn', async () => {
    const { hooks } = await play({
      plan: window,
      tools: { rye_echo: big },
      turns: [step, step, step, answers('Done.')],
    });
    expect(hooks.filter(({ event }) => event === 'context_limit_reached')).toHaveLength(1);
  });

  it('is handed off where that is configured', async () => {
    const { outcome } = await play({
      plan: {
        ...window,
        settings: {
          ...planOf().settings,
          context_limit: { threshold: 0.9, mode: 'handoff' as const },
        },
      },
      tools: { rye_echo: big },
      turns: [step],
    });
    expect(outcome.kind).toBe('handoff');
  });
});

async function* replayed<T>(events: readonly T[]): AsyncGenerator<T> {
  yield* events;
}
