import { expect, it } from 'vitest';
import { AnswerWatch } from '../../../src/features/rules/stream/answer-watch.ts';
import { RyeError } from '../../../src/kernel/core/errors.ts';
import type { EventDraft, LogEvent } from '../../../src/kernel/core/events.ts';
import { type Message, textOf } from '../../../src/kernel/core/message.ts';
import type { PlannedRule } from '../../../src/kernel/core/plan.ts';
import { foldContext } from '../../../src/kernel/log/context.ts';
import { buildTree } from '../../../src/kernel/log/tree.ts';
import { runLoop } from '../../../src/kernel/loop/loop.ts';
import type { ModelEvent } from '../../../src/kernel/providers/provider.ts';
import { errorOutput } from '../../../src/kernel/tools/tool.ts';
import {
  answers,
  type Call,
  fails,
  hangs,
  logOf,
  type Played,
  planOf,
  play,
  portsOf,
  type Script,
  toolOf,
  VirtualClock,
} from '../scripted.ts';
import { call, ruleOf, type SessionChanges, sessionOf, told, WRITE } from './helpers.ts';

const BAD = ruleOf('no-bad', 'BAD');
const NEVER = ruleOf('mild', 'MILD', { interrupt: 'never' });
const TOOLS = { [WRITE]: toolOf('rye/file-system/write') };

/** An answer whose calls are streamed too. */
function answersStreamed(text: string, calls: readonly Call[]): ModelEvent[] {
  const whole = answers(text, calls);
  const streamed = calls.flatMap(({ id, name, input = {} }) => call(name, input, { id }));
  return [...whole.slice(0, -2), ...streamed, ...whole.slice(-2)];
}

function write(id: string, content: string): Call {
  return { id, name: WRITE, input: { path: `${id}.ts`, content } };
}

interface Watched extends Script {
  readonly rules: readonly PlannedRule[];
  readonly session?: SessionChanges;
}

async function watched({ rules, session: changes, ports, ...script }: Watched): Promise<Played> {
  const session = sessionOf(rules, changes);
  return await play({
    // a directive with tools whose model uses none is asked once more
    ...(script.turns.some((turn) => Array.isArray(turn) && turn.some(isCall))
      ? { tools: TOOLS }
      : {}),
    ...script,
    ports: {
      projectPath: '/home/ada/project',
      watchStream: (turn, record) => new AnswerWatch(session, turn, record),
      ...ports,
    },
  });
}

function isCall({ type }: ModelEvent): boolean {
  return type === 'toolcall_start';
}

const typesOf = (events: readonly LogEvent[], ...wanted: readonly string[]): string[] =>
  events.map(({ event_type }) => event_type).filter((type) => wanted.includes(type));

const shown = (message: Message | undefined): string => textOf(message?.content ?? []);

const injections = (events: readonly LogEvent[]): readonly string[] =>
  events.flatMap((event) => told([event as EventDraft]));

it('an interrupt cuts at once, records the partial, the injection and the message in this order, then asks again', async () => {
  const { outcome, events, requests } = await watched({
    rules: [BAD],
    turns: [hangs('this is BAD'), answers('Good.')],
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'Good.' });
  const entries = events.filter(({ id }) => id !== undefined);
  expect(entries.map(({ event_type }) => event_type)).toEqual([
    'message',
    'context_edit',
    'rule_injection',
    'custom_message',
    'message',
  ]);
  expect(entries[0]?.payload).toMatchObject({
    message: { stop_reason: 'aborted', content: [{ text: 'this is BAD' }] },
  });
  expect(entries[1]?.payload).toMatchObject({ target_id: entries[0]?.id, action: 'omit' });
  expect(entries[2]?.payload).toEqual({ rules: [{ name: 'no-bad', sha256: BAD.sha256 }], turn: 1 });
  expect(entries[3]?.payload).toMatchObject({ display: false, details: { rules: ['no-bad'] } });
  const [, reminder] = requests[1]?.messages ?? [];
  expect(shown(reminder)).toMatch(
    /^<system-interrupt reason="rule_violation" rule="no-bad">[^]*Do not write no-bad\.\n<\/system-interrupt>$/,
  );
  expect(requests[1]?.messages).toHaveLength(2);
});

