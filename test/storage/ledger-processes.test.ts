import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { RyeError } from '../../src/kernel/core/errors.ts';
import { ledgerDatabase } from '../../src/kernel/storage/open-registry.ts';
import { sqlLedger } from '../../src/kernel/storage/sql/ledger.ts';
import type { BudgetRow } from '../../src/kernel/storage/store.ts';
import { bundle } from '../helpers/bundle.ts';
import { temporaryFolder } from './support.ts';

const CHILD = await bundle(fileURLToPath(new URL('ledger-child.ts', import.meta.url)));

/** Committed money by the plain definition, recursively: the audit shares no code with the ledger. */
function committed(rows: readonly BudgetRow[], id: string): number {
  const own = rows.find((row) => row.thread_id === id)?.actual ?? 0;
  const children = rows.filter((row) => row.parent_id === id);
  return children.reduce((sum, child) => {
    const below = committed(rows, child.thread_id);
    return sum + (child.status === 'active' ? Math.max(child.reserved, below) : below);
  }, own);
}

function spent(rows: readonly BudgetRow[], id: string): number {
  const row = rows.find((other) => other.thread_id === id);
  const children = rows.filter((other) => other.parent_id === id);
  return children.reduce((sum, child) => sum + spent(rows, child.thread_id), row?.actual ?? 0);
}

function audit(rows: readonly BudgetRow[]): void {
  for (const row of rows) {
    expect(row.actual).toBeGreaterThanOrEqual(0);
    expect(committed(rows, row.thread_id)).toBeLessThanOrEqual(row.max);
  }
}

interface Worker {
  readonly ready: Promise<unknown>;
  start(): void;
  readonly finished: Promise<{ reported: ReadonlyMap<string, number>; errors: string }>;
}

function startWorker(
  folder: string,
  name: string,
  { seed, killAfter = Number.POSITIVE_INFINITY }: { seed: number; killAfter?: number },
): Worker {
  const args = [CHILD, folder, name, String(seed), '80'];
  const child = spawn(process.execPath, args);
  const lines: string[] = [];
  let errors = '';
  child.stderr.on('data', (chunk: Buffer) => {
    errors += chunk.toString();
  });
  const output = createInterface({ input: child.stdout });
  const ready = once(output, 'line');
  output.on('line', (line) => {
    if (lines.push(line) > killAfter) child.kill('SIGKILL');
  });
  const finished = once(child, 'close').then(() => {
    const reports = lines.filter((line) => line.endsWith('}'));
    const parsed = reports.map((line) => JSON.parse(line) as { id: string; spent: number });
    return { reported: new Map(parsed.map(({ id, spent: amount }) => [id, amount])), errors };
  });
  return { ready, finished, start: () => child.stdin.end('go\n') };
}

const POTS = 60;

describe('several processes on one ledger', () => {
  // Requirement: budgets-hold-across-kills
  it('never over-commit and forget nothing, also when some are killed', async () => {
    const folder = temporaryFolder();
    const database = ledgerDatabase(join(folder, 'budget_ledger.db'));
    const ledger = sqlLedger(database);
    await ledger.register('root', 5_000);
    for (let pot = 0; pot < POTS; pot += 1) await ledger.register(`pot-${pot}`, 1);
    const workers = [
      startWorker(folder, 'a', { seed: 11 }),
      startWorker(folder, 'b', { seed: 22, killAfter: 6 }),
      startWorker(folder, 'c', { seed: 33 }),
      startWorker(folder, 'd', { seed: 44, killAfter: 12 }),
      startWorker(folder, 'e', { seed: 55 }),
      startWorker(folder, 'f', { seed: 66, killAfter: 3 }),
      startWorker(folder, 'g', { seed: 77 }),
      startWorker(folder, 'h', { seed: 88, killAfter: 20 }),
    ];
    await Promise.all(workers.map(async ({ ready }) => await ready));
    for (const worker of workers) worker.start();
    const runs = await Promise.all(workers.map(async ({ finished }) => await finished));
    const rows = await ledger.rows();
    audit(rows);
    expect(runs.map(({ errors }) => errors)).toEqual(workers.map(() => ''));
    for (const [id, amount] of runs.flatMap(({ reported }) => [...reported])) {
      expect(rows.find((row) => row.thread_id === id)?.actual).toBeGreaterThanOrEqual(amount);
    }
    expect(await ledger.subtreeSpend('root')).toBe(spent(rows, 'root'));
    expect(await ledger.remaining('root')).toBe(5_000 - committed(rows, 'root'));
    expect(rows.filter(({ thread_id }) => /-pot-/.test(thread_id))).toHaveLength(POTS);
    // what the dead left reserved comes back with their release
    for (const { thread_id, parent_id } of rows)
      if (parent_id !== null) await ledger.release(thread_id);
    expect(await ledger.remaining('root')).toBe(5_000 - spent(rows, 'root'));
    database.close();
  });
});

describe('any order of operations', () => {
  const thread = fc.constantFrom('r', 'a', 'b', 'c', 'd');
  const operation = fc.oneof(
    fc.record({
      do: fc.constant('reserve' as const),
      id: thread,
      parent: thread,
      amount: fc.nat(60),
    }),
    fc.record({ do: fc.constant('spend' as const), id: thread, amount: fc.nat(40) }),
    fc.record({ do: fc.constant('release' as const), id: thread }),
  );

  // Requirement: spend-counted-twice
  it('keeps the sums of the plain definition', async () => {
    const folder = temporaryFolder();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(operation, { maxLength: 25 }), async (operations) => {
        run += 1;
        const database = ledgerDatabase(join(folder, `ledger-${run}.db`));
        const ledger = sqlLedger(database);
        await ledger.register('r', 100);
        for (const step of operations) {
          try {
            if (step.do === 'reserve') await ledger.reserve(step.id, step.amount, step.parent);
            else if (step.do === 'release') await ledger.release(step.id);
            else {
              const before =
                (await ledger.rows()).find((row) => row.thread_id === step.id)?.actual ?? 0;
              const left = await ledger.remaining(step.id);
              await ledger.report(step.id, before + Math.min(step.amount, left), 1);
            }
          } catch (error) {
            if (!(error instanceof RyeError)) throw error;
          }
          const rows = await ledger.rows();
          audit(rows);
          for (const { thread_id, max } of rows) {
            expect(await ledger.subtreeSpend(thread_id)).toBe(spent(rows, thread_id));
            expect(await ledger.remaining(thread_id)).toBe(max - committed(rows, thread_id));
          }
        }
        database.close();
      }),
      { numRuns: 40, seed: 17 },
    );
  });
});
