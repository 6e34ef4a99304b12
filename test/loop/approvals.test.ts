import { expect, it } from 'vitest';
import type { EventDraft } from '../../src/kernel/core/events.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type { ApprovalPort, ApprovalVerdict } from '../../src/kernel/loop/ports.ts';
import { textOutput } from '../../src/kernel/tools/tool.ts';
import { answers, planOf, play, resultText, type Script, toolOf, trace } from './scripted.ts';

const draft = (text: string): EventDraft => ({ event_type: 'note', payload: { text } });

/** People who answer each request in turn; `confirmations`: if the decision still counts then. */
function people(verdicts: readonly ApprovalVerdict[], confirmations: readonly boolean[] = []) {
  const steps: string[] = [];
  let asked = 0;
  const left = [...verdicts];
  const port: ApprovalPort = {
    review: async (calls) =>
      calls.map(({ tool }) => {
        if (tool.id !== 'rye/push') return { kind: 'allowed' };
        asked += 1;
        return { kind: 'asked', id: `apr-${asked}`, drafts: [draft(`asked apr-${asked}`)] };
      }),
    publish: async (ids) => void steps.push(`publish ${ids.join()}`),
    waitsInline: async () => true,
    wait: async () => left.shift() ?? { kind: 'waiting' },
    confirm: async (id, _call, ran) => {
      const counts = confirmations[asked - 1] ?? true;
      steps.push(`confirm ${id} ${JSON.stringify(ran?.input)} ${counts}`);
      if (!counts) return { kind: 'voided', drafts: [draft(`voided ${id}`)] };
      const use = { approval_id: id, request_sha256: 'r' };
      return { kind: 'confirmed', use, drafts: [draft(`confirmed ${id}`)] };
    },
    withdraw: async (ids) => {
      steps.push(`withdraw ${ids.join()}`);
      return [draft(`withdrawn ${ids.join()}`)];
    },
    pending: () => 0,
  };
  return { port, steps };
}

/** Plays one call of `rye/push`; `ran` has the inputs with which tools ran. */
async function ask(
  verdicts: readonly ApprovalVerdict[],
  script: Partial<Script> & { readonly confirmations?: readonly boolean[] } = {},
) {
  const { port, steps } = people(verdicts, script.confirmations);
  const ran: JsonObject[] = [];
  const tool = (id: string) =>
    toolOf(id, {
      run: (input) => {
        ran.push({ [id]: input });
        return Promise.resolve(textOutput('done'));
      },
    });
  const [push, other] = [tool('rye/push'), tool('rye/other')];
  const played = await play({
    turns: [answers('', [{ id: 'a', name: 'rye_push', input: { to: 'main' } }]), answers('Done.')],
    ...script,
    ports: {
      approvals: port,
      tools: {
        resolve: (_name, input) => {
          const found = input['to'] === 'other' ? other : push;
          const need = { verb: 'execute', item_type: 'tool', item_id: found.id } as const;
          return Promise.resolve({ kind: 'resolved', call: { tool: found, input, need } });
        },
      },
      ...script.ports,
    },
  });
  const notes = played.events.flatMap(({ event_type: type, payload }) =>
    type === 'note' ? [payload.text] : [],
  );
  return { ...played, steps, ran, notes };
}

it('a request is in the log before anyone sees it, and its decision before the call starts', async () => {
  const { ran, steps, events } = await ask([{ kind: 'approved' }]);
  expect(ran).toEqual([{ 'rye/push': { to: 'main' } }]);
  expect(steps).toEqual(['publish apr-1', 'confirm apr-1 {"to":"main"} true']);
  const order = events.flatMap(({ event_type: type, payload }) => {
    if (type === 'note') return [payload.text];
    return type === 'tool_call_start' ? ['start'] : [];
  });
  expect(order).toEqual(['asked apr-1', 'confirmed apr-1', 'start']);
});

it('no one sees a request, or the end of the wait for it, before the log has it', async () => {
  const { port } = people([{ kind: 'denied', reason: 'no', drafts: [draft('no')], ends: false }]);
  const order: string[] = [];
  await play({
    tools: { rye_push: toolOf('rye/push') },
    turns: [answers('', [{ id: 'a', name: 'rye_push' }]), answers('Done.')],
    onEvent: ({ event_type: type, payload }) => {
      if (type === 'note') order.push(payload.text);
      if (type === 'tool_settled') order.push('settled');
    },
    ports: { approvals: { ...port, publish: async () => void order.push('published') } },
  });
  expect(order).toEqual(['asked apr-1', 'published', 'no', 'settled']);
});

