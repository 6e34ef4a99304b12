// One of several processes that work on one ledger at once; it prints what it knows to have happened.
import { once } from 'node:events';
import { writeSync } from 'node:fs';
import { join } from 'node:path';
import { ledgerDatabase } from '../../src/kernel/storage/open-registry.ts';
import { sqlLedger } from '../../src/kernel/storage/sql/ledger.ts';

const [projectPath = '', name = '', seedText = '1', steps = '40'] = process.argv.slice(2);
const database = ledgerDatabase(join(projectPath, 'budget_ledger.db'));
const ledger = sqlLedger(database);

const POTS = 60;

// Lehmer generator: the same seed does the same work
let state = Number(seedText);
function below(limit: number): number {
  state = (state * 48_271) % 2_147_483_647;
  return state % limit;
}

const mine: { readonly id: string; readonly max: number; spent: number; released: boolean }[] = [];

async function step(index: number): Promise<void> {
  const open = mine.filter(({ released }) => !released);
  const chosen = open[below(Math.max(1, open.length))];
  const action = below(4);
  if (action < 2 || !chosen) {
    const parent = chosen && action === 0 ? chosen.id : 'root';
    const id = `${name}-${index}`;
    const max = 1 + below(chosen && action === 0 ? chosen.max : 900);
    try {
      await ledger.reserve(id, max, parent);
      mine.push({ id, max, spent: 0, released: false });
    } catch (error) {
      if ((error as { code?: string }).code !== 'budget_insufficient') throw error;
    }
    return;
  }
  if (action === 2) {
    // a thread stays below its remaining budget, as the loop's spend limit makes it do
    const left = await ledger.remaining(chosen.id);
    const next = chosen.spent + below(left + 1);
    await ledger.report(chosen.id, next, 1);
    chosen.spent = next;
    writeSync(1, `${JSON.stringify({ id: chosen.id, spent: next })}\n`);
    return;
  }
  await ledger.release(chosen.id);
  chosen.released = true;
}

async function reserveIfFree(id: string, amount: number, parent: string): Promise<void> {
  try {
    await ledger.reserve(id, amount, parent);
  } catch (error) {
    if ((error as { code?: string }).code !== 'budget_insufficient') throw error;
  }
}

// all start together, so that they race for each pot: one can have it
await ledger.rows();
writeSync(1, 'ready\n');
await once(process.stdin, 'data');
process.stdin.destroy();
for (let pot = 0; pot < POTS; pot += 1) await reserveIfFree(`${name}-pot-${pot}`, 1, `pot-${pot}`);
for (let index = 0; index < Number(steps); index += 1) await step(index);
database.close();