it('a reload of the log gives the context that the model saw', async () => {
  for (const context_mode of ['discard', 'keep'] as const) {
    const { events, requests } = await watched({
      rules: [BAD],
      session: { settings: { context_mode } },
      turns: [hangs('BAD'), answers('Good.')],
    });
    const { messages } = foldContext(buildTree(events));
    expect(messages.slice(0, -1)).toEqual(requests[1]?.messages.slice(1));
  }
});

it('keep leaves the partial in view, without calls that were never run', async () => {
  const { requests } = await watched({
    rules: [BAD],
    session: { settings: { context_mode: 'keep' } },
    turns: [answersStreamed('I write.', [write('a', 'BAD')]), answers('Good.')],
  });
  expect(requests[1]?.messages[1]).toMatchObject({
    role: 'assistant',
    content: [{ type: 'text', text: 'I write.' }],
  });
});

it('a call that breaks an interrupting rule is never run', async () => {
  let runs = 0;
  const run = () => {
    runs += 1;
    return Promise.resolve(errorOutput('no'));
  };
  const { requests } = await watched({
    rules: [BAD],
    tools: { [WRITE]: toolOf('rye/file-system/write', { run }) },
    turns: [answersStreamed('', [write('a', 'BAD')]), answers('Good.')],
  });
  expect(runs).toBe(0);
  expect(shown(requests[1]?.messages[1])).toContain('rule="no-bad" path="a.ts"');
});

it('an aborted partial is paid for', async () => {
  const usage = { input_tokens: 70, output_tokens: 7, cache_read_tokens: 0, cache_write_tokens: 0 };
  const spoken: ModelEvent[] = [
    { type: 'start', model: 'model-1' },
    { type: 'usage', usage },
    { type: 'text_delta', text: 'BAD' },
  ];
  const { outcome } = await watched({ rules: [BAD], turns: [spoken, answers('Good.')] });
  expect(outcome.cost).toMatchObject({ turns: 2, input_tokens: 170, output_tokens: 17 });
});

it('a reminder comes before the result of its call, which stays as it is, and costs no turn', async () => {
  const { events, requests, outcome } = await watched({
    rules: [NEVER],
    turns: [answersStreamed('', [write('a', 'MILD')]), answers('Good.')],
  });
  const [, , result] = requests[1]?.messages ?? [];
  expect(result).toMatchObject({
    role: 'tool_result',
    content: [
      {
        type: 'text',
        text: expect.stringMatching(
          /^<system-reminder reason="rule_violation" rule="mild" path="a.ts">/,
        ),
      },
      { type: 'text', text: 'rye/file-system/write done' },
    ],
  });
  expect(outcome.cost.turns).toBe(2);
  expect(typesOf(events, 'rule_matched', 'rule_injection', 'message').slice(0, 4)).toEqual([
    'rule_matched',
    'message',
    'message',
    'rule_injection',
  ]);
});

it('of sibling calls that break one rule, one gets the reminder; several rules may share a call', async () => {
  const other = ruleOf('other', 'OTHER', { interrupt: 'never' });
  const { requests } = await watched({
    rules: [NEVER, other],
    turns: [
      answersStreamed('', [write('a', 'MILD OTHER'), write('b', 'MILD'), write('c', 'MILD')]),
      answers('Good.'),
    ],
  });
  const results = requests[1]?.messages.slice(2).map(shown) ?? [];
  expect(results.map((text) => text.split('<system-reminder ').length - 1)).toEqual([2, 0, 0]);
  expect(results[0]).toContain('</system-reminder>\n\n<system-reminder');
});

it('a large result does not push its reminder into the artifact', async () => {
  const run = () => Promise.resolve(errorOutput('x'.repeat(100_000)));
  const { requests } = await watched({
    rules: [NEVER],
    tools: { [WRITE]: toolOf('rye/file-system/write', { run }) },
    turns: [answersStreamed('', [write('a', 'MILD')]), answers('Good.')],
  });
  expect(shown(requests[1]?.messages[2])).toMatch(/^<system-reminder [^]*<persisted-output/);
});

