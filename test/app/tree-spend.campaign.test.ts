import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { isFinal } from '../../src/kernel/core/thread.ts';
import { priceMicroUsd, toMicroUsd } from '../../src/kernel/core/usage.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import {
  calls,
  reply,
  toolUse,
  type WireRequest,
  type WireStep,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

/** `calls`: side by side; `list`: by a directive that goes through a list; `async`: each in a separate process. */
type How = 'calls' | 'list' | 'async';

/** A thread: each answer but the last starts the children of one batch. */
interface Node {
  readonly batches: readonly { readonly how: How; readonly children: readonly Node[] }[];
  /** The share of `max_tokens` that its answers use, in turn. */
  readonly answers: readonly number[];
  /** USD that its parent gives it; undefined: the default share. */
  readonly spend: number | undefined;
  /** Its first answer also makes a call about which a person is asked. */
  readonly asks: boolean;
}

const { node } = fc.letrec<{ node: Node }>((tie) => {
  const batch = fc.record({
    how: fc.constantFrom('calls' as const, 'calls' as const, 'list' as const),
    children: fc.array(tie('node'), { minLength: 1, maxLength: 3 }),
  });
  return {
    node: fc.record({
      batches: fc.oneof(
        { depthSize: 'small', withCrossShrink: true },
        fc.constant([]),
        fc.array(batch, { minLength: 1, maxLength: 2 }),
      ),
      answers: fc.array(fc.constantFrom(0, 0.01, 0.3, 1), { minLength: 1, maxLength: 3 }),
      spend: fc.constantFrom(undefined, 0.005, 0.05, 0.4),
      asks: fc.constantFrom(false, false, false, true),
    }),
  };
});

const HOOKS = `hooks:
  - id: judge
    event: after_step
    condition: { path: directive, op: eq, value: team/node }
    action: { primary: execute, item_type: directive, item_id: team/judge, params: {} }
`;
/** A window that is full after every turn. */
const HANDS_OFF = 'continuation: { mode: handoff, trigger_threshold: 0.0001 }\n';

/** A tree below \`root\`, found by the places of its nodes. */
function at(root: Node, place: string): Node | undefined {
  let found: Node | undefined = root;
  for (const step of place.split('/').slice(1)) {
    const [batch = 0, child = 0] = step.split('.').map(Number);
    found = found?.batches[batch]?.children[child];
  }
  return found;
}

interface Server {
  readonly root: Node;
  readonly bytesPerToken: number;
  readonly pricing: Parameters<typeof priceMicroUsd>[1];
  /** The number of the request after which the root is canceled; 0: none. */
  readonly stopAt: number;
  readonly stop: () => void;
}

/** Answers for a tree, and counts what it answers as a bill would. */
class Counter {
  microUsd = 0;
  readonly #server: Server;
  /** Answers so far, by place: a handoff shortens the conversation. */
  readonly #turns = new Map<string, number>();
  #calls = 0;

  constructor(server: Server) {
    this.#server = server;
  }

  /** The places of the threads that were answered. */
  get places(): readonly string[] {
    return [...this.#turns.keys()].filter((place) => place !== '-').toSorted();
  }

  answer({ body, closed }: WireRequest): WireTurn {
    const { root, bytesPerToken, stopAt, stop } = this.#server;
    this.#calls += 1;
    const place = /NODE-([\d./]*)/.exec(JSON.stringify(body.messages))?.[1];
    const input_tokens = Math.ceil(JSON.stringify(body).length / bytesPerToken);
    if (this.#calls === stopAt) {
      this.#bill({ input_tokens, output_tokens: 1 });
      stop();
      return { steps: [{ kind: 'wait', until: closed }], usage: { input_tokens } };
    }
    const own = place === undefined ? undefined : at(root, place);
    const turn = this.#turns.get(place ?? '-') ?? 0;
    this.#turns.set(place ?? '-', turn + 1);
    const share = own?.answers[turn % own.answers.length] ?? 0.1;
    const usage = { input_tokens, output_tokens: Math.max(1, Math.floor(share * body.max_tokens)) };
    this.#bill(usage);
    const steps = own && place !== undefined ? this.#callsOf(own, place, turn) : [];
    return steps.length === 0 ? reply('Done.', usage) : { ...calls(...steps), usage };
  }

  #callsOf({ batches, asks }: Node, place: string, turn: number): readonly WireStep[] {
    const { how, children } = batches[turn] ?? { how: 'calls', children: [] };
    const places = children.map((_, child) => `${place}/${turn}.${child}`);
    const id = `c${this.#calls}`;
    const note = { path: `note${place.replaceAll(/\W/g, '-')}.txt`, content: 'x' };
    const asked = asks && turn === 0 ? [toolUse('rye_file_system_write', note, `${id}-w`)] : [];
    const directive = { item_type: 'directive' };
    if (how === 'list') {
      const input = { ...directive, item_id: 'team/each', parameters: { places } };
      return [...asked, toolUse('rye_execute', input, `${id}-l`)];
    }
    const own = children.map(({ spend }, child) => {
      const item = { ...directive, item_id: 'team/node', parameters: { place: places[child] } };
      const limit_overrides = spend === undefined ? {} : { limit_overrides: { spend } };
      const input = { ...item, ...limit_overrides, ...(how === 'async' ? { async: true } : {}) };
      return toolUse('rye_execute', input, `${id}-${child}`);
    });
    return [...asked, ...own];
  }

