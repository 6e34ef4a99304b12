import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import type { ControlAction } from '../../src/kernel/core/hook.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { composeHandlers } from '../../src/kernel/hooks/handlers.ts';
import { createExecuteTool } from '../../src/kernel/tools/primary/actions.ts';
import { validateInput } from '../../src/kernel/tools/schema.ts';
import {
  errorOutput,
  type Tool,
  type ToolContext,
  textOutput,
} from '../../src/kernel/tools/tool.ts';
import { createToolSet } from '../../src/kernel/tools/tool-set.ts';
import { runs } from '../helpers/runs.ts';
import {
  answers,
  play,
  resultText,
  type ScriptedTool,
  toolOf,
  trace,
  VirtualClock,
} from './scripted.ts';

const done = answers('Done.');
const call = (id: string, name: string, input: JsonObject = {}) => ({ id, name, input });

/** A tool that notes when it runs and waits until all `width` calls run. */
function recorder(id: string, scripted: ScriptedTool = {}) {
  const running: string[] = [];
  let peak = 0;
  const log: string[] = [];
  const tool = toolOf(id, {
    ...scripted,
    run: async (_input, { callId }) => {
      running.push(callId);
      peak = Math.max(peak, running.length);
      log.push(`+${callId}`);
      for (let tick = 0; tick < 50; tick += 1) await Promise.resolve();
      running.splice(running.indexOf(callId), 1);
      log.push(`-${callId}`);
      return textOutput(callId);
    },
  });
  return { tool, log, peak: () => peak };
}

const target = (need: Tool['need']) => ({
  rye_execute: toolOf('rye/bash', need ? { need } : {}),
});

