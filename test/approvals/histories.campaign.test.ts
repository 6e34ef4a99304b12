import { array, assert, asyncProperty, constantFrom, integer, record } from 'fast-check';
import { expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock } from '../../src/kernel/app/system.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { signDecision } from '../../src/kernel/trust/approval.ts';
import { startCli } from '../faults/world.ts';
import { unapprovedCalls } from './checker.ts';
import { calls, type House, house, payloads, pusher, readLog, reply, toolUse } from './house.ts';

const HISTORIES = Number(process.env['RYE_HISTORIES'] ?? 3);
const DAY_MS = 86_400_000;
const TURNS = 3;

/** One thing that happens to a thread or a request; `at` chooses which one. */
const actions = record({
  kind: constantFrom(
    'approve',
    'approve',
    'approve',
    'deny',
    'widen',
    'forge',
    'replay',
    'resume',
    'resume',
    'kill',
    'later',
    'fork',
    'rewind',
  ),
  at: integer({ min: 0, max: 50 }),
  step: integer({ min: 1, max: 14 }),
});

interface Action {
  readonly kind: string;
  readonly at: number;
  readonly step: number;
}

/** A refusal of rye is an answer like any other; everything else is a defect. */
async function tried(work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    if (!(error instanceof RyeError) || error.code === 'internal') throw error;
  }
}

/** The model makes two asked calls and a free one in each of its turns; each leaves its own mark. */
async function opened(): Promise<House> {
  const here = await house();
  here.signed('directives/pusher.md', pusher('pusher', '20'));
  let turns = 0;
  await here.model(({ body }) => {
    const answers = body.messages.filter(({ role }) => role === 'assistant').length;
    if (answers >= TURNS) return reply('done');
    turns += 1;
    const mark = (name: string) =>
      toolUse('rye_bash', { command: `echo mark-${turns}-${name} >> marks` });
    const free = { path: `free-${turns}.txt`, content: 'free\n' };
    return calls(mark('a'), toolUse('rye_file_system_write', free), mark('b'));
  });
  return here;
}

class History {
  readonly #here: House;
  readonly #threads: string[] = ['one', 'two'];
  #aheadMs = 0;
  #rye: Rye;

  constructor(here: House) {
    this.#here = here;
    this.#rye = this.#open();
  }

  get threads(): readonly string[] {
    return this.#threads;
  }

  async begin(): Promise<void> {
    for (const threadId of this.#threads) {
      await this.#rye.threads.execute({ directiveId: 'pusher', threadId });
    }
  }

