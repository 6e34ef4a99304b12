import * as fc from 'fast-check';
import { describe, expect, test } from 'vitest';
import type { JsonObject, JsonValue } from '../../../src/kernel/core/json.ts';
import {
  type Message,
  type ToolOutcome,
  toolCallsOf,
  userText,
} from '../../../src/kernel/core/message.ts';
import type { OutputDeclaration, ProcessCall, ProcessStep } from '../../../src/kernel/core/plan.ts';
import { NO_USAGE } from '../../../src/kernel/core/usage.ts';
import {
  type LiteralDirective,
  literalProvider,
} from '../../../src/kernel/providers/literal/provider.ts';
import { resolve, type Unresolved } from '../../../src/kernel/providers/literal/references.ts';
import type { ModelEvent, ToolDefinition } from '../../../src/kernel/providers/provider.ts';
import {
  aRequest,
  collect,
  contentIn,
  failureIn,
  grammarProblems,
} from '../../../testing/conformance/provider.ts';

function step(name: string, ...calls: readonly Partial<ProcessCall>[]): ProcessStep {
  return {
    name,
    description: `does ${name}`,
    origin: `d.md:${name.length}`,
    calls: calls.map((call) => ({
      primary: 'execute',
      item_type: 'tool',
      item_id: 'rye/first',
      params: {},
      ...call,
    })),
  };
}

function output(name: string, more: Partial<OutputDeclaration> = {}): OutputDeclaration {
  return { name, type: 'string', required: true, description: '', ...more };
}

function directive(
  steps: readonly ProcessStep[],
  more: Partial<LiteralDirective> = {},
): LiteralDirective {
  return {
    steps,
    outputs: [],
    inputs: {},
    values: {},
    alternatives: ['anthropic (set ANTHROPIC_API_KEY)'],
    ...more,
  };
}

const TOOLS: readonly ToolDefinition[] = ['rye_first', 'rye_directive_return'].map((name) => ({
  name,
  description: name,
  input_schema: { type: 'object' },
}));

interface Run {
  /** Each call as `name(arguments)`, in order. */
  readonly calls: readonly string[];
  readonly last: readonly ModelEvent[];
}

type Answer = string | { readonly text: string; readonly outcome: ToolOutcome };

/** Runs the provider as a loop would: every call is answered by `answer`, until it stops calling. */
async function run(
  spec: LiteralDirective,
  answer: (name: string, input: JsonObject) => Answer = () => 'done',
  tools = TOOLS,
): Promise<Run> {
  const messages: Message[] = [userText('go')];
  const calls: string[] = [];
  for (;;) {
    // a new provider each time: nothing but the messages may carry the progress
    const events = await collect(literalProvider(spec), aRequest({ messages, tools }));
    expect(grammarProblems(events)).toEqual([]);
    const end = events.at(-1);
    if (end?.type !== 'finish') return { calls, last: events };
    const message: Message = {
      role: 'assistant',
      content: end.content,
      provider: 'literal',
      model: 'literal',
      stop_reason: end.reason,
      usage: NO_USAGE,
    };
    messages.push(message);
    const made = toolCallsOf(message);
    if (made.length === 0) return { calls, last: events };
    for (const { call_id, name, input } of made) {
      calls.push(`${name}(${JSON.stringify(input)})`);
      const given = answer(name, input);
      const { text, outcome } =
        typeof given === 'string' ? { text: given, outcome: 'ok' as const } : given;
      messages.push({
        role: 'tool_result',
        call_id,
        name,
        content: [{ type: 'text', text }],
        outcome,
      });
      if (name === 'rye_directive_return' && outcome === 'ok') return { calls, last: events };
    }
  }
}