it('a match in prose is told once after the answer, and after its results where it made calls', async () => {
  const plain = await watched({ rules: [NEVER], turns: [answers('MILD MILD'), answers('Good.')] });
  expect(plain.requests[1]?.messages.map(({ role }) => role)).toEqual([
    'user',
    'assistant',
    'user',
  ]);
  expect(shown(plain.requests[1]?.messages[2])).toContain('<system-reminder');
  expect(injections(plain.events)).toEqual(['mild']);
  const calling = await watched({
    rules: [NEVER],
    turns: [answersStreamed('MILD', [write('a', 'x')]), answers('Good.')],
  });
  expect(calling.requests[1]?.messages.map(({ role }) => role)).toEqual([
    'user',
    'assistant',
    'tool_result',
    'user',
  ]);
});

it('a match in a failed answer is forgotten, and counts in the retry', async () => {
  const { events, requests } = await watched({
    rules: [NEVER],
    turns: [
      fails({ phase: 'stream' }, answers('MILD').slice(0, 2)),
      answers('MILD'),
      answers('Good.'),
    ],
  });
  expect(injections(events)).toEqual(['mild']);
  expect(typesOf(events, 'rule_matched')).toHaveLength(2);
  expect(requests).toHaveLength(3);
});

it('a call that no tool ran leaves its rule for the next time', async () => {
  const { events } = await watched({
    rules: [NEVER],
    turns: [
      answersStreamed('', [{ ...write('a', 'MILD'), name: 'unknown_tool' }]),
      answersStreamed('', [write('b', 'MILD')]),
      answers('Good.'),
    ],
  });
  expect(injections(events)).toEqual(['mild']);
  expect(typesOf(events, 'rule_matched')).toHaveLength(2);
});

it('a cancel between the cut and the next turn wins: nothing is told, and the partial is on record', async () => {
  const abort = new AbortController();
  const { outcome, events, requests } = await watched({
    rules: [BAD],
    turns: [hangs('BAD'), answers('Good.')],
    signal: abort.signal,
    onEvent: (event) => {
      if (event.event_type === 'message' && event.payload.message.role === 'assistant')
        abort.abort();
    },
  });
  expect(outcome.kind).toBe('cancelled');
  expect(injections(events)).toEqual([]);
  expect(typesOf(events, 'message')).toHaveLength(1);
  expect(requests).toHaveLength(1);
});

it('a retry waits for the record of the cut answer, however long that takes, and is never dropped', async () => {
  const session = sessionOf([BAD]);
  const script: Script = {
    turns: [hangs('BAD'), answers('Good.')],
    // this clock does not advance
    ports: {
      clock: new VirtualClock({ auto: false }),
      watchStream: (turn, record) => new AnswerWatch(session, turn, record),
    },
  };
  const facts = {
    requests: [] as never[],
    reported: [],
    hooks: [],
    artifacts: new Map<string, string>(),
  };
  const log = logOf();
  const loop = runLoop(planOf(), portsOf(script, facts), new AbortController().signal);
  const asked: number[] = [];
  let step = await loop.next();
  while (step.done !== true) {
    const isPartial = step.value.some(({ event_type }) => event_type === 'message');
    // a slow disk: many turns of the event loop pass before the record is there
    if (isPartial) for (let n = 0; n < 100; n += 1) await new Promise(setImmediate);
    asked.push(facts.requests.length);
    step = await loop.next(log.append(step.value));
  }
  expect(step.value).toMatchObject({ kind: 'completed', result: 'Good.' });
  expect(injections(log.events)).toEqual(['no-bad']);
  // with the partial, its edit, the injection and the message still to be written nothing was asked
  expect(asked.slice(0, -4).every((count) => count <= 1)).toBe(true);
});

