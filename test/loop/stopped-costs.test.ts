import { expect, it } from 'vitest';
import { NO_USAGE } from '../../src/kernel/core/usage.ts';
import type { CompactionRequest, LoopPorts } from '../../src/kernel/loop/ports.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, MODEL, play, portsOf, toolOf } from './scripted.ts';

const STEP = answers('', [{ id: 'c1', name: 'rye_echo' }]);

const ESTIMATE = {
  provider: 'scripted',
  model: 'model-1',
  input_tokens: 5000,
  max_tokens: 700,
  context_window: 1000,
  reserved_usd: 0.012,
};

const noFacts = () => ({
  requests: [],
  reported: [],
  hooks: [],
  artifacts: new Map<string, string>(),
});

/** Plays a thread whose context is full after one call, and whose compaction is this. */
async function compacted(
  compact: (
    request: CompactionRequest,
    stop: () => void,
  ) => ReturnType<NonNullable<LoopPorts['compact']>>,
) {
  const stopping = new AbortController();
  const holds: number[] = [];
  const { budget } = portsOf({ turns: [] }, noFacts());
  const played = await play({
    plan: { model: { ...MODEL, context_window: 1000 } },
    tools: {
      rye_echo: toolOf('rye/echo', { run: () => Promise.resolve(textOutput('x'.repeat(5000))) }),
    },
    turns: [STEP, answers('Done.')],
    signal: stopping.signal,
    ports: {
      budget: {
        ...budget,
        hold: (micro) => {
          holds.push(micro);
          return Promise.resolve(true);
        },
      },
      compact: async (request) => await compact(request, () => stopping.abort()),
    },
  });
  return { ...played, holds };
}

it('a compaction that is stopped costs what it had used', async () => {
  const { outcome, events, holds } = await compacted(async ({ hold }, stop) => {
    expect(await hold(ESTIMATE)).toBe(true);
    stop();
    for (let pass = 0; pass < 5; pass += 1) await Promise.resolve();
    return { drafts: [], usage: { ...NO_USAGE, input_tokens: 200_000 } };
  });
  expect(outcome).toMatchObject({ kind: 'cancelled', cost: { input_tokens: 200_100 } });
  expect(events.at(-1)).toMatchObject({
    event_type: 'cost',
    payload: { usage: { input_tokens: 200_000 }, total: { input_tokens: 200_100 } },
  });
  expect(holds.at(-1)).toBe(12_000);
});

it('a compaction that does not react to the end of its run costs what it announced', async () => {
  const { outcome } = await compacted(async ({ hold, book }, stop) => {
    await hold(ESTIMATE);
    await book({ ...NO_USAGE, input_tokens: 40 });
    await hold(ESTIMATE);
    stop();
    return await new Promise(() => undefined);
  });
  expect(outcome).toMatchObject({
    kind: 'cancelled',
    cost: { input_tokens: 100 + 40 + 5000, output_tokens: 10 + 700 },
  });
});

it('a call for which others took the money is planned again, and not for ever', async () => {
  const { budget } = portsOf({ turns: [] }, noFacts());
  const plan = { model: { ...MODEL, kind: 'anthropic' } };
  let left = 2;
  const hold = (): Promise<boolean> => {
    left -= 1;
    return Promise.resolve(left < 0);
  };
  const late = { plan, turns: [answers('Done.')], ports: { budget: { ...budget, hold } } };
  expect([(await play(late)).outcome.kind, left]).toEqual(['completed', -1]);
  const never = { ...budget, hold: () => Promise.resolve(false) };
  const { outcome, requests } = await play({ plan, turns: [], ports: { budget: never } });
  expect(outcome).toMatchObject({ kind: 'error', error: { code: 'budget_insufficient' } });
  expect(requests).toEqual([]);
});

it('a hook that runs when the thread is cancelled ends before the run', async () => {
  const stopping = new AbortController();
  let hasEnded = false;
  const { outcome, events } = await play({
    tools: { rye_echo: toolOf('rye/echo') },
    turns: [STEP],
    signal: stopping.signal,
    ports: {
      hooks: {
        ...portsOf({ turns: [] }, noFacts()).hooks,
        control: async (event, _context, signal) => {
          if (event !== 'after_step') return { fired: [] };
          setImmediate(() => stopping.abort());
          await new Promise((resolve) => signal.addEventListener('abort', resolve));
          // as a directive of a hook that is cancelled and has to end
          for (let pass = 0; pass < 5; pass += 1) await Promise.resolve();
          hasEnded = true;
          return {
            fired: [{ id: 'judge', event, layer: 3, matched: true, duration_ms: 1, outcome: 'ok' }],
          };
        },
      },
    },
  });
  expect([outcome.kind, hasEnded]).toEqual(['cancelled', true]);
  expect(events.some(({ event_type: type }) => type === 'hook_fired')).toBe(true);
});
