import { renameSync } from 'node:fs';
import { afterEach, beforeEach, expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import type { Store } from '../../src/kernel/storage/store.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { calls, reply, toolUse, type WireTurn } from '../helpers/wire-server.ts';

const MODEL = { model: 'claude-haiku-5-5', provider: 'anthropic', threadId: 't' } as const;
const SOON = { timeout: 60_000, interval: 20 };
const NOW = '2027-01-01T00:00:00.000Z';

let lab: Lab;
let rye: Rye;
let store: Store;
/** Requests that the model has not answered yet. */
let pending: (() => void)[];
/** The next answers; without one the model replies `Done.`. */
let answers: WireTurn[];
let isHeld: boolean;
/** Times that a follower has looked for the end of the run. */
let looks: number;

beforeEach(async () => {
  lab = await openLab();
  pending = [];
  answers = [];
  isHeld = false;
  await lab.model(async () => {
    if (isHeld) await new Promise<void>((resolve) => pending.push(resolve));
    return answers.shift() ?? reply('Done.');
  });
  lab.signed(
    'directives/work.md',
    directive('work', { permissions: '<execute><tool>rye/file-system/ls</tool></execute>' }),
  );
  looks = 0;
  const sleep: typeof systemClock.sleep = async (ms, signal) => {
    looks += 1;
    await systemClock.sleep(ms, signal);
  };
  rye = lab.rye({ clock: { ...systemClock, sleep } });
  store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
});

afterEach(async () => {
  store.close();
  await lab.remove();
});

/** Begins the next run and returns when the model is asked. */
async function resumed(message: string) {
  isHeld = true;
  const ended = lab.rye().recovery.resume({ threadId: 't', message });
  await expect.poll(() => pending.length, SOON).toBe(1);
  return {
    answer: async () => {
      isHeld = false;
      for (const resolve of pending.splice(0)) resolve();
      await ended;
    },
  };
}

interface Followed {
  readonly events: (LogEvent | UnknownEvent)[];
  readonly done: Promise<void>;
}

function follow(options: { tail?: number; since?: number } = {}): Followed {
  const events: (LogEvent | UnknownEvent)[] = [];
  const read = async (): Promise<void> => {
    for await (const event of rye.threads.logs('t', { ...options, follow: true }))
      events.push(event);
  };
  return { events, done: read() };
}

function numbersOf(events: Followed['events'], type: LogEvent['event_type']): readonly number[] {
  return events.filter(({ event_type }) => event_type === type).map(({ seq }) => seq);
}

async function logged(): Promise<Followed['events']> {
  return [...(await lab.events('t'))];
}

it('follows the current run to its end, and no run after it', async () => {
  await lab.run('work', MODEL);
  const second = await resumed('Two.');
  const seen = (await logged()).at(-1)?.seq ?? 0;
  const all = follow();
  const rest = follow({ since: seen });
  const last = follow({ tail: 1 });
  await expect.poll(() => all.events.length, SOON).toBe(seen);
  await expect.poll(() => last.events.length, SOON).toBe(1);
  await second.answer();
  const third = await resumed('Three.');
  await Promise.all([all.done, rest.done, last.done]);
  const log = await logged();
  const [, begun = 0] = numbersOf(log, 'run_started');
  const upTo = log.filter(({ seq }) => seq < begun).map(({ seq }) => seq);
  expect(numbersOf(all.events, 'thread_finished')).toHaveLength(2);
  expect(all.events.map(({ seq }) => seq)).toEqual(upTo);
  expect(rest.events.map(({ seq }) => seq)).toEqual(upTo.filter((seq) => seq > seen));
  expect(last.events.map(({ seq }) => seq)).toEqual(upTo.filter((seq) => seq >= seen));

  const now = follow();
  await expect.poll(() => numbersOf(now.events, 'run_started').length, SOON).toBe(2);
  await third.answer();
  await now.done;
  expect(numbersOf(now.events, 'thread_finished')).toHaveLength(3);
});

it('ends when it is aborted between two events of the past', async () => {
  await lab.run('work', MODEL);
  const run = await resumed('Two.');
  const stop = new AbortController();
  const seen: number[] = [];
  for await (const { seq } of rye.threads.logs('t', { follow: true, signal: stop.signal })) {
    seen.push(seq);
    stop.abort();
  }
  expect(seen.length).toBeGreaterThan(0);
  await run.answer();
});

it('waits for a run that has been claimed and is not in the log yet', async () => {
  await lab.run('work', MODEL);
  const before = await store.registry.get('t');
  if (!before) throw new Error('the thread is gone');
  const { epoch } = await store.registry.resume(before, store.owners.self(), NOW);
  const { events, done } = follow();
  await expect.poll(() => looks, SOON).toBeGreaterThan(1);
  await store.registry.revert(before, epoch);
  await done;
  expect(events).toEqual(await logged());
});

it('ends after the log of a thread that is finished or suspended', async () => {
  answers = [calls(toolUse('rye_file_system_ls', {}, 'toolu_1'))];
  lab.signed(
    'config/agent/hooks.yaml',
    'hooks:\n  - id: pause\n    event: after_step\n    condition: {path: turn, op: eq, value: 1}\n    action: {control: suspend, reason: look}\n',
  );
  const suspended = await lab.run('work', MODEL);
  expect(suspended.status).toBe('suspended');
  const first = follow();
  await first.done;
  expect(first.events).toEqual(await logged());
  const finished = await lab.rye().recovery.resume({ threadId: 't', message: 'Two.' });
  expect(finished.status).toBe('completed');
  const second = follow();
  await second.done;
  expect(second.events).toEqual(await logged());
});

it('waits for the log of a thread that is starting', async () => {
  await lab.run('work', MODEL);
  const second = await resumed('Two.');
  const log = lab.path('state/threads/t/transcript.jsonl');
  renameSync(log, `${log}.aside`);
  const { events, done } = follow();
  await expect.poll(() => looks, SOON).toBeGreaterThan(1);
  expect(events).toEqual([]);
  renameSync(`${log}.aside`, log);
  await second.answer();
  await done;
  expect(events).toEqual(await logged());
});

it('reports a start that failed without a log', async () => {
  const { registry, owners } = store;
  const owner = owners.self();
  const { epoch, cost } = await registry.register({
    threadId: 't',
    directive: 'work',
    parentId: null,
    model: '',
    now: NOW,
    owner,
  });
  const { done } = follow();
  await expect.poll(() => looks, SOON).toBeGreaterThan(1);
  await registry.finish('t', { status: 'error', now: NOW, cost, result: '', epoch });
  await expect(done).rejects.toMatchObject({ code: 'thread_not_found' });
});
