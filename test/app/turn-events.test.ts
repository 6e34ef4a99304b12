import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { describe, expect, it } from 'vitest';
import type { RunRequest } from '../../src/kernel/app/run-types.ts';
import type { EventPayloads } from '../../src/kernel/core/events.ts';
import type { ChildEvent, RunEvent } from '../../src/kernel/hooks/handlers.ts';
import {
  calls,
  reply,
  text,
  thinking,
  toolUse,
  type WireBlock,
  type WireStep,
} from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';
import { made, payloads, toolOf } from './made-calls.ts';

const WORK = 'team/work';
const price = (input: object, id: string) => toolUse('shop_price', input, id);
const TOOLS = { 'shop/price': toolOf(() => 'ran') };
/** True if the last of these blocks is marked for the cache. */
const isMarked = (blocks: string | readonly WireBlock[] = []): boolean =>
  typeof blocks !== 'string' && blocks.at(-1)?.cache_control !== undefined;

/** Runs `team/work` on this script and returns the types of its events, with the request. */
async function typesOf(script: Parameters<typeof libraryLab>[0], request: object = {}) {
  const lab = await libraryLab(script);
  await lab.directive('work');
  const events: RunEvent[] = [];
  const onEvent: RunRequest['onEvent'] = (event) => void events.push(event as RunEvent);
  const outcome = await lab.open().run({ directiveId: WORK, onEvent, ...request });
  return { lab, outcome, events, types: events.map(({ event_type }) => event_type) };
}

describe('a turn', () => {
  it('begins after the messages of its thread are recorded, and ends with its cost', async () => {
    const { types } = await typesOf([reply('Done.')]);
    const of = (type: RunEvent['event_type']) => types.indexOf(type);
    expect([of('message'), of('turn_started'), of('cost')]).toEqual(
      [of('message'), of('turn_started'), of('cost')].toSorted((a, b) => a - b),
    );
    expect(of('message')).toBeGreaterThan(-1);
    expect(types.filter((type) => type === 'cost')).toHaveLength(1);
  });

  it('whose call of the model fails ends with its cost too, and the run with the error', async () => {
    const error = { type: 'invalid_request_error', message: 'no such thing' };
    const { outcome, events } = await typesOf([{ status: 400, error }]);
    expect(outcome).toMatchObject({
      kind: 'failed',
      error: { message: expect.stringContaining('no such thing') as string },
    });
    expect(payloads(events, 'turn_started')).toHaveLength(1);
    expect(payloads(events, 'cost')).toMatchObject([{ turn: 1 }]);
  });

  it('tells its thinking and its text while they come, and the whole answer at the end', async () => {
    let isHeard = (): void => undefined;
    const until = new Promise<void>((resolve) => {
      isHeard = resolve;
    });
    // the server waits until the first words were heard
    const steps: WireStep[] = [
      thinking('Hmm.'),
      text('All '),
      { kind: 'wait', until },
      text('done.'),
    ];
    const heard: string[] = [];
    const { outcome } = await typesOf([{ steps }], {
      handlers: {
        thinking_delta: () => void heard.push('thinking'),
        token_delta: () => {
          heard.push('text');
          isHeard();
        },
        message: ({ payload }: { payload: EventPayloads['message'] }) =>
          void heard.push(payload.message.role),
      },
    });
    expect(outcome).toMatchObject({ kind: 'completed', result: 'All done.' });
    expect(heard).toEqual(['user', 'thinking', 'text', 'text', 'assistant']);
  });

  it('sends back the thinking of the answers before it, with its signature', async () => {
    const first = calls(thinking('Prices first.', 'c2lnbmVk'), price({}, 'a'));
    const lab = await libraryLab([first, reply('Done.')]);
    await lab.directive('work', ['shop/price']);
    const behavior = { thinking: 'high' } as const;
    await lab.open().run({ directiveId: WORK, tools: TOOLS, behavior });
    const [sent, next] = lab.server.requests.map(({ body }) => body);
    expect(sent?.thinking ?? sent?.output_config).toBeDefined();
    const blocks = next?.messages[1]?.content as readonly WireBlock[];
    expect(blocks[0]).toMatchObject({
      type: 'thinking',
      thinking: 'Prices first.',
      signature: 'c2lnbmVk',
    });
  });
});

