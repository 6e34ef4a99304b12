import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Lab } from '../attacks/lab.ts';
import { text } from '../helpers/wire-server.ts';
import { afterOneRun, crashed, endOwner, keep, secondRun, THREADS } from './crash-desk.ts';
import type { UndoDesk } from './undo-desk.ts';

const DATABASES = ['registry.db', 'budget_ledger.db'].flatMap((name) =>
  ['', '-wal', '-shm'].map((end) => `${THREADS}/${name}${end}`),
);
const HOUR_MS = 3_600_000;

async function shown({ lab }: UndoDesk, threadId: string) {
  const { thread } = await lab.rye().threads.show(threadId);
  return { status: thread.status, result: thread.result, turns: thread.cost.turns };
}

async function goesOn({ lab, turns }: UndoDesk, threadId: string): Promise<void> {
  turns.push([text('Three.')]);
  const ended = await lab.rye().recovery.resume({ threadId, message: 'Again.' });
  expect(ended).toMatchObject({ status: 'completed', result: 'Three.' });
  const { checks, warnings } = await lab.rye().threads.verify(threadId);
  expect([checks.filter(({ ok }) => !ok), warnings]).toEqual([[], []]);
}

describe('a registry that lost its last commits', () => {
  async function lost() {
    const { desk, id } = await afterOneRun();
    const putBack = keep(desk.lab, 'databases', DATABASES);
    await secondRun(desk, id);
    putBack();
    expect((await shown(desk, id)).result).toBe('One.');
    return { desk, id };
  }

  it('is no rollback, and a resume brings it up to date', async () => {
    const { desk, id } = await lost();
    const { ok, warnings } = await desk.lab.rye().threads.verify(id);
    expect(ok).toBe(true);
    expect(warnings).toEqual([expect.stringContaining('rye threads recover')]);
    await goesOn(desk, id);
    expect((await shown(desk, id)).turns).toBe(4);
  });

  it.each([
    ['threads recover', async ({ lab }: UndoDesk) => await lab.rye().recovery.recover()],
    ['doctor --repair', async ({ lab }: UndoDesk) => await lab.rye().recovery.repair()],
  ])('is brought up to date by %s', async (_name, repair) => {
    const { desk, id } = await lost();
    expect((await repair(desk)).failures).toEqual([]);
    expect(await shown(desk, id)).toEqual({ status: 'completed', result: 'Two.', turns: 3 });
    await goesOn(desk, id);
  });

  it.each([
    ['with the lease', () => undefined],
    [
      'without the lease',
      (lab: Lab, id: string) => rmSync(lab.path(`${THREADS}/${id}/lease.json`)),
    ],
  ])('in the middle of a run ends that run as crashed, %s', async (_how, change) => {
    const { desk, id } = await afterOneRun();
    const old = keep(desk.lab, 'databases', DATABASES);
    let cut = (): void => undefined;
    await secondRun(desk, id, () => {
      cut = keep(desk.lab, 'state', ['state', '~/.ai/state/heads']);
    });
    cut();
    old();
    endOwner(desk, id);
    change(desk.lab, id);
    expect((await shown(desk, id)).status).toBe('completed');
    await goesOn(desk, id);
  });
});

it('a crashed thread whose log was changed keeps the cost that the registry knows', async () => {
  const { desk, id } = await crashed();
  const log = desk.lab.path(`${THREADS}/${id}/transcript.jsonl`);
  writeFileSync(log, readFileSync(log, 'utf8').replace('One.', 'Won.'));
  const { recovered } = await desk.lab.rye().recovery.recover();
  expect(recovered).toMatchObject([{ status: 'error' }]);
  const { cost } = (await desk.lab.rye().threads.show(id)).thread;
  expect(cost.turns).toBeGreaterThanOrEqual(1);
  expect(cost.input_tokens).toBeGreaterThan(0);
});

describe('a clock that was set back after a run', () => {
  async function aheadInItsFirstRun() {
    vi.useFakeTimers({ toFake: ['Date'], now: Date.now() + HOUR_MS });
    onTestFinished(() => void vi.useRealTimers());
    const made = await afterOneRun();
    vi.useRealTimers();
    return made;
  }

  it('leaves the next runs and edits whole', async () => {
    const { desk, id } = await aheadInItsFirstRun();
    const verdicts: Promise<unknown>[] = [];
    await secondRun(desk, id, () => {
      verdicts.push(desk.lab.rye().threads.verify(id));
    });
    expect(await Promise.all(verdicts)).toMatchObject([{ ok: true }]);
    await desk.lab.rye().trees.title(id, 'a title');
    await goesOn(desk, id);
  });

  it('leaves a crash of the next run one that is recovered with its cost', async () => {
    const { desk, id } = await aheadInItsFirstRun();
    let cut = (): void => undefined;
    await secondRun(desk, id, () => {
      cut = keep(desk.lab, 'state', ['state', '~/.ai/state/heads']);
    });
    cut();
    endOwner(desk, id);
    const { recovered } = await desk.lab.rye().recovery.recover();
    expect(recovered).toMatchObject([{ action: 'failed', status: 'error' }]);
    const { thread } = await desk.lab.rye().threads.show(id);
    expect(thread.error?.code).toBe('thread_crashed');
    expect(thread.cost.turns).toBeGreaterThanOrEqual(1);
    await goesOn(desk, id);
  });
});