describe('gates', () => {
  it('judge what will run, not what the call is named', async () => {
    const { events } = await play({
      plan: { capabilities: ['rye.execute.tool.rye.execute', 'rye.execute.tool.rye.ls'] },
      tools: target(() => ({ verb: 'execute', item_type: 'tool', item_id: 'rye/bash' })),
      turns: [answers('', [call('a', 'rye_execute', { item_id: 'rye/ls' })]), done],
    });
    expect(trace(events)).toContain('settled a blocked');
  });

  // Requirement: coerced-input, validation-after-gates
  it('judge again when coercion changed what will run', async () => {
    const { events } = await play({
      plan: { capabilities: ['rye.execute.tool.rye.ls'] },
      tools: target(({ item_id }) => ({
        verb: 'execute',
        item_type: 'tool',
        item_id: item_id === 1 ? 'rye/ls' : 'rye/bash',
      })),
      turns: [answers('', [call('a', 'rye_execute', { item_id: 1 })]), done],
      ports: {
        validate: () =>
          Promise.resolve({ ok: true, input: { item_id: '1' }, coerced: ['item_id'] }),
      },
    });
    expect(trace(events)).toContain('settled a blocked');
    expect(trace(events)).not.toContain('start a rye/bash');
  });

  // Requirement: coerced-input
  it('see exactly the input that the tool gets, however the model spells it', async () => {
    const types = ['number', 'integer', 'boolean', 'string', 'object', 'array'] as const;
    const value = fc.oneof(
      fc.jsonValue({ maxDepth: 2 }),
      fc.jsonValue({ maxDepth: 2 }).map((one) => JSON.stringify(one)),
      fc.constantFrom('yes', 'no', '1', '500', ' 5 ', '{"to":"evil"}', '["a"]', null),
    );
    const names = ['a', 'b', 'c'] as const;
    const schemas = fc.record({ a: fc.constantFrom(...types), b: fc.constantFrom(...types) });
    const inputs = fc.dictionary(fc.constantFrom(...names), value, { maxKeys: 3 });
    await fc.assert(
      fc.asyncProperty(schemas, inputs, async ({ a, b }, input) => {
        const ran: unknown[] = [];
        const seen: unknown[] = [];
        const tool = toolOf('rye/bash', {
          schema: { type: 'object', properties: { a: { type: a }, b: { type: b } } },
          run: (given) => {
            ran.push(given);
            return Promise.resolve(textOutput(''));
          },
        });
        await play({
          tools: { rye_bash: tool },
          turns: [answers('', [call('a', 'rye_bash', input)]), done],
          gate: (context) => {
            seen.push(context['input']);
            return {};
          },
          ports: {
            validate: validateInput,
            handlers: () => composeHandlers({ tool_gate: (given) => void seen.push(given.input) }),
          },
        });
        for (const one of ran) expect(seen).toEqual([one, one]);
      }),
      runs(100),
    );
  });

  it('judge the tool that a call starts in the background like that tool', async () => {
    const bash = toolOf('rye/bash', {
      schema: { type: 'object', properties: { n: { type: 'number' } } },
    });
    const execute = createExecuteTool({
      executeDirective: () => Promise.reject(new Error('not started')),
      executeTool: () => Promise.reject(new Error('not started')),
    });
    const set = createToolSet({
      tools: [bash, execute],
      loadTool: () => Promise.resolve(undefined),
    });
    const start = (parameters: JsonObject | string, async: unknown) => ({
      item_type: 'tool',
      item_id: 'rye/bash',
      parameters,
      async,
    });
    const calls = [
      start({ n: 500 }, true),
      start({ n: '500' }, 'yes'),
      start('{"n": "500"}', 'true'),
    ].map((input, at) => call(`c${at}`, 'rye_execute', input as JsonObject));
    const { events } = await play({
      turns: [answers('', calls), done],
      ports: { tools: set, validate: validateInput },
      gate: ({ tool, input }) =>
        tool === 'rye/bash' && (input as JsonObject)['n'] === 500
          ? { decision: { control: 'fail', error: 'too much' } }
          : {},
    });
    for (const { id } of calls) expect(resultText(events, id)).toContain('too much');
    // it counts against the budget of that tool too
    const counts: unknown[] = [];
    await play({
      turns: [answers('', calls.slice(0, 1)), answers('', calls.slice(1, 2)), done],
      ports: { tools: set, validate: validateInput },
      gate: (context) => {
        counts.push(context['run_tool_counts']);
        return {};
      },
    });
    expect(counts.at(-1)).toEqual({ 'rye/execute': 1, 'rye/bash': 1 });
  });

  // Requirement: gates-first, program-gates-first
  it('refuse before any hook is asked, and a substitute cannot undo it', async () => {
    let asked = 0;
    const { events } = await play({
      plan: { capabilities: [] },
      tools: { rye_bash: toolOf('rye/bash') },
      turns: [answers('', [call('a', 'rye_bash')]), done],
      gate: () => {
        asked += 1;
        return { substitute: textOutput('fake') };
      },
    });
    expect(asked).toBe(0);
    expect(trace(events)).toContain('settled a blocked');
  });

  // Requirement: gate-respects-decision
  it('of the integrator come before hooks, in order', async () => {
    const { events } = await play({
      tools: { rye_bash: toolOf('rye/bash') },
      turns: [answers('', [call('a', 'rye_bash')]), done],
      gate: () => ({ substitute: textOutput('fake') }),
      ports: { gates: [() => undefined, () => 'first', () => 'second'] },
    });
    expect(resultText(events, 'a')).toBe('Blocked: first');
  });

  it('let a hook replace the tool', async () => {
    const { events } = await play({
      tools: { rye_bash: toolOf('rye/bash') },
      turns: [answers('', [call('a', 'rye_bash')]), done],
      gate: () => ({ substitute: textOutput('cached') }),
    });
    expect(trace(events)).toContain('settled a substituted');
    expect(trace(events)).not.toContain('start a rye/bash');
    expect(resultText(events, 'a')).toBe('cached');
  });

  // Requirement: refusal-beats-substitute
  it('refuse when a hook both refuses and substitutes', async () => {
    const { events } = await play({
      tools: { rye_bash: toolOf('rye/bash') },
      turns: [answers('', [call('a', 'rye_bash')]), done],
      gate: () => ({ decision: { control: 'fail', error: 'no' }, substitute: textOutput('x') }),
    });
    expect(resultText(events, 'a')).toBe('Blocked: no');
  });

  it('that are cut by a cancellation leave the call unstarted, not refused', async () => {
    const cancel = new AbortController();
    const { events, outcome } = await play({
      tools: { rye_bash: toolOf('rye/bash') },
      turns: [answers('', [call('a', 'rye_bash')])],
      signal: cancel.signal,
      gate: () => {
        cancel.abort();
        return { substitute: textOutput('too late') };
      },
    });
    expect(outcome.kind).toBe('cancelled');
    expect(resultText(events, 'a')).toBe(
      'Aborted: the thread was cancelled; the call was not started',
    );
  });

  it('refuse when a hook fails, or decides what a gate cannot', async () => {
    for (const gate of [
      () => {
        throw new Error('broke');
      },
      () => ({ decision: { control: 'compact' } satisfies ControlAction }),
    ]) {
      const { events } = await play({
        tools: { rye_bash: toolOf('rye/bash') },
        turns: [answers('', [call('a', 'rye_bash')]), done],
        gate,
      });
      expect(trace(events)).toContain('settled a blocked');
    }
  });

  it.each([
    [{ control: 'abort' }, { kind: 'error', error: { code: 'aborted_by_hook' } }],
    [
      { control: 'suspend', reason: 'ask a person' },
      { kind: 'suspended', reason: 'ask a person' },
    ],
  ] as const)('end the run after the batch with %j', async (decision, expected) => {
    const { outcome, events } = await play({
      tools: { rye_bash: toolOf('rye/bash'), rye_ls: toolOf('rye/ls') },
      turns: [answers('', [call('a', 'rye_bash'), call('b', 'rye_ls')])],
      gate: ({ tool }) => (tool === 'rye/bash' ? { decision } : {}),
    });
    expect(outcome).toMatchObject(expected);
    expect(trace(events)).toContain('result b skipped');
  });
});

