import { spawnSync } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { bundle, type Mistake } from '../helpers/bundle.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

const CHILD = path.resolve(import.meta.dirname, 'mutant-child.ts');

interface Mutant extends Mistake {
  readonly name: string;
}

const RUNS = 'src/kernel/storage/sql/delivery-runs.ts';
const ATTEMPTS = 'src/kernel/storage/sql/delivery-attempts.ts';
const STEER = 'src/kernel/policy/steer.ts';

const HARMLESS: Mutant = {
  name: 'nothing',
  file: STEER,
  from: 'the run reads only',
  to: 'the run only reads',
};

const MUTANTS: readonly Mutant[] = [
  {
    name: 'an entry that is in the log is put there again',
    file: RUNS,
    from: 'if (row.entry_id === null || !facts.entries.has(row.entry_id)) continue;',
    to: 'continue;',
  },
  {
    name: 'a cut answer counts as one that covers',
    file: 'src/kernel/log/delivery-facts.ts',
    from: "return reason !== 'aborted' && reason !== 'content_filtered';",
    to: "return reason !== 'content_filtered';",
  },
  {
    name: 'delivered without consumption',
    file: STEER,
    from: "if (end === 'completed' && isCovered) {",
    to: "if (end !== 'replaced') {",
  },
  {
    name: 'delivered by a run that failed',
    file: STEER,
    from: "if (end === 'completed' && isCovered) {",
    to: 'if (isCovered) {',
  },
  {
    name: 'a steer in the middle of a batch',
    file: STEER,
    from: 'if (!proof.after_tool_batch || proof.open_tool_calls !== 0 || proof.pending_approvals !== 0) {',
    to: 'if (proof.pending_approvals !== 0) {',
  },
  {
    name: 'what a request carried counts as unseen',
    file: STEER,
    from: 'if (!isCovered && !isRequested) {',
    to: 'if (!isCovered) {',
  },
  {
    name: 'the newest first',
    file: ATTEMPTS,
    from: 'return (yield* openDeliveries(threadId)).find(',
    to: 'return (yield* openDeliveries(threadId)).findLast(',
  },
  {
    name: 'the run of a dead owner stays open',
    file: RUNS,
    from: '  if (run) {\n    yield* settleRun(',
    to: '  if (run && epoch < 0) {\n    yield* settleRun(',
  },
  {
    name: 'no second look at the steer point',
    file: ATTEMPTS,
    from: "if (row && isSame && decision?.outcome === 'steer') {",
    to: 'if (row) {',
  },
  {
    name: 'an owner that has lost the thread continues',
    file: 'src/kernel/storage/sql/delivery-rows.ts',
    from: 'if (row?.epoch === epoch) return;',
    to: 'if (row) return;',
  },
];

/** Runs the simulation with one mistake in the sources; 9: it found that. */
async function run(mutant: Mutant, seeds: number): Promise<number | null> {
  const home = mkdtempSync(path.join(tmpdir(), 'rye-mutant-'));
  onTestFinished(() => removeFolder(home));
  const program = await bundle(CHILD, mutant);
  const { status, stderr } = spawnSync(process.execPath, [program, home, String(seeds)], {
    encoding: 'utf8',
  });
  if (stderr !== '') throw new Error(stderr);
  return status;
}

describe('the simulation finds', () => {
  it('nothing where nothing is wrong', async () => {
    expect(await run(HARMLESS, 2)).toBe(0);
  });

  it.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))(
    'this mistake: %s',
    async (_name, mutant) => {
      // a rare one is found once in about 50 seeds
      expect(await run(mutant, 300)).toBe(9);
    },
    600_000,
  );
});