describe('walking', () => {
  test('executes the steps in order, then returns the text of the last one', async () => {
    const spec = directive([
      step('a', { params: { n: 1 } }),
      step('b', { params: { from: '${steps.a.text}' } }),
    ]);
    const { calls, last } = await run(spec, (_name, { n }) => (n === 1 ? 'one' : 'two'));
    expect(calls).toEqual(['rye_first({"n":1})', 'rye_first({"from":"one"})']);
    expect(contentIn(last)).toEqual([{ type: 'text', text: 'two' }]);
  });

  test('announces each step', async () => {
    const events = await collect(
      literalProvider(directive([step('a', {})])),
      aRequest({ tools: TOOLS }),
    );
    expect(contentIn(events)).toEqual([
      { type: 'text', text: 'Step 1 of 1: does a\n' },
      { type: 'tool_call', call_id: 'literal-1-1', name: 'rye_first', input: {} },
    ]);
  });

  test('sends the calls of one step together; later steps see all their results', async () => {
    const spec = directive([
      step('both', { params: { n: 1 } }, { params: { n: 2 } }),
      step('after', { params: { text: '${steps.both.text}', second: '${steps.both.data.1.v}' } }),
    ]);
    const { calls } = await run(spec, (_name, { n }) => `{"v":${JSON.stringify(n)}}`);
    expect(calls[2]).toBe('rye_first({"text":"{\\"v\\":1}\\n{\\"v\\":2}","second":2})');
  });

  test.for([
    [['rye_first'], {}, 'rye_first({"n":1})'],
    [
      ['rye_execute'],
      {},
      'rye_execute({"item_type":"tool","item_id":"rye/first","parameters":{"n":1}})',
    ],
    [[], {}, 'rye_first({"n":1})'],
    [
      ['rye_first'],
      { item_type: 'directive', item_id: 'x/y' },
      'rye_execute({"item_type":"directive","item_id":"x/y","parameters":{"n":1}})',
    ],
    [
      ['rye_fetch'],
      { primary: 'fetch', item_type: 'knowledge' },
      'rye_fetch({"item_type":"knowledge","item_id":"rye/first","n":1})',
    ],
    [
      [],
      { primary: 'sign', item_type: 'directive' },
      'rye_sign({"item_type":"directive","item_id":"rye/first","n":1})',
    ],
  ] as const)('with %j offered, %j goes out as %s', async ([offered, call, expected]) => {
    const tools = offered.map((name) => ({ name, description: '', input_schema: {} }));
    const { calls } = await run(
      directive([step('a', { params: { n: 1 }, ...call })]),
      () => 'ok',
      tools,
    );
    expect(calls).toEqual([expected]);
  });

  test('a long result is streamed in pieces that never cut a character', async () => {
    const words = '🙂é'.repeat(2000);
    const { last } = await run(directive([step('a', {})]), () => words);
    const deltas = last.flatMap((event) => (event.type === 'text_delta' ? [event.text] : []));
    expect(deltas.length).toBeGreaterThan(10);
    expect(deltas.every((text) => !/^[\uDC00-\uDFFF]|[\uD800-\uDBFF]$/.test(text))).toBe(true);
    expect(deltas.join('')).toBe(words);
  });

  test('a message in between, such as a steer, changes nothing', async () => {
    const spec = directive([step('a', {}), step('b', { params: { x: '${steps.a.text}' } })]);
    const messages: Message[] = [
      userText('go'),
      {
        role: 'tool_result',
        call_id: 'literal-1-1',
        name: 'rye_first',
        content: [],
        outcome: 'ok',
      },
      userText('hurry'),
    ];
    const events = await collect(literalProvider(spec), aRequest({ messages, tools: TOOLS }));
    expect(contentIn(events)).toMatchObject([{}, { call_id: 'literal-2-1', input: { x: '' } }]);
  });
});