describe('the messages of a request', () => {
  it('are changed by context_transform for that request alone, not in the log', async () => {
    const { requests, events } = await made([[price({}, 'a')]], {
      tools: TOOLS,
      handlers: {
        context_transform: ({ turn, messages }) =>
          turn === 1
            ? {
                messages: [
                  { role: 'user', content: [{ type: 'text', text: 'Psst.' }] },
                  ...messages,
                ],
              }
            : undefined,
      },
    });
    const sent = requests.map(({ body }) => JSON.stringify(body.messages).includes('Psst.'));
    expect(sent).toEqual([true, false]);
    expect(JSON.stringify(events)).not.toContain('Psst.');
  });

  it('stay as they are if a handler changes its copy and returns nothing', async () => {
    const { requests } = await made([], {
      handlers: {
        context_transform: ({ messages }) => {
          try {
            (messages as unknown[]).length = 0;
          } catch {
            // a frozen copy is as good
          }
        },
      },
    });
    expect(requests[0]?.body.messages).toHaveLength(1);
  });
});

describe('a message to a running thread', () => {
  it('that comes during the last answer prolongs the run, before a follow-up', async () => {
    const lab = await libraryLab(async ({ index }) => {
      if (index === 0) await run.steer('Look twice.');
      return reply(`Answer ${index}.`);
    });
    await lab.directive('work');
    const injected: string[] = [];
    const run = lab.open().start({
      directiveId: WORK,
      followUps: ['And now?'],
      handlers: { custom_message: ({ payload }) => void injected.push(payload.content) },
    });
    expect(await run.outcome).toMatchObject({ kind: 'completed', result: 'Answer 2.' });
    const last = lab.server.requests.map(({ body }) => JSON.stringify(body.messages.at(-1)));
    expect([last[1]?.includes('Look twice.'), last[2]?.includes('And now?')]).toEqual([true, true]);
  });

  it('is an event of the run when the model is sent it', async () => {
    const lab = await libraryLab(async ({ index }) => {
      if (index === 0) await run.steer('Look twice.');
      return index === 0 ? calls(price({}, 'a')) : reply('Done.');
    });
    await lab.directive('work', ['shop/price']);
    const order: string[] = [];
    const run = lab.open().start({
      directiveId: WORK,
      tools: TOOLS,
      handlers: {
        turn_started: ({ payload }) => void order.push(`turn ${payload.turn}`),
        custom_message: ({ payload }) =>
          void order.push(
            JSON.stringify(payload.content).includes('Look twice.') ? 'steered' : '?',
          ),
      },
    });
    await run.outcome;
    expect(order).toEqual(['turn 1', 'steered', 'turn 2']);
  });
});

describe('handlers', () => {
  it('of the program and of the run are all called, in lists too', async () => {
    const called: string[] = [];
    const as = (name: string) => () => void called.push(name);
    await made(
      [[price({}, 'a')]],
      { tools: TOOLS, handlers: { tool_gate: [as('run 1'), as('run 2')] } },
      { preset: { handlers: { tool_gate: as('program') } } },
    );
    expect(called).toEqual(['program', 'run 1', 'run 2']);
  });
});

describe('an abort', () => {
  it('ends the children of the run too', async () => {
    const lab = await libraryLab(({ index }) =>
      index === 0
        ? calls(
            toolUse(
              'rye_execute',
              { item_type: 'directive', item_id: 'team/child', parameters: {} },
              'a',
            ),
          )
        : 'hang',
    );
    await lab.directive('child');
    await lab.directive('work', [], {
      metadata: '<permissions><execute><directive>team/child</directive></execute></permissions>',
    });
    const below: string[] = [];
    const finished = ({ payload, depth }: ChildEvent<'thread_finished'>): void =>
      void below.push(`${depth} ${payload.status}`);
    const run = lab
      .open()
      .start({ directiveId: WORK, handlers: { 'child.thread_finished': finished } });
    await lab.server.request(1);
    run.abort('enough');
    expect(await run.outcome).toMatchObject({ kind: 'aborted', reason: 'enough' });
    expect(below).toEqual(['1 cancelled']);
  });
});

describe('limits of a run', () => {
  it.each([
    ['turns', { turns: 1 }],
    ['tokens', { tokens: 1 }],
    ['spend', { spend: 0.000_001 }],
    ['duration_seconds', { duration_seconds: 0 }],
  ])('end it: %s', async (limit, limits) => {
    const lab = await libraryLab([calls(price({}, 'a')), reply('Done.')]);
    await lab.directive('work', ['shop/price']);
    const outcome = await lab.open().run({ directiveId: WORK, tools: TOOLS, limits });
    expect(outcome).toMatchObject({ kind: 'limit', limit, error: { code: `limit_${limit}` } });
  });

  it('are finite without any setting: 25 turns, and answers of 16,384 tokens', async () => {
    const { lab, requests } = await made([]);
    const plan = await lab.open().threads.plan({ directiveId: WORK });
    expect(plan.limits).toMatchObject({ turns: 25, tokens: 1_000_000, spend: 1 });
    expect(requests[0]?.body.max_tokens).toBe(16_384);
  });
});

