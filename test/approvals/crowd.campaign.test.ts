import { expect, it } from 'vitest';
import { calls, type House, house, marks, payloads, pusher, reply } from './house.ts';

/** `all`: 100 requests over 20 threads, as docs/approvals.md states; otherwise a fifth of it. */
const THREADS = process.env['RYE_FAULTS'] === 'all' ? 20 : 4;
const CALLS = 5;
const PROCESSES = 4;

/** Numbers from 0 to below 1 that are the same in each run (mulberry32). */
function chance(seed: number): () => number {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

function shuffled<T>(values: readonly T[], random: () => number): readonly T[] {
  return values
    .map((value) => ({ value, key: random() }))
    .toSorted((one, other) => one.key - other.key)
    .map(({ value }) => value);
}

const fileOf = (thread: string, call: number): string => `mark-${thread}-${call}`;

/** Threads with the requests of one answer each. The model finds its thread by the name in the conversation. */
async function crowd(): Promise<{ readonly here: House; readonly threads: readonly string[] }> {
  const here = await house();
  const threads = Array.from({ length: THREADS }, (_, at) => `crowd-${at}x`);
  await here.model(({ body }) => {
    const text = JSON.stringify(body.messages);
    const thread = threads.find((name) => text.includes(name)) ?? '';
    if (text.includes('tool_result')) return reply('done');
    const marked = Array.from({ length: CALLS }, (_, call) => marks(fileOf(thread, call)));
    return calls(...marked);
  });
  const rye = here.rye();
  for (const threadId of threads) {
    here.signed(`directives/${threadId}.md`, pusher(threadId));
    const result = await rye.threads.execute({ directiveId: threadId, threadId });
    expect(result).toMatchObject({ status: 'suspended', waiting_for: 'approval' });
  }
  rye.close();
  return { here, threads };
}

/** One of the processes that decide: each request on its own, in its own order and with its own verdicts. */
async function decides(
  here: House,
  ids: readonly string[],
  seed: number,
): Promise<ReadonlyMap<string, string>> {
  const random = chance(seed);
  const won = new Map<string, string>();
  for (const id of shuffled(ids, random)) {
    const verb = random() < 0.5 ? 'approve' : 'deny';
    const { code, stdout, stderr } = await here.cli([verb, id, '--json']);
    expect([0, 4], stdout + stderr).toContain(code);
    if (code === 0) won.set(id, verb);
    else expect(JSON.parse(stdout)).toMatchObject({ error: { code: 'approval_closed' } });
  }
  return won;
}

it(`${THREADS * CALLS} requests over ${THREADS} threads, decided in random order by ${PROCESSES} processes: none is lost, none runs twice`, async () => {
  const { here, threads } = await crowd();
  const waiting = await here.waiting();
  expect(waiting).toHaveLength(THREADS * CALLS);
  const ids = waiting.map(({ id }) => id);
  // each request is in the hands of two of the processes
  const hands = Array.from({ length: PROCESSES }, (_, at) =>
    ids.filter((_id, index) => index % PROCESSES === at || (index + 1) % PROCESSES === at),
  );
  const all = await Promise.all(hands.map((mine, at) => decides(here, mine, at + 1)));
  const winners = new Map<string, string[]>();
  for (const won of all) {
    for (const [id, verb] of won) winners.set(id, [...(winners.get(id) ?? []), verb]);
  }
  expect([...winners.keys()].toSorted()).toEqual([...ids].toSorted());
  expect([...winners.values()].filter((verbs) => verbs.length !== 1)).toEqual([]);
  for (const threadId of threads) await here.until(threadId, 'completed');
  expect(await here.waiting()).toEqual([]);
  for (const threadId of threads) {
    const log = here.log(threadId);
    const requests = payloads(log, 'approval_requested');
    expect(requests).toHaveLength(CALLS);
    for (const { request, input } of requests) {
      const [verb] = winners.get(request.id) ?? [];
      const file = /mark-\S+/.exec(JSON.stringify(input))?.[0].replace('"}', '') ?? '';
      expect([request.id, here.file(file)]).toEqual([
        request.id,
        verb === 'approve' ? 'ran\n' : undefined,
      ]);
    }
    expect(payloads(log, 'approval_decided')).toHaveLength(CALLS);
    const { checks } = await here.rye().threads.verify(threadId);
    expect(checks.filter(({ ok }) => !ok)).toEqual([]);
  }
}, 900_000);
