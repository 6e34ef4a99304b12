import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import type { EventPayloads } from '../../src/kernel/core/events.ts';
import { textOf } from '../../src/kernel/core/message.ts';
import { addUsage, NO_USAGE, type Usage } from '../../src/kernel/core/usage.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { type RunningCli, startCli } from '../faults/world.ts';
import {
  calls,
  reply,
  toolUse,
  type WireBody,
  type WireServer,
  type WireTurn,
} from '../helpers/wire-server.ts';

const MESSAGES = 12;
const USAGE = { input_tokens: 5000, output_tokens: 100 };

let lab: Lab;
let rye: Rye;
let server: WireServer;
let id: string;
/** The answer to the summary request of this number, from 1. */
let summaryOf: (number: number, body: WireBody) => WireTurn | Promise<WireTurn>;

beforeEach(async () => {
  lab = await openLab();
  let asked = 0;
  summaryOf = (number) => reply(`SUMMARY ${number}.`, USAGE);
  server = await lab.model(({ body }) => {
    if (!isSummary(body)) {
      const isMore = JSON.stringify(body.messages.at(-1)).includes('More.');
      const answer = isMore ? calls(toolUse('rye_file_system_ls', {}, 'toolu_1')) : reply('Done.');
      // as the API counts
      const input_tokens = Math.ceil(JSON.stringify(body).length / 4);
      return { ...answer, usage: { input_tokens, output_tokens: 10 } };
    }
    asked += 1;
    return summaryOf(asked, body);
  });
  lab.signed(
    'config/agent/providers/tiny.yaml',
    `kind: anthropic\nbase_url: ${server.url}\napi_key_env: ANTHROPIC_API_KEY\nprices_as_of: "2026-11-21"\nmodels: {tiny: {context_window: 12000, max_output_tokens: 2000, pricing: {input: 1, output: 10}}}\n`,
  );
  lab.signed(
    'directives/work.md',
    directive('work', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      limits: 'turns="10" spend="1.00"',
    }),
  );
  const model = { model: 'claude-haiku-5-5', provider: 'anthropic' };
  id = (await lab.run('work', { ...model, threadId: 't' })).thread_id;
  rye = lab.rye();
});

afterEach(async () => await lab.remove());

function isSummary({ system }: WireBody): boolean {
  return JSON.stringify(system ?? '').includes('You summarize part of the record');
}

function summaries(): readonly string[] {
  return server.requests
    .filter(({ body }) => isSummary(body))
    .map(({ body }) => textOf(body.messages[0]?.content as Parameters<typeof textOf>[0]));
}

const marker = (number: number): string => `<<message ${number}>>`;

/** Makes a conversation that is several times larger than the window of its next model. */
async function fill({ special = 0, size = 0 } = {}): Promise<void> {
  for (let number = 1; number <= MESSAGES; number += 1) {
    const length = number === special ? size : 6000;
    const content = `${marker(number)}${'x'.repeat(length - 40)}`;
    await rye.trees.appendCustomMessage(id, { customType: 'fact', content, display: true });
  }
  await rye.recovery.resume({ threadId: id, message: 'Go.' });
  await rye.trees.changeModel(id, { model: 'tiny', provider: 'tiny' });
}

/** Numbers of the messages in each request, in order. */
function numbersIn(prompts: readonly string[]): readonly (readonly number[])[] {
  return prompts.map((prompt) =>
    [...prompt.matchAll(/<<message (\d+)>>/g)].map(([, number]) => Number(number)),
  );
}

async function payloads<Type extends keyof EventPayloads>(
  type: Type,
): Promise<readonly EventPayloads[Type][]> {
  const events = await lab.events(id);
  return events
    .filter(({ event_type }) => event_type === type)
    .map(({ payload }) => payload as EventPayloads[Type]);
}

async function compaction() {
  return (await payloads('compaction')).at(-1);
}

async function cost() {
  return (await rye.threads.show(id)).thread.cost;
}

/** Checks that log, record and document agree on the cost, and that the log verifies. */
async function expectBooked(): Promise<void> {
  const { thread, document } = await rye.threads.show(id);
  // the registry adds the shares of the family, the signed document states only what the thread used
  const { own: _own, total: _total, ...used } = thread.cost;
  expect(document?.cost).toEqual(used);
  expect((await payloads('cost')).at(-1)?.total).toMatchObject({
    spend: thread.cost.spend,
    input_tokens: thread.cost.input_tokens,
  });
  const { ok, checks } = await rye.threads.verify(id);
  expect(ok, JSON.stringify(checks)).toBe(true);
}

const times = (count: number): Usage =>
  Array.from({ length: count }).reduce<Usage>(
    (sum) => addUsage(sum, { ...NO_USAGE, ...USAGE }),
    NO_USAGE,
  );

