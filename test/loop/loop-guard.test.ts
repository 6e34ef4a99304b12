import { describe, expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { type Tool, textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, planOf, play, toolOf } from './scripted.ts';

let ids = 0;
const call = (name: string, input: JsonObject = {}) => {
  ids += 1;
  return { id: `c${ids}`, name, input };
};
/** Turns that ask for these calls again and again. */
const again = (count: number, ...turns: readonly (readonly [string, JsonObject?][])[]) =>
  Array.from({ length: count }, (_, index) => {
    const wanted = turns[index % turns.length] ?? [];
    return answers(
      '',
      wanted.map(([name, input]) => call(name, input)),
    );
  });
const reads = (...paths: readonly string[]): Parameters<typeof again>[1][] =>
  paths.map((path) => [['read', { path }]]);
const changing = (id: string): Tool => {
  let count = 0;
  return toolOf(id, {
    run: () => {
      count += 1;
      return Promise.resolve(textOutput(`result ${count}`));
    },
  });
};
const tools = { look: toolOf('look'), read: toolOf('read'), poll: changing('poll') };
const END = answers('That is all.');
const run = (turns: Parameters<typeof play>[0]['turns'], behavior: JsonObject = {}) =>
  play({ plan: { ...planOf(), behavior }, turns, tools });
const steers = ({ events }: Awaited<ReturnType<typeof play>>): number =>
  events.filter(
    (event) =>
      event.event_type === 'custom_message' && event.payload.custom_type === 'loop_detected',
  ).length;

describe('a model that repeats itself', () => {
  it('is told once and ends as loop_detected when it makes the same call', async () => {
    const played = await run(again(25, [['look']]));
    expect(played.outcome).toMatchObject({ kind: 'error', error: { code: 'loop_detected' } });
    expect(played.requests).toHaveLength(10);
    expect(steers(played)).toBe(1);
    const last = played.requests[5]?.messages.at(-1);
    expect(JSON.stringify(last)).toContain('The last 5 turns made the same calls (look)');
  });

  it.each<[string, number, Parameters<typeof again>[1][]]>([
    ['two calls in turn', 11, [[['look']], [['read', { path: 'a' }]]]],
    ['three calls in turn', 11, [[['look']], ...reads('a', 'b')]],
    ['four calls in turn', 13, [[['look']], ...reads('a', 'b', 'c')]],
    ['five calls in turn', 15, [[['look']], ...reads('a', 'b', 'c', 'd')]],
    [
      'a batch in changing order',
      10,
      [
        [['look'], ['read']],
        [['read'], ['look']],
      ],
    ],
    ['an unknown tool', 10, [[['no_such_tool']]]],
    ['members in another order', 10, [[['read', { a: 1, b: 2 }]], [['read', { b: 2, a: 1 }]]]],
  ])('ends when it repeats %s', async (_, requests, cycle) => {
    const played = await run(again(25, ...cycle));
    expect(played.outcome).toMatchObject({ kind: 'error', error: { code: 'loop_detected' } });
    expect(played.requests).toHaveLength(requests);
    expect(steers(played)).toBe(1);
  });

  it('continues when it finds another way after the warning', async () => {
    const played = await run([...again(5, [['look']]), ...again(4, [['read']]), END]);
    expect(played.outcome).toMatchObject({ kind: 'completed', result: 'That is all.' });
    expect(steers(played)).toBe(1);
  });

  it('is judged by the time of a command no more than by its call', async () => {
    let ms = 0;
    const shell = toolOf('shell', {
      run: () => {
        ms += 7;
        return Promise.resolve(textOutput(`hello\n(exit 0, ${ms}ms)`));
      },
    });
    const turns = again(25, [['shell', { command: 'echo hello' }]]);
    const { outcome } = await play({ turns, tools: { shell } });
    expect(outcome).toMatchObject({ error: { code: 'loop_detected' } });
  });

  it('is judged by the ID and the costs of a child no more than by its call', async () => {
    let count = 0;
    const child = (isLaunch: boolean) =>
      toolOf('child', {
        run: () => {
          count += 1;
          const result = isLaunch ? {} : { result: 'Nothing to do.' };
          const document = { thread_id: `child-${count}`, ...result, cost: { spend: count } };
          return Promise.resolve(textOutput(JSON.stringify(document, null, 2), document));
        },
      });
    const turns = [...again(12, [['child']]), END];
    const ran = await play({ turns, tools: { child: child(false) } });
    expect(ran.outcome).toMatchObject({ error: { code: 'loop_detected' } });
    const launched = await play({ turns, tools: { child: child(true) } });
    expect(launched.outcome).toMatchObject({ kind: 'completed' });
  });

  it('is asked about by error hooks, which may send it back', async () => {
    const turns = [...again(10, [['look']]), END];
    const retry = () => ({ control: 'retry' }) as const;
    const { outcome, hooks } = await play({
      turns,
      tools,
      control: (event) => (event === 'error' ? retry() : undefined),
    });
    expect(outcome).toMatchObject({ kind: 'completed' });
    expect(hooks.find(({ event }) => event === 'error')?.context).toMatchObject({
      source: 'loop',
      error: { code: 'loop_detected' },
    });
  });
});

describe('a model that makes progress', () => {
  it.each<[string, Parameters<typeof again>[1][]]>([
    ['polls and gets new results', [[['poll']]]],
    ['repeats a call beside one with new results', [[['look'], ['poll']]]],
    ['looks again between new results', [[['look']], [['poll']]]],
  ])('is left alone when it %s', async (_, cycle) => {
    const played = await run([...again(20, ...cycle), END]);
    expect(played.outcome).toMatchObject({ kind: 'completed' });
    expect(steers(played)).toBe(0);
  });

  it('is left alone below the number of repeats, and with loop_repeats 0', async () => {
    const few = await run([...again(4, [['look']]), END]);
    expect([few.outcome.kind, steers(few)]).toEqual(['completed', 0]);
    const off = await run([...again(20, [['look']]), END], { loop_repeats: 0 });
    expect([off.outcome.kind, steers(off)]).toEqual(['completed', 0]);
    const seven = await run(again(25, [['look']]), { loop_repeats: 7 });
    expect(seven.requests).toHaveLength(14);
  });

  it('may wait for its children as long as it likes', async () => {
    const { VirtualClock } = await import('./scripted.ts');
    const clock = new VirtualClock();
    const wait = toolOf('rye/agent/threads/orchestrator', {
      run: async () => {
        await clock.sleep(5000);
        return textOutput('still running');
      },
    });
    const turns = [...again(20, [['wait']]), END];
    const { outcome } = await play({ turns, tools: { wait }, ports: { clock } });
    expect(outcome).toMatchObject({ kind: 'completed' });
  });
});