describe('execution', () => {
  it('writes the intent durably before an effect, and not for a reader', async () => {
    const drafts: [string, boolean | undefined][] = [];
    const { runLoop } = await import('../../src/kernel/loop/loop.ts');
    const { logOf, planOf, portsOf } = await import('./scripted.ts');
    let isWritten = false;
    const script = {
      turns: [answers('', [call('a', 'rye_write'), call('b', 'rye_ls')]), done],
      tools: {
        rye_ls: toolOf('rye/ls'),
        rye_write: toolOf('rye/write', {
          traits: { reads_only: false },
          run: () => Promise.resolve(isWritten ? textOutput('ok') : errorOutput('too early')),
        }),
      },
    };
    const facts = { requests: [], reported: [], hooks: [], artifacts: new Map<string, string>() };
    const log = logOf();
    const loop = runLoop(planOf(), portsOf(script, facts), new AbortController().signal);
    let step = await loop.next();
    while (step.done !== true) {
      for (const draft of step.value) {
        if (draft.event_type !== 'tool_call_start') continue;
        drafts.push([draft.payload.tool, draft.durable]);
        // the log takes its time; nothing may run meanwhile
        for (let tick = 0; tick < 100; tick += 1) await Promise.resolve();
        isWritten = true;
      }
      step = await loop.next(log.append(step.value));
    }
    expect(drafts).toEqual([
      ['rye/write', true],
      ['rye/ls', false],
    ]);
    expect(resultText(log.events, 'a')).toBe('ok');
  });

  // Requirement: default-parallelism, calls-sequential
  it('runs calls side by side up to tools_parallel, results in the order of the calls', async () => {
    const { tool, peak } = recorder('rye/work');
    const ids = ['a', 'b', 'c', 'd', 'e', 'f', 'g'];
    const { events } = await play({
      tools: { rye_work: tool },
      turns: [
        answers(
          '',
          ids.map((id) => call(id, 'rye_work')),
        ),
        done,
      ],
    });
    expect(peak()).toBe(4);
    expect(trace(events).filter((line) => line.startsWith('result'))).toEqual(
      ids.map((id) => `result ${id} ok`),
    );
  });

  it('records each result as soon as those before it are there', async () => {
    const ends = new Map<string, () => void>();
    const tool = toolOf('rye/work', {
      run: (_input, { callId }) =>
        new Promise((resolve) => {
          ends.set(callId, () => resolve(textOutput(callId)));
          if (ends.size === 3) ends.get('c')?.();
        }),
    });
    const { events } = await play({
      tools: { rye_work: tool },
      turns: [
        answers('', [call('a', 'rye_work'), call('b', 'rye_work'), call('c', 'rye_work')]),
        done,
      ],
      ports: { clock: new VirtualClock({ auto: false }) },
      onEvent: (event) => {
        if (event.event_type !== 'tool_settled') return;
        if (event.payload.call_id === 'c') ends.get('a')?.();
        if (event.payload.call_id === 'a') ends.get('b')?.();
      },
    });
    expect(trace(events).slice(5, 11)).toEqual([
      'settled c ok',
      'settled a ok',
      'result a ok',
      'settled b ok',
      'result b ok',
      'result c ok',
    ]);
  });

  it('runs a sequential tool alone', async () => {
    const { tool, log } = recorder('rye/work', {
      traits: { sequential: false },
    });
    const alone = { ...tool, traits: { ...tool.traits, sequential: true } };
    await play({
      tools: { rye_work: tool, rye_alone: alone },
      turns: [
        answers('', [
          call('a', 'rye_work'),
          call('b', 'rye_work'),
          call('x', 'rye_alone'),
          call('c', 'rye_work'),
        ]),
        done,
      ],
    });
    expect(log).toEqual(['+a', '+b', '-a', '-b', '+x', '-x', '+c', '-c']);
  });

  it('runs calls that write the same path one after the other', async () => {
    const { tool, log } = recorder('rye/write', {
      writes: ({ path }) => [typeof path === 'string' ? path : ''],
    });
    await play({
      tools: { rye_write: tool },
      turns: [
        answers('', [
          call('a', 'rye_write', { path: 'x/y' }),
          call('b', 'rye_write', { path: './x/../x/y' }),
          call('c', 'rye_write', { path: 'z' }),
        ]),
        done,
      ],
    });
    expect(log.indexOf('+b')).toBeGreaterThan(log.indexOf('-a'));
    expect(log.indexOf('+c')).toBeLessThan(log.indexOf('-a'));
  });

  // Requirement: sibling-calls-independent
  it('does not let one failure stop its siblings', async () => {
    const { events } = await play({
      tools: {
        rye_bad: toolOf('rye/bad', { run: () => Promise.reject(new Error('boom')) }),
        rye_ok: toolOf('rye/ok'),
      },
      turns: [answers('', [call('a', 'rye_bad'), call('b', 'rye_ok')]), done],
    });
    expect(resultText(events, 'a')).toBe('Error: boom');
    expect(trace(events)).toContain('result b ok');
  });

  it('tells the code and the hint of a rye error', async () => {
    const { events } = await play({
      tools: {
        rye_bad: toolOf('rye/bad', {
          run: () => Promise.reject(new RyeError('path_denied', 'outside', { hint: 'Stay in.' })),
        }),
      },
      turns: [answers('', [call('a', 'rye_bad')]), done],
    });
    expect(resultText(events, 'a')).toBe('Error: outside Stay in.');
    expect(events.find(({ event_type }) => event_type === 'tool_settled')?.payload).toMatchObject({
      code: 'path_denied',
    });
  });

  it('stops a call at its timeout and keeps its partial output', async () => {
    const { events, outcome } = await play({
      tools: {
        rye_slow: toolOf('rye/slow', {
          traits: { timeout_seconds: 3 },
          run: (_input, { signal }) =>
            new Promise((resolve) => {
              signal.addEventListener('abort', () => resolve(textOutput('so far')));
            }),
        }),
      },
      turns: [answers('', [call('a', 'rye_slow')]), done],
    });
    expect(trace(events)).toContain('settled a timeout');
    expect(resultText(events, 'a')).toBe(
      'Timed out: it ran longer than 3 s and was stopped\nso far',
    );
    expect(outcome.kind).toBe('completed');
  });

  it('abandons a tool that ignores its timeout', async () => {
    const { events, outcome } = await play({
      tools: {
        rye_deaf: toolOf('rye/deaf', {
          traits: { timeout_seconds: 3 },
          run: () => new Promise(() => undefined),
        }),
      },
      turns: [answers('', [call('a', 'rye_deaf')]), done],
    });
    expect(outcome.kind).toBe('completed');
    const settled = events.find(({ event_type }) => event_type === 'tool_settled');
    expect(settled?.payload).toMatchObject({ outcome: 'timeout', duration_ms: 8000 });
  });

  it('shows no progress of a call that has ended', async () => {
    let late: ToolContext | undefined;
    const { events } = await play({
      tools: {
        rye_ls: toolOf('rye/ls', {
          run: (_input, context) => {
            late = context;
            return Promise.resolve(textOutput('ok'));
          },
        }),
      },
      turns: [answers('', [call('a', 'rye_ls')]), done],
      onEvent: ({ event_type }) => {
        if (event_type === 'tool_settled') late?.progress('too late');
      },
    });
    expect(trace(events)).not.toContain('tool_call_progress');
  });

  it('shows progress while a call runs, bounded in all and in what may wait', async () => {
    const chatty = (text: string) =>
      toolOf('rye/chatty', {
        run: async (_input, context) => {
          context.progress('half');
          for (let index = 0; index < 10_000; index += 1) {
            context.progress(text);
            if (index % 100 === 0) await Promise.resolve();
          }
          return textOutput('ok');
        },
      });
    const progressOf = async (text: string): Promise<readonly string[]> => {
      const { events } = await play({
        tools: { rye_chatty: chatty(text) },
        turns: [answers('', [call('a', 'rye_chatty')]), done],
      });
      return events.flatMap(({ event_type, payload }) =>
        event_type === 'tool_call_progress' ? [payload.text] : [],
      );
    };
    const large = await progressOf('x'.repeat(1000));
    expect(large[0]).toBe('half');
    expect(large.join('').length).toBeLessThanOrEqual(256 * 1024);
    expect((await progressOf('x')).length).toBeLessThan(10_000);
  });
});