  #bill(usage: { readonly input_tokens: number; readonly output_tokens: number }): void {
    const none = { cache_read_tokens: 0, cache_write_tokens: 0 };
    this.microUsd += priceMicroUsd({ ...usage, ...none }, this.#server.pricing);
  }
}

/** A project whose model is a counter, with the directives of the trees. */
class Grove {
  counter: Counter | undefined;
  readonly #seen = new Set<string>();
  readonly rye: Rye;

  private constructor(rye: Rye) {
    this.rye = rye;
  }

  /** `hands`: every thread hands off; `processes`: children may run in separate ones. */
  static async plant({ hands = false, processes = false } = {}): Promise<Grove> {
    let grove: Grove | undefined;
    const lab = await libraryLab(
      (request) => grove?.counter?.answer(request) ?? reply('No tree is under test.'),
    );
    // what waits is resumed here alone: a process that does it too would answer into the next trial
    const idle = path.join(lab.project, 'idle.mjs');
    writeFileSync(idle, '');
    const program = processes ? path.join(await cliPackage(), 'bin/rye.js') : idle;
    const rye = lab.open({ program: [program] });
    grove = new Grove(rye);
    const grants =
      '<permissions><acknowledge risk="elevated">Tests.</acknowledge><execute><directive>team/*</directive><tool ask="true">rye/file-system/write</tool></execute></permissions>';
    const limits = '<limits turns="20" spend="1" spawns="100" depth="8"/>';
    const inputs = '<inputs><input name="place">P.</input></inputs>';
    await lab.directive('node', [], {
      metadata: limits + grants,
      outputs: inputs,
      body: 'NODE-{input:place}',
    });
    await lab.directive('each', [], {
      metadata: `<model provider="literal"/>${limits}${grants}`,
      outputs: '<inputs><input name="places" type="array">P.</input></inputs>',
      process:
        '<process><foreach item="p" in="${inputs.places}" parallel="2" on_error="continue"><step name="n"><execute item_type="directive" item_id="team/node"><param name="place">${p}</param></execute></step></foreach></process>',
    });
    await lab.directive('judge', [], { metadata: '<limits turns="3" spend="0.01"/>' });
    const folder = path.join(lab.project, '.ai/config/agent');
    mkdirSync(folder, { recursive: true });
    writeFileSync(path.join(folder, 'hooks.yaml'), HOOKS);
    if (hands) writeFileSync(path.join(folder, 'coordination.yaml'), HANDS_OFF);
    await rye.items.sign('config', 'agent/hooks');
    if (hands) await rye.items.sign('config', 'agent/coordination');
    return grove;
  }

  async pricing(): Promise<Server['pricing']> {
    const plan = await this.rye.threads.plan({ directiveId: 'team/node', inputs: { place: '' } });
    if (!plan.model.pricing) throw new Error('the model has no price');
    return plan.model.pricing;
  }