describe('outputs', () => {
  const report = '{"files": 3, "names": ["a"], "ok": true}';
  const cases: [OutputDeclaration, JsonValue][] = [
    [output('x'), report],
    [output('x', { from: '${steps.s.text}' }), report],
    [output('x', { from: '${steps.s.data.files}', type: 'integer' }), 3],
    [output('x', { from: '${steps.s.data.files}' }), '3'],
    [output('x', { from: '${steps.s.data.names}', type: 'array' }), ['a']],
    [output('x', { from: '${inputs.name}.md' }), 'Ada.md'],
    [output('x', { from: '7', type: 'number' }), 7],
    [output('files', { type: 'integer' }), 3],
    [output('ok', { type: 'boolean' }), true],
  ];

  test.for(cases)('%j is returned as %j', async ([declared, expected]) => {
    const spec = directive([step('s', {})], { outputs: [declared], inputs: { name: 'Ada' } });
    const { calls, last } = await run(spec, (name) => (name === 'rye_first' ? report : 'ok'));
    expect(calls[1]).toBe(`rye_directive_return(${JSON.stringify({ [declared.name]: expected })})`);
    expect(last.at(-1)).toMatchObject({ type: 'finish', reason: 'tool_calls' });
  });

  test('an optional output without a value is skipped, a required one is an error', async () => {
    const optional = output('x', { from: '${steps.s.data.nope}', required: false });
    const { calls } = await run(directive([step('s', {})], { outputs: [optional] }), () => report);
    expect(calls[1]).toBe('rye_directive_return({})');
    const required = await run(
      directive([step('s', {})], { outputs: [{ ...optional, required: true }] }),
      () => report,
    );
    expect(failureIn(required.last)).toEqual({
      phase: 'response',
      type: 'literal_step_failed',
      message: 'the output "x": ${steps.s.data.nope} has no value; use one of files, names, ok',
    });
  });

  test('outputs that are refused end in an error, not in another try', async () => {
    const spec = directive([step('s', {})], { outputs: [output('x')] });
    const { calls, last } = await run(spec, (name) =>
      name === 'rye_first' ? 'text' : { text: 'x is too short', outcome: 'error' },
    );
    expect(calls).toHaveLength(2);
    expect(failureIn(last).message).toBe('the outputs were refused: x is too short');
  });
});

describe('what it cannot follow', () => {
  test.for([
    ['no steps', directive([]), 'no <process>'],
    ['a step of prose', directive([step('a', {}), step('think')]), 'step 2 "think" (d.md:5)'],
    [
      'a reference to a later step',
      directive([step('a', { params: { deep: [{ x: '${steps.b.text}' }] } }), step('b', {})]),
      'step 1 "a" (d.md:1) refers to the step "b"',
    ],
    ['a reference to itself', directive([step('a', { params: { x: '${steps.a.text}' } })]), '"a"'],
  ] as const)('%s is told before anything runs', async ([, spec, expected]) => {
    const { calls, last } = await run(spec);
    expect(calls).toEqual([]);
    expect(failureIn(last)).toMatchObject({ phase: 'response', type: 'literal_unsupported' });
    expect(failureIn(last).message).toContain(expected);
  });

  test('the providers that could are named', async () => {
    const { last } = await run(directive([step('think')]));
    expect(failureIn(last).message).toContain('anthropic (set ANTHROPIC_API_KEY)');
  });

  test.for([
    ['error', 'failed'],
    ['blocked', 'was refused'],
    ['timeout', 'timed out'],
    ['aborted', 'was cancelled'],
    ['unknown', 'is unknown'],
    ['invalid', 'got wrong arguments'],
    ['skipped', 'was skipped'],
  ] as const)(
    'a step that ended with %s stops the thread with the ID of the item and the reason',
    async ([outcome, words]) => {
      const spec = directive([step('a', {}), step('b', {})]);
      const { calls, last } = await run(spec, () => ({ text: `because of ${outcome}`, outcome }));
      expect(calls).toHaveLength(1);
      expect(failureIn(last)).toEqual({
        phase: 'response',
        type: 'literal_step_failed',
        message: `step "a" (d.md:1): rye/first ${words}: because of ${outcome}`,
      });
    },
  );

  test('a substituted result is a result', async () => {
    const { last } = await run(directive([step('a', {})]), () => ({
      text: 'cached',
      outcome: 'substituted',
    }));
    expect(contentIn(last)).toEqual([{ type: 'text', text: 'cached' }]);
  });

  test('a reference without a value names what there is', async () => {
    const spec = directive([step('a', {}), step('b', { params: { x: '${steps.a.data.filez}' } })]);
    const { last } = await run(spec, () => '{"files": 1}');
    expect(failureIn(last).message).toBe(
      'step "b" (d.md:1): ${steps.a.data.filez} has no value; use one of files',
    );
  });
});