describe('large results', () => {
  // Requirement: large-result-artifact, long-results-lost
  it('go to an artifact; the model gets head, tail and path', async () => {
    const text = `${'é'.repeat(20_000)}END`;
    const { events, artifacts } = await play({
      tools: { rye_cat: toolOf('rye/cat', { run: () => Promise.resolve(textOutput(text)) }) },
      turns: [answers('', [call('a', 'rye_cat')]), done],
    });
    const shown = resultText(events, 'a');
    expect(shown).toMatch(
      /^<persisted-output tool="rye\/cat" bytes="40003" path="artifacts\/a\.txt">\né+\n…\(\d+ bytes omitted\)…\né+END\n<\/persisted-output>/,
    );
    expect(shown).toContain('Read the path in pages');
    expect(shown.length).toBeLessThan(2500);
    expect(artifacts.get('a')).toContain('END');
    expect(events.find(({ event_type }) => event_type === 'tool_settled')?.payload).toMatchObject({
      outcome: 'ok',
      output_bytes: 40_003,
      artifact: 'artifacts/a.txt',
    });
  });

  it('stay whole when persist_threshold is 0', async () => {
    const { events, artifacts } = await play({
      plan: { behavior: { persist_threshold: 0 } },
      tools: {
        rye_cat: toolOf('rye/cat', { run: () => Promise.resolve(textOutput('x'.repeat(40_000))) }),
      },
      turns: [answers('', [call('a', 'rye_cat')]), done],
    });
    expect(resultText(events, 'a')).toBe('x'.repeat(40_000));
    expect(artifacts.size).toBe(0);
  });

  // Requirement: artifact-exemptions
  it('report that they cannot be saved', async () => {
    const { events } = await play({
      tools: {
        rye_cat: toolOf('rye/cat', { run: () => Promise.resolve(textOutput('x'.repeat(40_000))) }),
      },
      turns: [answers('', [call('a', 'rye_cat')]), done],
      ports: { artifacts: { save: () => Promise.reject(new Error('disk full')) } },
    });
    expect(resultText(events, 'a')).toContain('could not be saved: disk full');
  });

  it('keep their images, unless those are too large for any model', async () => {
    const run = (data: string) => () =>
      Promise.resolve({
        content: [
          { type: 'text', text: 'x'.repeat(40_000) } as const,
          { type: 'image', media_type: 'image/png', data } as const,
        ],
        is_error: false,
      });
    const { events } = await play({
      tools: {
        rye_see: toolOf('rye/see', { run: run('A'.repeat(1000)) }),
        rye_huge: toolOf('rye/huge', { run: run('A'.repeat(6e6)) }),
      },
      turns: [answers('', [call('a', 'rye_see'), call('b', 'rye_huge')]), done],
    });
    expect(resultText(events, 'a')).toMatch(/^<persisted-output [^]*\[image\]$/);
    expect(resultText(events, 'b')).not.toContain('[image]');
  });

  // Requirement: result-shape
  it('keep images of a usual size', async () => {
    const image = { type: 'image', media_type: 'image/png', data: 'A'.repeat(100_000) } as const;
    const { events } = await play({
      tools: {
        rye_see: toolOf('rye/see', {
          run: () => Promise.resolve({ content: [image], is_error: false }),
        }),
      },
      turns: [answers('', [call('a', 'rye_see')]), done],
    });
    expect(resultText(events, 'a')).toBe('[image]');
  });
});