  async does({ kind, at, step }: Action): Promise<void> {
    const threadId = pick(this.#threads, at) ?? 'one';
    const all = await this.#rye.approvals.list({ state: 'all' });
    const one = pick(all, at);
    const other = pick(all, at + step);
    switch (kind) {
      case 'approve':
      case 'deny':
        if (one) await tried(async () => await this.#decide(one.id, kind));
        return;
      case 'widen':
        if (one) await tried(async () => await this.#widen(one.id, step));
        return;
      case 'forge':
        if (one) await this.#forge(one.id);
        return;
      case 'replay':
        if (one && other) await this.#replay(one.id, other.id);
        return;
      case 'kill':
        await this.#kill(threadId, step);
        return;
      case 'later':
        this.#aheadMs += 5 * DAY_MS;
        this.#rye.close();
        this.#rye = this.#open();
        return;
      case 'fork':
        await tried(async () => await this.#fork(threadId));
        return;
      case 'rewind':
        await tried(async () => await this.#rewind(threadId, step));
        return;
      default:
        await tried(async () => await this.#rye.recovery.resume({ threadId }));
    }
  }

  /** Decides and resumes until each thread has ended. */
  async end(): Promise<void> {
    for (let round = 0; round < 3 * TURNS; round += 1) {
      const open = (await this.#rye.threads.list()).filter(({ status }) => status !== 'completed');
      if (open.length === 0) return;
      for (const { id } of await this.#rye.approvals.list()) {
        await tried(async () => await this.#decide(id, 'approve'));
      }
      for (const { thread_id: threadId } of open) {
        await tried(async () => await this.#rye.recovery.resume({ threadId }));
      }
    }
    const left = (await this.#rye.threads.list()).map(({ thread_id: id, status, error }) => [
      id,
      status,
      error?.message,
    ]);
    expect(left.filter(([, status]) => status !== 'completed')).toEqual([]);
  }

  async verify(threadId: string): Promise<readonly unknown[]> {
    const { checks } = await this.#rye.threads.verify(threadId);
    return checks.filter(({ ok }) => !ok);
  }

  #open(): Rye {
    const clock = { ...systemClock, now: () => systemClock.now() + this.#aheadMs };
    return this.#here.rye({ clock });
  }

  async #decide(id: string, decision: 'approve' | 'deny'): Promise<void> {
    await this.#rye.approvals.decide({ id, decision, resume: false });
  }

  async #widen(id: string, uses: number): Promise<void> {
    const wide = { decision: 'approve', scope: 'tool', uses: 1 + (uses % 3) } as const;
    await this.#rye.approvals.decide({ id, ...wide, resume: false });
  }

  async #forge(id: string): Promise<void> {
    const { request, request_sha256 } = await this.#here.row(id);
    const plain = {
      format: 1,
      approval_id: id,
      thread_id: request.thread_id,
      request_sha256,
      decision: 'approve',
      scope: 'tool',
      constraints: {},
      comment: '',
      decided_at: new Date(systemClock.now() + this.#aheadMs).toISOString(),
    } as const;
    await this.#here.plant(id, signDecision(plain, this.#here.stranger));
  }

  async #replay(from: string, to: string): Promise<void> {
    const { decisions } = await this.#here.row(from);
    await this.#here.plant(to, ...decisions.map(({ signed }) => signed));
  }

  /** Resumes in another process, which dies after one of its steps. */
  async #kill(threadId: string, nth: number): Promise<void> {
    const kill = { role: 'parent', begins: 'append', nth };
    const { done } = await startCli(
      { project: this.#here.project, home: this.#here.home, env: this.#here.env },
      ['threads', 'resume', threadId],
      { preload: true, extra: { RYE_TEST_KILL: JSON.stringify(kill) } },
    );
    await done;
    await this.#rye.recovery.recover();
  }

  async #fork(threadId: string): Promise<void> {
    if (this.#threads.length >= 4) return;
    const name = `${threadId}-fork${this.#threads.length}`;
    const last = (await this.#rye.trees.path(threadId)).at(-1);
    await this.#rye.trees.extract(threadId, { at: last?.id ?? '', threadId: name });
    this.#threads.push(name);
  }

  async #rewind(threadId: string, step: number): Promise<void> {
    const entries = (await this.#rye.trees.path(threadId)).filter(
      ({ event_type: type }) => type === 'message',
    );
    const entry = pick(entries, step);
    if (entry) await this.#rye.trees.branch(threadId, { at: entry.id });
  }
}

function pick<T>(values: readonly T[], at: number): T | undefined {
  return values.length === 0 ? undefined : values[at % values.length];
}

function marksOf(here: House): readonly string[] {
  return (here.file('marks') ?? '').split('\n').filter((line) => line !== '');
}

/** Checks every log with the independent checker, and every effect against the logs. */
async function check(here: House, history: History): Promise<void> {
  const { keyId, pem } = here.key();
  const keys = new Map([[keyId, { pem, mayApprove: true }]]);
  const approved: string[] = [];
  for (const threadId of history.threads) {
    const whole = readLog(here.project, threadId);
    // a fork begins with a copy, whose calls ran in the thread before
    const end = whole.findIndex(({ event_type: type }) => type === 'thread_finished');
    const log = threadId.includes('fork') ? whole.slice(end) : whole;
    expect(unapprovedCalls(threadId, log, keys), threadId).toEqual([]);
    expect(await history.verify(threadId), threadId).toEqual([]);
    for (const { tool, approval, input } of payloads(log, 'tool_call_start')) {
      if (tool !== 'rye/bash') continue;
      expect(approval, `${threadId}: ${JSON.stringify(input)}`).toBeDefined();
      approved.push(/mark-\S+/.exec(JSON.stringify(input))?.[0] ?? '');
    }
  }
  // a mark without a call that a person approved, or more marks than such calls
  for (const mark of marksOf(here)) {
    const index = approved.indexOf(mark);
    expect(index, `${mark} in ${approved.join(' ')}`).toBeGreaterThanOrEqual(0);
    approved.splice(index, 1);
  }
}

// Requirement: approvals-before-calls
it('in no history of threads does a call that asks run without a verified decision before it', async () => {
  let ran = 0;
  await assert(
    asyncProperty(array(actions, { minLength: 6, maxLength: 14 }), async (steps) => {
      const here = await opened();
      const history = new History(here);
      await history.begin();
      for (const step of steps) await history.does(step);
      await check(here, history);
      await history.end();
      await check(here, history);
      ran += marksOf(here).length;
    }),
    { numRuns: HISTORIES, endOnFailure: true, seed: Number(process.env['RYE_SEED'] ?? 11) },
  );
  expect(ran).toBeGreaterThan(HISTORIES);
}, 3_600_000);