describe('tools that are listed by name', () => {
  const lazy = async (description: string) => {
    const lab = await libraryLab([
      calls(toolUse('tool_search', { names: ['shop_b'] }, 'a')),
      calls(toolUse('shop_b', {}, 'b')),
      reply('Done.'),
      calls(toolUse('shop_b', {}, 'c')),
      reply('Done.'),
    ]);
    const file = path.join(lab.project, '.ai/config/agent/resilience.yaml');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, 'tool_preload: { max_tokens: 0 }\n');
    await lab.directive('work', ['shop/b', 'shop/a']);
    const rye = lab.open();
    await rye.items.sign('config', 'agent/resilience');
    const tools = {
      'shop/b': { ...toolOf(() => 'b ran'), description },
      'shop/a': { ...toolOf(() => 'a ran'), description },
    };
    for (let run = 0; run < 2; run += 1)
      expect(await rye.run({ directiveId: WORK, tools })).toMatchObject({ kind: 'completed' });
    return lab.server.requests.map(({ body }) => body);
  };

  it('are sorted and escaped in the system text, which is the same in every request', async () => {
    const bodies = await lazy('Costs < 5 & "more"');
    const systems = bodies.map(({ system }) => JSON.stringify(system));
    expect(new Set(systems).size).toBe(1);
    expect(systems[0]).toContain('&lt; 5 &amp;');
    expect(systems[0]?.indexOf('shop_a')).toBeLessThan(systems[0]?.indexOf('shop_b') ?? 0);
  });

  it('are unlocked for their run, which changes the list of tools once', async () => {
    const bodies = await lazy('Costs.');
    const offered = bodies.map(({ tools }) => (tools ?? []).some(({ name }) => name === 'shop_b'));
    expect(offered).toEqual([false, true, true, false, false]);
    expect(JSON.stringify(bodies[2]?.messages.at(-1))).toContain('b ran');
    expect(JSON.stringify(bodies[4]?.messages.at(-1))).toContain('tool_search');
  });

  it('are found by the tool_search of a program, which unlocks only what the thread is granted', async () => {
    const lab = await libraryLab([
      calls(toolUse('shop_b', {}, 'a')),
      calls(toolUse('tool_search', { words: 'prices' }, 'b')),
      calls(toolUse('shop_b', {}, 'c'), toolUse('shop_a', {}, 'd'), toolUse('shop_c', {}, 'e')),
      reply('Done.'),
    ]);
    const file = path.join(lab.project, '.ai/config/agent/resilience.yaml');
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, 'tool_preload: { max_tokens: 0 }\n');
    await lab.directive('work', ['shop/b', 'shop/a']);
    const asked: unknown[] = [];
    const rye = lab.open({
      toolSearch: {
        description: 'Finds tools by words.',
        inputSchema: { type: 'object', properties: { words: { type: 'string' } } },
        traits: { reads_only: true, network: false, risk: 'safe' },
        execute: (input, { deferred = [] }) => {
          asked.push([input, deferred.map(({ id, name }) => [id, name])]);
          return { tools: ['shop_b', 'shop/c', 'rye/bash'] };
        },
      },
    });
    await rye.items.sign('config', 'agent/resilience');
    const tools = {
      'shop/a': toolOf(() => 'a ran'),
      'shop/b': toolOf(() => 'b ran'),
      'shop/c': toolOf(() => 'c ran'),
    };
    expect(await rye.run({ directiveId: WORK, tools })).toMatchObject({ kind: 'completed' });
    const listed = [
      ['shop/a', 'shop_a'],
      ['shop/b', 'shop_b'],
    ];
    expect(asked).toEqual([[{ words: 'prices' }, listed]]);
    const [first, second, third, fourth] = lab.server.requests.map(({ body }) => body);
    const search = first?.tools?.find(({ name }) => name === 'tool_search');
    expect(JSON.stringify(search)).toContain('Finds tools by words.');
    expect(JSON.stringify(second?.messages.at(-1))).toContain('tool_search');
    expect(JSON.stringify(third?.messages.at(-1))).toMatch(/tool_search_results.*shop_b/);
    const names = new Set((third?.tools ?? []).map(({ name }) => name));
    expect(['shop_a', 'shop_b', 'shop_c'].filter((name) => names.has(name))).toEqual(['shop_b']);
    const results = JSON.stringify(fourth?.messages.at(-1));
    expect(results).toContain('b ran');
    expect(results).not.toMatch(/a ran|c ran/);
  });

  it('are in requests whose system text, last tool and newest message are marked for the cache', async () => {
    const [, body] = await lazy('Costs.');
    const parts = [body?.system, body?.tools, body?.messages.at(-1)?.content];
    expect(parts.map(isMarked)).toEqual([true, true, true]);
    const { requests } = await made([], { behavior: { cache: false } });
    expect(JSON.stringify(requests[0]?.body)).not.toContain('cache_control');
  });
});