describe('answers with odd calls', () => {
  // Requirement: call-ids-repeat
  it('get distinct ids where a model repeats them', async () => {
    const { events, outcome, requests } = await play({
      tools: { rye_ls: toolOf('rye/ls') },
      turns: [
        answers('', [call('1', 'rye_ls'), call('1', 'rye_ls'), call('', 'rye_ls')]),
        answers('', [call('1', 'rye_ls')]),
        done,
      ],
    });
    expect(outcome.kind).toBe('completed');
    const results = trace(events).filter((line) => line.startsWith('result'));
    expect(results).toEqual(['result 1 ok', 'result 1-2 ok', 'result call-2 ok', 'result 1-3 ok']);
    const calls = requests[2]?.messages.flatMap(({ content }) =>
      content.flatMap((block) => (block.type === 'tool_call' ? [block.call_id] : [])),
    );
    expect(calls).toEqual(['1', '1-2', 'call-2', '1-3']);
  });

  it('are bounded: a thousand calls are not all run', async () => {
    const { tool, log } = recorder('rye/work');
    const ids = Array.from({ length: 1000 }, (_, index) => `c${index}`);
    const { events, outcome } = await play({
      tools: { rye_work: tool },
      turns: [
        answers(
          '',
          ids.map((id) => call(id, 'rye_work')),
        ),
        done,
      ],
    });
    expect(outcome.kind).toBe('completed');
    expect(log).toHaveLength(512);
    const results = trace(events).filter((line) => line.startsWith('result'));
    expect(results).toHaveLength(1000);
    expect(results.at(-1)).toBe('result c999 skipped');
  });
});