/** A call that starts another one in the background. */
const STARTS = toolOf('rye/execute');

it.each([
  ['a hook of the directive', 1, ['call', 'started']],
  ['a hook of the configuration, which asks in that thread again', 3, ['call']],
])('what %s asks about a call and about the one that it starts', async (_, layer, reasons) => {
  const asked: string[] = [];
  const { port } = people([]);
  const started = toolOf('rye/push');
  const need = { verb: 'execute', item_type: 'tool', item_id: 'rye/push' } as const;
  const call = { tool: STARTS, input: {}, need, starts: { tool: started, input: {}, need } };
  await play({
    turns: [answers('', [{ id: 'a', name: 'rye_execute' }]), answers('Done.')],
    ports: {
      tools: { resolve: () => Promise.resolve({ kind: 'resolved', call }) },
      hooks: {
        control: () => Promise.resolve({ fired: [] }),
        observe: () => Promise.resolve({ fired: [] }),
        gate: ({ tool }) => {
          const reason = tool === 'rye/push' ? 'started' : 'call';
          const fired = {
            id: 'h',
            layer,
            event: 'tool_gate',
            duration_ms: 0,
            matched: true,
          } as const;
          return Promise.resolve({
            decision: { control: 'ask', reason },
            fired: [{ ...fired, outcome: 'ask' }] as never,
          });
        },
      },
      approvals: {
        ...port,
        review: async ([one]) => {
          asked.push(...(one?.asks ?? []).map(({ reason }) => reason));
          return [{ kind: 'allowed' }];
        },
      },
    },
  });
  expect(asked).toEqual(reasons);
});

it('an input that a person gave passes every gate again', async () => {
  const given = { kind: 'approved', input: { to: 'release' } } as const;
  const fine = await ask([given]);
  expect(fine.ran).toEqual([{ 'rye/push': { to: 'release' } }]);
  expect(resultText(fine.events, 'a')).toContain('A person approved this call with another input');
  const gate: Script['gate'] = ({ input }) =>
    (input as JsonObject)['to'] === 'release'
      ? { decision: { control: 'fail', error: 'frozen' } }
      : {};
  const refused = await ask([given], { gate });
  expect([refused.ran, resultText(refused.events, 'a')]).toEqual([[], 'Blocked: frozen']);
  const elsewhere = await ask([{ kind: 'approved', input: { to: 'other' } }]);
  expect(elsewhere.ran).toEqual([]);
  expect(resultText(elsewhere.events, 'a')).toContain('makes it a call of rye/other');
  const unpermitted = await ask([given], {
    plan: { capabilities: ['rye.execute.tool.rye.push'] },
    ports: { gates: [({ input }) => (input['to'] === 'release' ? 'not there' : undefined)] },
  });
  expect(unpermitted.ran).toEqual([]);
});

it('a decision that does not count any more is asked for again, not for ever', async () => {
  const twice = await ask([{ kind: 'approved' }, { kind: 'approved' }], {
    confirmations: [false, true],
  });
  expect(twice.notes).toEqual(['asked apr-1', 'voided apr-1', 'asked apr-2', 'confirmed apr-2']);
  expect(twice.ran).toHaveLength(1);
  const never = await ask(
    Array.from({ length: 30 }, () => ({ kind: 'approved' }) as const),
    {
      confirmations: Array.from({ length: 30 }, () => false),
    },
  );
  expect(never.ran).toEqual([]);
  expect(resultText(never.events, 'a')).toContain('changed again and again');
});

it.each([
  ['denied', 'blocked', { kind: 'denied', reason: 'no', drafts: [draft('no')], ends: false }],
  ['late', 'blocked', { kind: 'expired', reason: 'late', drafts: [draft('late')], ends: false }],
] as const)(
  'a call that is %s is %s, with the reason in the log',
  async (_name, outcome, verdict) => {
    const { ran, events, notes, outcome: end } = await ask([verdict]);
    expect([ran, end.kind]).toEqual([[], 'completed']);
    expect(trace(events)).toContain(`settled a ${outcome}`);
    expect(notes).toEqual(['asked apr-1', verdict.reason]);
  },
);

