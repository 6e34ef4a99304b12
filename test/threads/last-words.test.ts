import { describe, expect, it } from 'vitest';
import type { EventDraft, LogEvent } from '../../src/kernel/core/events.ts';
import { compact } from '../../src/kernel/core/json.ts';
import type { ThreadRecord } from '../../src/kernel/core/thread.ts';
import { NO_COST, NO_USAGE } from '../../src/kernel/core/usage.ts';
import type { ModelProvider } from '../../src/kernel/providers/provider.ts';
import type { OwnerState } from '../../src/kernel/storage/store.ts';
import type { Sources } from '../../src/kernel/threads/ports.ts';
import {
  heardLog,
  ratesOf,
  type Silence,
  settledAnswer,
  timeOfDeath,
} from '../../src/kernel/threads/recovery/last-words.ts';
import { logOf, MODEL, planOf } from '../loop/scripted.ts';

const NOW_MS = Date.parse('2026-01-01T12:00:00.000Z');
const at = (ms: number): string => new Date(NOW_MS + ms).toISOString();

const REQUEST = { provider: 'p', model: 'm', input_tokens: 1, max_tokens: 9 };
const ASKED: EventDraft = { event_type: 'turn_started', payload: { turn: 1, request: REQUEST } };
const delta = (text: string): EventDraft => ({ event_type: 'token_delta', payload: { text } });
const BOOKED: EventDraft = {
  event_type: 'cost',
  payload: { turn: 1, usage: NO_USAGE, total: NO_COST },
};
const taken = (file: string, bytes = 1): EventDraft => ({
  event_type: 'log_quarantined',
  payload: { offset: 1, bytes, sha256: '', lines: 1, file },
});

/** Events that were written so many milliseconds from now, or before. */
function eventsAt(...timed: readonly (readonly [ms: number, draft: EventDraft])[]) {
  const { events, append } = logOf();
  append(timed.map(([, draft]) => draft));
  return events.map((event, index) => ({ ...event, timestamp: at(timed[index]?.[0] ?? 0) }));
}

interface Case extends Partial<Silence> {
  readonly state?: OwnerState;
  readonly bootedMs?: number;
  readonly beatMs?: number;
  readonly isWorker?: boolean;
}

function deathOf(events: readonly LogEvent[], one: Case = {}): number {
  const { state = 'gone', bootedMs = NOW_MS - 86_400_000, beatMs, isWorker = false } = one;
  const found = {
    heartbeat_at: beatMs === undefined ? null : at(beatMs),
    worker: isWorker ? 'w' : null,
  } as unknown as ThreadRecord;
  const owners = { ofRecord: () => ({ id: 'h/1/s' }), state: () => state };
  const env = {
    store: { owners },
    clock: { now: () => NOW_MS },
    bootedMs: () => bootedMs,
  } as unknown as Parameters<typeof timeOfDeath>[0];
  const ended = timeOfDeath(env, { found, death: one.death ?? 'gone', diedMs: one.diedMs }, events);
  return ended - NOW_MS;
}

describe('the end of the connections of a dead owner', () => {
  const ANSWERING = eventsAt([-60_000, ASKED], [-50_000, delta('a')]);

  it('is what a witness noted, however long it was silent before', () => {
    expect(deathOf(ANSWERING, { diedMs: NOW_MS - 3000 })).toBe(-3000);
  });

  it('is soon after its last sign of life, in the log or in the registry, where nothing saw it die', () => {
    expect(deathOf(ANSWERING)).toBe(-40_000);
    expect(deathOf(ANSWERING, { beatMs: -45_000 })).toBe(-35_000);
    expect(deathOf(ANSWERING, { beatMs: -55_000 })).toBe(-40_000);
  });

  it('is now at the latest', () => {
    expect(deathOf(eventsAt([-300, ASKED]))).toBe(0);
  });

  it('is not told by what recovery wrote', () => {
    const recovered = eventsAt([-50_000, ASKED], [-1000, taken('f')]);
    expect(deathOf(recovered)).toBe(-40_000);
  });

  it.each<[string, Case]>([
    ['the process may only be stopped', { death: 'stale', state: 'alive' }],
    ['it ran on another machine', { death: 'stale', state: 'unknown' }],
    ['a fleet took its lease on another machine', { isWorker: true, state: 'unknown' }],
    ['the machine started again since', { bootedMs: NOW_MS - 1000 }],
    ['a worker may still be connected', { isWorker: true, state: 'alive', diedMs: NOW_MS }],
  ])('is unknown if %s', (_, one) => {
    expect(deathOf(ANSWERING, one)).toBe(Number.POSITIVE_INFINITY);
  });

  it('is unknown without any sign of life', () => {
    expect(deathOf([])).toBe(Number.POSITIVE_INFINITY);
  });

  it('is known for a worker of this machine that is gone', () => {
    expect(deathOf(ANSWERING, { isWorker: true })).toBe(-40_000);
  });
});