describe('hooks around tools', () => {
  it('see every settled call', async () => {
    const { hooks } = await play({
      tools: { rye_ls: toolOf('rye/ls') },
      turns: [answers('', [call('a', 'rye_ls'), call('b', 'nope')]), done],
    });
    const after = hooks.filter(({ event }) => event === 'tool_after').map(({ context }) => context);
    expect(after).toMatchObject([
      { call_id: 'b', outcome: 'unknown', output_bytes: expect.any(Number) as number },
      { call_id: 'a', outcome: 'ok', tool: 'rye/ls', thread_id: 'demo-1', turn: 1 },
    ]);
  });

  it('see failures as errors and may end the run', async () => {
    const { outcome, hooks } = await play({
      tools: { rye_bad: toolOf('rye/bad', { run: () => Promise.resolve(errorOutput('broken')) }) },
      turns: [answers('', [call('a', 'rye_bad')])],
      control: (event, context) =>
        event === 'error' && context['source'] === 'tool'
          ? { control: 'fail', error: 'give up' }
          : undefined,
    });
    expect(outcome).toMatchObject({ kind: 'error', error: { message: 'give up' } });
    expect(hooks.find(({ event }) => event === 'error')?.context).toMatchObject({
      tool: 'rye/bad',
      error: { message: 'broken' },
    });
  });

  it.each([
    [
      { control: 'fail', error: 'no' },
      { kind: 'error', error: { code: 'thread_error' } },
    ],
    [{ control: 'suspend', reason: 'r' }, { kind: 'suspended' }],
    [{ control: 'handoff' }, { kind: 'handoff' }],
  ] as const)('decide after a step: %j', async (action, expected) => {
    const { outcome, events } = await play({
      tools: { rye_ls: toolOf('rye/ls') },
      turns: [answers('', [call('a', 'rye_ls')])],
      control: (event) => (event === 'after_step' ? action : undefined),
    });
    expect(outcome).toMatchObject(expected);
    expect(trace(events).at(-1)).toBe('cost 1');
  });

  it('inject text only after the results, so that the pair stays together', async () => {
    const { events, requests } = await play({
      tools: { rye_ls: toolOf('rye/ls', { traits: { sequential: true } }) },
      turns: [answers('', [call('a', 'rye_ls'), call('b', 'rye_ls')]), done],
      ports: {
        hooks: {
          control: () => Promise.resolve({ fired: [] }),
          gate: () => Promise.resolve({ fired: [] }),
          observe: () =>
            Promise.resolve({
              fired: [],
              drafts: [
                {
                  event_type: 'custom_message',
                  payload: { custom_type: 'hint', content: 'Mind the gap.', display: false },
                },
              ],
            }),
        },
      },
    });
    const lines = trace(events);
    expect(lines.indexOf('inject hint')).toBeGreaterThan(lines.indexOf('result b ok'));
    expect(requests[1]?.messages.map(({ role }) => role)).toEqual([
      'user',
      'assistant',
      'tool_result',
      'tool_result',
      'user',
      'user',
    ]);
  });
});