describe('a conversation larger than the window', () => {
  it('is summarized in pieces: each message once, in order, with the summary so far', async () => {
    await fill();
    const before = await cost();
    expect(await rye.trees.compact(id, { instructions: 'Only facts.' })).toMatchObject({
      compacted: true,
    });
    const prompts = summaries();
    const pieces = prompts.length;
    expect(pieces).toBeGreaterThan(2);
    const numbers = numbersIn(prompts);
    for (const part of numbers) expect(part.length).toBeGreaterThan(0);
    const all = numbers.flat();
    for (const [index, prompt] of prompts.entries()) {
      expect(prompt.includes(`<previous-summary>\nSUMMARY ${index}.\n`)).toBe(index > 0);
      expect(prompt.includes('The conversation continues after this part')).toBe(
        index < pieces - 1,
      );
      expect(prompt).toContain('Only facts.');
      expect(Buffer.byteLength(prompt) / 3).toBeLessThan(12_000 - 2400);
    }
    // the rest stays in the context in full
    const kept = (await rye.trees.context(id)).messages.map(({ content }) => textOf(content));
    const rest = numbersIn([kept.join('\n')]).flat();
    expect(rest.length).toBeGreaterThan(0);
    expect([...all, ...rest]).toEqual(Array.from({ length: MESSAGES }, (_, index) => index + 1));

    const entry = await compaction();
    expect(entry?.summary).toBe(`SUMMARY ${pieces}.`);
    expect(entry?.details).toMatchObject({ pieces, usage: times(pieces) });
    expect(entry?.details).not.toHaveProperty('truncated');
    const after = await cost();
    expect(after.input_tokens - before.input_tokens).toBe(pieces * USAGE.input_tokens);
    expect(after.spend - before.spend).toBeCloseTo(pieces * 0.006, 6);
    await expectBooked();
  });

  it('is compacted in pieces by a run, which books each before the next', async () => {
    await fill();
    await rye.recovery.resume({ threadId: id, message: 'More.' });
    const pieces = summaries().length;
    expect(pieces).toBeGreaterThan(2);
    expect((await compaction())?.details).toMatchObject({ pieces, usage: times(pieces) });
    const events = await lab.events(id);
    const steps = events.flatMap(({ event_type: type, payload }) => {
      if (type === 'request_started' || type === 'compaction') return [type];
      const { usage } = payload as Partial<EventPayloads['cost']>;
      return type === 'cost' && usage?.input_tokens === USAGE.input_tokens ? [type] : [];
    });
    const each = Array.from({ length: pieces - 1 }, () => ['request_started', 'cost']).flat();
    expect(steps).toEqual([...each, 'request_started', 'compaction', 'cost']);
    await expectBooked();
  });

  it('truncates a message that is larger than the window, and counts what is missing', async () => {
    await fill({ special: 5, size: 60_000 });
    await rye.trees.compact(id);
    const prompt = summaries().find((text) => text.includes(marker(5))) ?? '';
    const [, missing] = /… \((\d+) more characters\)/.exec(prompt) ?? [];
    const shown = /x{5000,}/.exec(prompt)?.[0].length ?? 0;
    expect(Number(missing)).toBe(60_000 - 40 - shown);
    expect(numbersIn([prompt])).toEqual([[5]]);
    expect((await compaction())?.details).toMatchObject({
      truncated: { messages: 1, characters: Number(missing) },
    });
  });

  it('is refused at once if it would take too many requests', async () => {
    await fill();
    lab.signed(
      'config/agent/providers/tiny.yaml',
      `kind: anthropic\nbase_url: ${server.url}\napi_key_env: ANTHROPIC_API_KEY\nprices_as_of: "2026-11-21"\nmodels: {tiny: {context_window: 3500, max_output_tokens: 2000, pricing: {input: 1, output: 10}}}\n`,
    );
    await expect(lab.rye().trees.compact(id)).rejects.toMatchObject({ code: 'context_exceeded' });
    expect(summaries()).toEqual([]);
  });

  it('ends with the budget: what was paid is booked, nothing is written, a retry works', async () => {
    await fill();
    const size = (await lab.events(id)).length;
    // each of them reports a cost of $0.5
    summaryOf = () => reply('DEAR', { input_tokens: 500_000, output_tokens: 1 });
    const before = await cost();
    await expect(rye.trees.compact(id)).rejects.toMatchObject({ code: 'budget_insufficient' });
    expect(summaries()).toHaveLength(2);
    expect((await cost()).spend - before.spend).toBeCloseTo(1.00002, 5);
    expect(await compaction()).toBeUndefined();
    expect((await lab.events(id)).slice(size).map(({ event_type }) => event_type)).not.toContain(
      'leaf',
    );
    await expectBooked();
    summaryOf = (number) => reply(`SUMMARY ${number}.`, USAGE);
    await rye.recovery.resume({
      threadId: id,
      message: 'On.',
      limits: { spend: 5, tokens: 9_000_000 },
      raiseLimits: true,
    });
    await rye.trees.compact(id);
    const { pieces } = (await compaction())?.details ?? {};
    expect(pieces).toBeGreaterThan(2);
    expect(numbersIn(summaries().slice(2)).flat()[0]).toBe(1);
    await expectBooked();
  });

  it('that is cancelled midway is unchanged, and what was paid is booked', async () => {
    await fill();
    const context = await rye.trees.context(id);
    const before = await cost();
    const cancel = new AbortController();
    summaryOf = (number) => {
      if (number === 3) cancel.abort();
      return reply(`SUMMARY ${number}.`, USAGE);
    };
    await expect(rye.trees.compact(id, { signal: cancel.signal })).rejects.toMatchObject({
      code: 'cancelled',
    });
    expect(summaries()).toHaveLength(3);
    expect(await compaction()).toBeUndefined();
    expect(await rye.trees.context(id)).toEqual(context);
    expect((await cost()).input_tokens - before.input_tokens).toBeGreaterThanOrEqual(
      2 * USAGE.input_tokens,
    );
    await expectBooked();
    expect(await rye.trees.compact(id)).toMatchObject({ compacted: true });
    await expectBooked();
  });

  it('that fails midway is unchanged, and a retry summarizes all of it', async () => {
    await fill();
    const context = await rye.trees.context(id);
    summaryOf = (number) =>
      number === 3
        ? { status: 400, error: { type: 'invalid_request_error', message: 'no' } }
        : reply(`SUMMARY ${number}.`, USAGE);
    const before = await cost();
    await expect(rye.trees.compact(id)).rejects.toMatchObject({ code: 'provider_rejected' });
    expect(await rye.trees.context(id)).toEqual(context);
    expect((await cost()).input_tokens - before.input_tokens).toBe(2 * USAGE.input_tokens);
    await expectBooked();
    expect(await rye.trees.compact(id)).toMatchObject({ compacted: true });
    expect(numbersIn(summaries().slice(3)).flat()[0]).toBe(1);
    await expectBooked();
  });

  it('that is killed midway has booked its pieces, by hand and in a run', async () => {
    await fill();
    let running: RunningCli | undefined;
    let at = 3;
    summaryOf = async (number) => {
      if (number === at && running) {
        running.child.kill('SIGKILL');
        await running.done;
      }
      return reply(`SUMMARY ${number}.`, USAGE);
    };
    const context = await rye.trees.context(id);
    const before = await cost();
    running = await startCli(lab, ['threads', 'compact', id]);
    await running.done;
    expect((await cost()).input_tokens - before.input_tokens).toBe(2 * USAGE.input_tokens);
    expect(await rye.trees.context(id)).toEqual(context);
    await expectBooked();

    at = 6;
    running = await startCli(lab, ['threads', 'resume', id, '-m', 'More.']);
    await running.done;
    running = undefined;
    expect(summaries()).toHaveLength(6);
    await rye.recovery.recover({ threadId: id });
    // two booked, and the open one at what it might have cost
    const opened = await payloads('request_started');
    expect(opened).toHaveLength(3);
    const { input_tokens: lost = 0 } = opened[2]?.request ?? {};
    const booked = (await payloads('cost')).filter(
      ({ usage }) => usage.input_tokens === USAGE.input_tokens,
    );
    expect(booked).toHaveLength(4);
    expect((await payloads('cost')).at(-1)?.usage.input_tokens).toBe(lost);
    expect(await compaction()).toBeUndefined();
    const { status } = await rye.recovery.resume({ threadId: id, message: 'Again: More.' });
    expect(status).toBe('completed');
    expect((await compaction())?.details).toHaveProperty('pieces');
    await expectBooked();
  });

  it('is summarized in pieces when its branch is abandoned', async () => {
    const { leaf_id: start } = await rye.trees.view(id);
    await fill();
    await rye.trees.branch(id, { at: start ?? '', summary: 'model' });
    const prompts = summaries();
    expect(prompts.length).toBeGreaterThan(2);
    expect(numbersIn(prompts).flat()).toEqual(
      Array.from({ length: MESSAGES }, (_, index) => index + 1),
    );
    expect(prompts[0]).toContain('is a branch that is now abandoned');
    expect(prompts.at(-1)).toContain(`SUMMARY ${prompts.length - 1}.`);
    const [entry] = await payloads('branch_summary');
    expect(entry?.details).toMatchObject({ pieces: prompts.length });
    await expectBooked();
  });
});