  /** The threads since the last call. */
  async family() {
    const all = await this.rye.threads.list();
    return all.filter(({ thread_id: id }) => !this.#seen.has(id));
  }

  async forget(): Promise<void> {
    for (const { thread_id: id } of await this.family()) this.#seen.add(id);
  }
}

type ResumeRequest = Pick<Parameters<Rye['recovery']['resume']>[0], 'threadId' | 'message'>;

interface Deciding extends Pick<Grove, 'rye' | 'family'> {
  readonly resume: (request: ResumeRequest) => Promise<void>;
}

/** Decides about everything that waits and resumes what waited for it, until nothing does. */
async function decideAll({ rye, ...grove }: Deciding): Promise<void> {
  for (let round = 0; round < 12; round += 1) {
    const open = await rye.approvals.list({ state: 'pending' });
    for (const { id } of open) {
      await rye.approvals.decide({ id, decision: 'approve', resume: false });
    }
    const waiting = (await grove.family()).filter(({ status }) => status === 'suspended');
    if (waiting.length === 0) return;
    // the youngest first: parents wait for their children
    for (const { thread_id: threadId } of waiting) {
      await grove.resume({ threadId });
    }
  }
}

interface Trial {
  readonly root: Node;
  readonly cap: number;
  readonly bytesPerToken: number;
  readonly stopAt: number;
  /** Threads that are resumed after their end. */
  readonly again: number;
}

/** Runs a tree to its end; returns the part of the cap that was billed. */
async function grow(grove: Grove, trial: Trial): Promise<number> {
  const { root, cap, bytesPerToken, stopAt, again } = trial;
  const stopping = new AbortController();
  const pricing = await grove.pricing();
  const stop = (): void => stopping.abort();
  const counter = new Counter({ root, bytesPerToken, pricing, stopAt, stop });
  grove.counter = counter;
  const { rye } = grove;
  await rye.run({
    directiveId: 'team/node',
    inputs: { place: '' },
    limits: { spend: cap },
    signal: stopping.signal,
  });
  // the request that stops may also be one of these; without the signal it would wait for its time limit
  const resume = async (request: ResumeRequest): Promise<void> => {
    const stoppable = stopping.signal.aborted ? {} : { signal: stopping.signal };
    await rye.recovery.resume({ ...request, ...stoppable }).catch(() => undefined);
  };
  const check = async (): Promise<void> => {
    const open = (await grove.family()).filter(
      ({ status }) => !isFinal(status) && status !== 'suspended',
    );
    await rye.children.wait(open.map(({ thread_id: id }) => id));
    await decideAll({ rye, resume, family: async () => await grove.family() });
    const family = await grove.family();
    const booked = family.reduce((sum, { cost }) => sum + toMicroUsd(cost.spend), 0);
    expect(counter.microUsd).toBeLessThanOrEqual(toMicroUsd(cap));
    expect(booked).toBeGreaterThanOrEqual(counter.microUsd);
    if (stopAt === 0) expect(booked).toBe(counter.microUsd);
  };
  await check();
  // more runs of threads that have ended get no more than is left
  for (const { thread_id: threadId } of (await grove.family()).slice(0, again)) {
    await resume({ threadId, message: 'Go on.' });
  }
  await check();
  await grove.forget();
  return counter.microUsd / toMicroUsd(cap);
}

const trials = fc.record({
  root: node,
  cap: fc.constantFrom(0.02, 0.1, 0.5),
  bytesPerToken: fc.constantFrom(1.7, 2.5, 5),
  stopAt: fc.constantFrom(0, 0, 2, 5),
  again: fc.nat({ max: 3 }),
});
/** Trees of a campaign, or of a soak. */
const RUNS = process.env['RYE_FAULTS'] === 'all' ? ([200, 100] as const) : ([25, 12] as const);
const DEEP_MS = 3_600_000;

it.each([
  ['in one thread each', {}, RUNS[0]],
  ['that hand off after every turn', { hands: true }, RUNS[1]],
] as const)(
  'a tree of threads %s never costs more than its root may spend, also when it asks, is canceled and resumed, and books all that its server counted',
  async (_, how, numRuns) => {
    const grove = await Grove.plant(how);
    let most = 0;
    const property = fc.asyncProperty(trials, async (trial) => {
      most = Math.max(most, await grow(grove, trial));
    });
    await fc.assert(property, { numRuns, seed: 31 });
    // the trees are no cheap ones
    if (numRuns > 10) expect(most).toBeGreaterThan(0.5);
  },
  DEEP_MS,
);

function placesOf({ batches }: Node, place: string): readonly string[] {
  const below = batches.flatMap(({ children }, batch) =>
    children.flatMap((child, index) => placesOf(child, `${place}/${batch}.${index}`)),
  );
  return [place, ...below].toSorted();
}

const leaf: Node = { batches: [], answers: [0.02], spend: undefined, asks: false };
const branch = (how: How, spend: number, ...children: readonly Node[]): Node => ({
  batches: [{ how, children }],
  answers: [0.1],
  spend,
  asks: false,
});
const rich = { ...leaf, spend: 0.1 };

it.each([
  { root: branch('async', 1, branch('list', 0.4, leaf), { ...rich, asks: true }), cap: 1 },
  { root: branch('async', 1, branch('async', 0.3, rich), rich), cap: 1 },
  { root: branch('calls', 1, branch('async', 0.4, rich, rich)), cap: 1 },
])('so does one with children in processes', async ({ root, cap }) => {
  const grove = await Grove.plant({ processes: true });
  await grow(grove, { root, cap, bytesPerToken: 2.5, stopAt: 0, again: 1 });
  expect(grove.counter?.places).toEqual(placesOf(root, ''));
});