describe('expressions', () => {
  const scope = {
    steps: { s: { text: 'T', data: { n: 1, list: [{ x: 'deep' }], none: null } } },
    inputs: { k: 'v', tricky: '${steps.s.text}', number: 5 },
    locals: {},
    values: { '{input:t}': '${inputs.k}', '{input:t:x}': 'T', '{input:list}': ['${inputs.k}'] },
  };
  test.for<[JsonValue, JsonValue]>([
    ['${steps.s.data.n}', 1],
    [' ${inputs.number} ', 5],
    ['n=${steps.s.data.n}', 'n=1'],
    ['${steps.s.data.list}', [{ x: 'deep' }]],
    ['${steps.s.data.list.0.x}', 'deep'],
    ['${steps.s.data.none}', null],
    ['${inputs.k}${inputs.k}', 'vv'],
    ['${ steps.s.text }', 'T'],
    // brought in, not looked at again
    ['${inputs.tricky}!', '${steps.s.text}!'],
    ['{input:t}{input:t:x}', '${inputs.k}T'],
    ['{input:list}', ['${inputs.k}']],
    [' {input:list}', ' ["${inputs.k}"]'],
    // not ours
    ['echo ${HOME} $(x) {input:k}', 'echo ${HOME} $(x) {input:k}'],
    [
      { a: ['${inputs.k}', 2], b: true },
      { a: ['v', 2], b: true },
    ],
  ])('%j is %j', ([value, expected]) => {
    const unresolved: Unresolved[] = [];
    expect(resolve(value, scope, unresolved)).toEqual(expected);
    expect(unresolved).toEqual([]);
  });

  test.for([
    '${steps.s.data.__proto__}',
    '${inputs.constructor}',
    '${steps.toString.text}',
    '${inputs.k.length}',
  ])('%s reaches nothing', (value) => {
    const unresolved: Unresolved[] = [];
    expect(resolve(value, scope, unresolved)).toBe(value);
    expect(unresolved).toHaveLength(1);
  });

  test('no value is expanded, and no two values form a reference', () => {
    const pieces = [
      '$',
      '{',
      '}',
      '${',
      '${inputs.k}',
      '${steps.s.text}',
      '${f}',
      '{input:a}',
      '$&',
    ];
    const data = fc.oneof(
      fc.array(fc.constantFrom(...pieces, 'x'), { maxLength: 4 }).map((parts) => parts.join('')),
      fc.string({ maxLength: 5 }),
    );
    const names = [
      '{input:a}',
      '${inputs.b}',
      '${inputs.c.d}',
      '${steps.s.text}',
      '${f}',
      '${f.g}',
    ];
    const template = fc.array(fc.constantFrom(...names, '-'), { minLength: 1, maxLength: 5 });
    fc.assert(
      fc.property(fc.tuple(data, data, data, data, data), template, ([a, b, d, text, g], parts) => {
        const hostile = {
          steps: { s: { text } },
          inputs: { k: 'expanded', c: { d } },
          locals: { f: { g } },
          values: { '{input:a}': a, '${inputs.b}': b },
        };
        const written: Record<string, string> = {
          '{input:a}': a,
          '${inputs.b}': b,
          '${inputs.c.d}': d,
          '${steps.s.text}': text,
          '${f}': JSON.stringify({ g }),
          '${f.g}': g,
        };
        const expected = parts.map((part) => written[part] ?? part).join('');
        // one reference alone keeps its type
        const found = resolve([parts.join('')], hostile, []);
        expect(found).toEqual([parts.join('') === '${f}' ? { g } : expected]);
      }),
      { numRuns: 500, seed: 11 },
    );
  });

  test('values without references come back as they are', () => {
    fc.assert(
      fc.property(fc.jsonValue(), (value) => {
        const plain = JSON.parse(JSON.stringify(value).replaceAll('$', 'S')) as JsonValue;
        expect(JSON.stringify(resolve(plain, scope, []))).toBe(JSON.stringify(plain));
      }),
      { numRuns: 200, seed: 7 },
    );
  });
});