it('a log that cannot take the record ends the run instead of asking again', async () => {
  const session = sessionOf([BAD]);
  const script: Script = {
    turns: [hangs('BAD'), answers('Good.')],
    // this clock does not advance
    ports: {
      clock: new VirtualClock({ auto: false }),
      watchStream: (turn, record) => new AnswerWatch(session, turn, record),
    },
  };
  const facts = {
    requests: [] as never[],
    reported: [],
    hooks: [],
    artifacts: new Map<string, string>(),
  };
  const log = logOf();
  const loop = runLoop(planOf(), portsOf(script, facts), new AbortController().signal);
  let step = await loop.next();
  while (step.done !== true) {
    const isPartial = step.value.some(({ event_type }) => event_type === 'message');
    step = isPartial
      ? await loop.throw(new RyeError('log_write_failed', 'the disk is full'))
      : await loop.next(log.append(step.value));
  }
  expect(step.value).toMatchObject({ kind: 'error', error: { code: 'log_write_failed' } });
  expect(facts.requests).toHaveLength(1);
});

it('a rule without end stops at its cap, and the answers after it get reminders', async () => {
  const loud = ruleOf('loud', 'BAD', { repeat: 'after-gap', gap: 0 });
  const { outcome, events, requests } = await watched({
    rules: [loud],
    turns: [
      ...Array.from({ length: 3 }, () => hangs('BAD')),
      answers('still BAD'),
      answers('Good.'),
    ],
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'Good.' });
  expect(requests).toHaveLength(5);
  const interrupted = events.flatMap((event) =>
    event.event_type === 'rule_matched' ? [event.payload['interrupted']] : [],
  );
  expect(interrupted).toEqual([true, true, true, false]);
});

it('a run has one cap over all rules', async () => {
  const rules = ['A1', 'A2', 'A3'].map((word) =>
    ruleOf(word, word, { repeat: 'after-gap', gap: 0 }),
  );
  const { requests, outcome } = await watched({
    rules,
    session: { settings: { max_interrupts_per_run: 2 } },
    turns: [hangs('A1'), hangs('A2'), answers('A3')],
  });
  expect(requests).toHaveLength(3);
  expect(outcome).toMatchObject({ kind: 'completed', result: 'A3' });
});

it('reminders count toward the cap, in prose and beside results; matches after it are only recorded', async () => {
  const mild = ruleOf('mild', 'MILD', { interrupt: 'never', repeat: 'after-gap', gap: 0 });
  const { outcome, events, requests } = await watched({
    rules: [mild, NEVER, ruleOf('other', 'OTHER', { interrupt: 'never' })],
    session: { settings: { max_interrupts_per_run: 3 } },
    turns: [
      answers('MILD'),
      answersStreamed('', [write('a', 'MILD'), write('b', 'OTHER')]),
      answersStreamed('', [write('c', 'MILD')]),
      answers('MILD'),
    ],
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'MILD' });
  expect(requests).toHaveLength(4);
  expect(typesOf(events, 'rule_injection')).toHaveLength(3);
  const outcomes = events.flatMap((event) =>
    event.event_type === 'rule_matched' ? [event.payload['outcome']] : [],
  );
  expect(outcomes).toEqual([
    'reminded',
    'reminded',
    'reminded',
    'reminded',
    'recorded',
    'recorded',
  ]);
});

it('hooks hear of each rule that was broken, after the cut, with its facts', async () => {
  const { hooks } = await watched({
    rules: [BAD, NEVER],
    turns: [answersStreamed('', [write('a', 'MILD')]), hangs('BAD'), answers('Good.')],
  });
  const heard = hooks
    .filter(({ event }) => event === 'rule_triggered')
    .map(({ context }) => context);
  expect(heard).toMatchObject([
    {
      rule: 'mild',
      stream: 'tool',
      tool: 'rye/file-system/write',
      path: 'a.ts',
      interrupted: false,
      turn: 1,
    },
    { rule: 'no-bad', stream: 'text', interrupted: true, turn: 2 },
  ]);
});

it('a reminder and an interrupt in one run both arrive, each once', async () => {
  const { events, outcome } = await watched({
    rules: [NEVER, BAD],
    turns: [answers('MILD'), hangs('BAD'), answers('Good.')],
  });
  expect(outcome).toMatchObject({ kind: 'completed', result: 'Good.' });
  expect(injections(events)).toEqual(['mild', 'no-bad']);
});