it('a denial that ends the thread ends it after the batch', async () => {
  const { outcome } = await ask([{ kind: 'denied', reason: 'stop', drafts: [], ends: true }]);
  expect(outcome).toMatchObject({
    kind: 'error',
    error: { message: expect.stringContaining('stop') },
  });
});

it('a call that no person decides about suspends the run, and stays open', async () => {
  const { ran, outcome, events } = await ask([]);
  expect([ran, outcome.kind]).toEqual([[], 'suspended']);
  expect(outcome).toMatchObject({ approvals: ['apr-1'] });
  expect(trace(events).filter((line) => line.startsWith('settled'))).toEqual([]);
});

it('requests of a run that is canceled are taken back', async () => {
  const cancel = new AbortController();
  const { port, steps } = people([]);
  const { outcome, events } = await play({
    tools: { rye_push: toolOf('rye/push') },
    turns: [answers('', [{ id: 'a', name: 'rye_push' }])],
    signal: cancel.signal,
    ports: {
      approvals: {
        ...port,
        wait: async () => {
          cancel.abort('enough');
          return { kind: 'waiting' };
        },
      },
    },
  });
  expect(outcome.kind).toBe('cancelled');
  expect(steps).toContain('withdraw apr-1');
  expect(trace(events).join()).not.toContain('start a');
});

it.each([
  ['a call that only reads', 'rye/other', true, [false, true]],
  ['a call that may change something', 'rye/other', false, [true, false]],
  ['a reading call that a person has agreed to', 'rye/push', true, [true, false]],
])(
  'the record of %s is on the disk before it starts, or may be lost',
  async (_, id, reads, kept) => {
    const { port } = people([{ kind: 'approved' }]);
    const drafts: EventDraft[] = [];
    await play({
      tools: { tool: toolOf(id, { traits: { reads_only: reads } }) },
      turns: [answers('', [{ id: 'a', name: 'tool' }]), answers('Done.')],
      ports: { approvals: port },
      onDrafts: (written) => void drafts.push(...written),
    });
    const [durable, repeatable] = kept;
    const found = (type: string) => drafts.find(({ event_type: one }) => one === type);
    expect(found('tool_call_start')).toMatchObject({ durable, repeatable });
    expect(found('tool_settled')).toMatchObject({ repeatable });
  },
);

it.each<[string, readonly ApprovalVerdict[], number | undefined]>([
  ['agrees', [{ kind: 'approved' }], 3],
  ['gives another limit', [{ kind: 'approved', input: { limit: 'turns', to: 2 } }], 2],
  ['gives no number', [{ kind: 'approved', input: { to: 'many' } }], 3],
  ['refuses', [{ kind: 'denied', drafts: [draft('no')] } as never], undefined],
])('a hook asks for a higher limit, and the person %s', async (_, verdicts, to) => {
  const { port } = people(verdicts);
  const { events, outcome } = await play({
    plan: { limits: { ...planOf().limits, turns: 1 } },
    tools: { rye_echo: toolOf('rye/echo') },
    turns: Array.from({ length: 4 }, (_turn, at) =>
      answers('', [{ id: `c${at}`, name: 'rye_echo' }]),
    ),
    control: (event) =>
      event === 'limit' ? { control: 'ask', limit: 'turns', to: 3, reason: 'more' } : undefined,
    ports: {
      approvals: {
        ...port,
        review: async (calls) =>
          calls.map(({ tool: { id } }) =>
            id === 'rye/echo'
              ? { kind: 'allowed' }
              : { kind: 'asked', id: 'apr-1', drafts: [draft(`asked about ${id}`)] },
          ),
      },
    },
  });
  const raised = events.flatMap((event) =>
    event.event_type === 'limit_raised' ? [event.payload] : [],
  );
  expect(raised[0]).toEqual(
    to === undefined ? undefined : expect.objectContaining({ limit: 'turns', to }),
  );
  // a second request is not answered
  expect(outcome.kind).toBe(to === undefined ? 'limit' : 'suspended');
});
