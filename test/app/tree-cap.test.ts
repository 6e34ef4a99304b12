import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { priceMicroUsd, toMicroUsd } from '../../src/kernel/core/usage.ts';
import { calls, reply, toolUse, type WireRequest, type WireTurn } from '../helpers/wire-server.ts';
import { libraryLab } from './library-lab.ts';

/** A thread: each answer but the last starts the children of one batch side by side. */
interface Node {
  readonly batches: readonly (readonly Node[])[];
  /** The share of `max_tokens` that its answers use, in turn. */
  readonly answers: readonly number[];
  /** USD that its parent gives it; undefined: the default share. */
  readonly spend: number | undefined;
}

const { node } = fc.letrec<{ node: Node }>((tie) => ({
  node: fc.record({
    batches: fc.oneof(
      { depthSize: 'small', withCrossShrink: true },
      fc.constant([]),
      fc.array(fc.array(tie('node'), { minLength: 1, maxLength: 3 }), {
        minLength: 1,
        maxLength: 2,
      }),
    ),
    answers: fc.array(fc.constantFrom(0, 0.01, 0.3, 1), { minLength: 1, maxLength: 3 }),
    spend: fc.constantFrom(undefined, 0.005, 0.05, 0.4),
  }),
}));

const HOOKS = `hooks:
  - id: judge
    event: after_step
    condition: { path: directive, op: eq, value: team/node }
    action: { primary: execute, item_type: directive, item_id: team/judge, params: {} }
`;

/** A tree below \`root\`, found by the places of its nodes. */
function at(root: Node, place: string): Node | undefined {
  let found: Node | undefined = root;
  for (const step of place.split('/').slice(1)) {
    const [batch = 0, child = 0] = step.split('.').map(Number);
    found = found?.batches[batch]?.[child];
  }
  return found;
}

/** Counts what it answers as a bill would. */
class Counter {
  microUsd = 0;
  readonly #root: Node;
  readonly #bytesPerToken: number;
  readonly #pricing: Parameters<typeof priceMicroUsd>[1];
  readonly #stopAt: number;
  readonly #stop: () => void;
  #calls = 0;

  constructor(
    root: Node,
    facts: {
      readonly bytesPerToken: number;
      readonly pricing: Parameters<typeof priceMicroUsd>[1];
      readonly stopAt: number;
      readonly stop: () => void;
    },
  ) {
    this.#root = root;
    this.#bytesPerToken = facts.bytesPerToken;
    this.#pricing = facts.pricing;
    this.#stopAt = facts.stopAt;
    this.#stop = facts.stop;
  }

  answer({ body, closed }: WireRequest): WireTurn {
    this.#calls += 1;
    const place = /NODE-([\d./]*)/.exec(JSON.stringify(body.messages[0]))?.[1];
    const input_tokens = Math.ceil(JSON.stringify(body).length / this.#bytesPerToken);
    if (this.#calls === this.#stopAt) {
      this.#bill({ input_tokens, output_tokens: 1 });
      this.#stop();
      return { steps: [{ kind: 'wait', until: closed }], usage: { input_tokens } };
    }
    const own = place === undefined ? undefined : at(this.#root, place);
    const turn = body.messages.filter(({ role }) => role === 'assistant').length;
    const share = own?.answers[turn % own.answers.length] ?? 0.1;
    const usage = { input_tokens, output_tokens: Math.max(1, Math.floor(share * body.max_tokens)) };
    this.#bill(usage);
    const batch = own?.batches[turn];
    if (batch === undefined) return reply('Done.', usage);
    const steps = batch.map(({ spend }, child) => {
      const parameters = { place: `${place}/${turn}.${child}` };
      const item = { item_type: 'directive', item_id: 'team/node', parameters };
      const limit_overrides = spend === undefined ? {} : { limit_overrides: { spend } };
      return toolUse('rye_execute', { ...item, ...limit_overrides }, `c${this.#calls}-${child}`);
    });
    return { ...calls(...steps), usage };
  }

  #bill(usage: { readonly input_tokens: number; readonly output_tokens: number }): void {
    const none = { cache_read_tokens: 0, cache_write_tokens: 0 };
    this.microUsd += priceMicroUsd({ ...usage, ...none }, this.#pricing);
  }
}

it('a tree of threads never costs more than its root may spend, also when it is canceled and resumed, and books all that its server counted', async () => {
  let counter: Counter | undefined;
  const lab = await libraryLab(
    (request) => counter?.answer(request) ?? reply('No tree is under test.'),
  );
  const metadata =
    '<limits turns="20" spend="1" spawns="100" depth="6"/><permissions><execute><directive>team/*</directive></execute></permissions>';
  const outputs = '<inputs><input name="place">P.</input></inputs>';
  await lab.directive('node', [], { metadata, outputs, body: 'NODE-{input:place}' });
  await lab.directive('judge', [], { metadata: '<limits turns="3" spend="0.01"/>' });
  mkdirSync(path.join(lab.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(lab.project, '.ai/config/agent/hooks.yaml'), HOOKS);
  const rye = lab.open();
  await rye.items.sign('config', 'agent/hooks');
  const plan = await rye.threads.plan({ directiveId: 'team/node', inputs: { place: '' } });
  const { pricing } = plan.model;
  if (!pricing) throw new Error('the model has no price');
  let most = 0;
  const seen = new Set<string>();
  await fc.assert(
    fc.asyncProperty(
      node,
      fc.constantFrom(0.02, 0.1, 0.5),
      fc.constantFrom(1.7, 2.5, 5),
      fc.constantFrom(0, 0, 2, 5),
      fc.nat({ max: 3 }),
      async (root, cap, bytesPerToken, stopAt, again) => {
        const stopping = new AbortController();
        counter = new Counter(root, {
          bytesPerToken,
          pricing,
          stopAt,
          stop: () => stopping.abort(),
        });
        const outcome = await rye.run({
          directiveId: 'team/node',
          inputs: { place: '' },
          limits: { spend: cap },
          signal: stopping.signal,
        });
        const billed = counter.microUsd;
        most = Math.max(most, billed / toMicroUsd(cap));
        expect(billed).toBeLessThanOrEqual(toMicroUsd(cap));
        const booked = toMicroUsd(outcome.thread?.cost.total.spend ?? 0);
        expect(booked).toBeGreaterThanOrEqual(billed);
        if (stopAt === 0) expect(booked).toBe(billed);
        // more runs of threads that have ended get no more than is left
        const family = (await rye.threads.list()).filter(({ thread_id: id }) => !seen.has(id));
        for (const { thread_id: threadId } of family) seen.add(threadId);
        for (const { thread_id: threadId } of family.slice(0, again)) {
          await rye.recovery.resume({ threadId, message: 'Go on.' }).catch(() => undefined);
        }
        expect(counter.microUsd).toBeLessThanOrEqual(toMicroUsd(cap));
      },
    ),
    { numRuns: 10, seed: 31 },
  );
  // the trees are no cheap ones
  expect(most).toBeGreaterThan(0.8);
});