describe('the answer that no signature covers', () => {
  const line = (type: string, payload: object): string =>
    `${JSON.stringify({ seq: 1, timestamp: at(-100), thread_id: 't', event_type: type, payload })}\n`;
  const FILES: Readonly<Record<string, string>> = {
    words: `${line('token_delta', { text: 'a' })}${line('toolcall_delta', { call_id: 'c', json: '{' })}{"seq":3,"times`,
    forged: `${line('cost', { total: 0 })}${line('token_delta', { text: 7 })}${line('token_delta', {})}[]\nnull\n${line('message', {})}`,
  };
  const logs = {
    bytes: async function* (_: string, range?: { readonly file?: string }) {
      yield Buffer.from(FILES[range?.file ?? ''] ?? '');
    },
  };
  const typesOf = async (events: readonly LogEvent[]): Promise<readonly string[]> =>
    (await heardLog(logs, 't', events)).map(({ event_type: type }) => type);

  it('is read from what recovery took off, up to a torn line', async () => {
    expect(await typesOf(eventsAt([0, ASKED], [0, taken('words')]))).toEqual([
      'turn_started',
      'token_delta',
      'toolcall_delta',
      'log_quarantined',
    ]);
  });

  it('holds pieces of answers only: nothing else in it counts', async () => {
    expect(await typesOf(eventsAt([0, ASKED], [0, taken('forged')]))).toEqual([
      'turn_started',
      'log_quarantined',
    ]);
  });

  it('is ignored if it is too large, or booked', async () => {
    const huge = eventsAt([0, ASKED], [0, taken('words', 2 ** 30)]);
    expect(await typesOf(huge)).toHaveLength(2);
    const before = eventsAt([0, ASKED], [0, taken('words')], [0, BOOKED]);
    expect(await typesOf(before)).toHaveLength(3);
  });
});

describe('the count of a cut answer', () => {
  const usage = { ...NO_USAGE, output_tokens: 9 };
  const begun = (id?: string): EventDraft => ({
    event_type: 'answer_started',
    payload: { turn: 1, ...(id === undefined ? {} : { response_id: id }) },
  });
  const plan = planOf({ model: { ...MODEL, provider: 'p', id: 'm' } });
  /** Asks about the last answer, with a clock on which `slow` is later than anything. */
  const ask = async (events: readonly LogEvent[], settle: ModelProvider['settle']) => {
    const models = { open: () => compact({ settle }) } as unknown as Sources['models'];
    const sleep = (ms: number): Promise<void> =>
      new Promise((resolve) => setTimeout(resolve, ms / 100));
    const env = { models, clock: { sleep } } as unknown as Parameters<typeof settledAnswer>[0];
    return [...(await settledAnswer(env, plan, events))];
  };
  const CUT = eventsAt([0, ASKED], [0, begun('gen-1')]);

  it('is asked of its provider, by the id in the log', async () => {
    expect(await ask(CUT, (id) => Promise.resolve(id === 'gen-1' ? usage : undefined))).toEqual([
      ['gen-1', usage],
    ]);
  });

  it.each<[string, ModelProvider['settle']]>([
    ['the provider can not be asked', undefined],
    ['it has no record', () => Promise.resolve(undefined)],
    ['it can not be reached', () => Promise.reject(new Error('refused'))],
    ['it does not answer', () => new Promise(() => undefined)],
  ])('is unknown if %s', async (_, settle) => {
    expect(await ask(CUT, settle)).toEqual([]);
  });

  it('is not asked for an answer without an id, or one that is booked', async () => {
    const settle = (): Promise<never> => Promise.reject(new Error('asked'));
    expect(await ask(eventsAt([0, ASKED], [0, begun()]), settle)).toEqual([]);
    expect(await ask([...CUT, ...eventsAt([0, BOOKED])], settle)).toEqual([]);
  });
});

it('the rate of a provider that can not be read has no bound', async () => {
  const outputRate = ({ provider }: { readonly provider: string }): Promise<number> =>
    provider === 'p' ? Promise.resolve(700) : Promise.reject(new Error('not signed'));
  const models = { outputRate } as Parameters<typeof ratesOf>[0]['models'];
  const model = { ...MODEL, provider: 'p' };
  const fallbacks = [{ ...MODEL, provider: 'broken' }];
  const rateOf = await ratesOf({ models }, { model, fallbacks });
  expect(['p', 'broken', 'unknown'].map(rateOf)).toEqual([700, Infinity, Infinity]);
});
