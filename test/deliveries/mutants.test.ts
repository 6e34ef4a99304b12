import { spawnSync } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';

const ROOT = path.resolve(import.meta.dirname, '../..');

/** A deliberate mistake: this text of a source becomes that one. */
interface Mutant {
  readonly name: string;
  readonly file: string;
  readonly from: string;
  readonly to: string;
}

const RUNS = 'src/storage/sqlite/delivery-runs.ts';
const ATTEMPTS = 'src/storage/sqlite/delivery-attempts.ts';
const STEER = 'src/policy/steer.ts';

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
    file: 'src/log/delivery-facts.ts',
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
    from: 'return openDeliveries(database, threadId).find(',
    to: 'return openDeliveries(database, threadId).findLast(',
  },
  {
    name: 'the run of a dead owner stays open',
    file: RUNS,
    from: '  if (run) {\n    settleRun(',
    to: '  if (run && epoch < 0) {\n    settleRun(',
  },
  {
    name: 'no second look at the steer point',
    file: ATTEMPTS,
    from: "if (row && isSame && decision?.outcome === 'steer') {",
    to: 'if (row) {',
  },
  {
    name: 'an owner that has lost the thread continues',
    file: 'src/storage/sqlite/delivery-rows.ts',
    from: 'if (row?.epoch === epoch) return;',
    to: 'if (row) return;',
  },
];

const PROGRAM = `
import { simulate } from './test/deliveries/sim.ts';
const [folder, seeds] = process.argv.slice(2);
for (let seed = 1; seed <= Number(seeds); seed += 1) {
  const { violations } = await simulate({ seed, actions: 700, folder });
  if (violations.length > 0) process.exit(9);
}
`;

/** Runs the simulation on a copy of the sources with one mistake in it; 9: it found that. */
function run({ file, from, to }: Mutant, seeds: number): number | null {
  const home = mkdtempSync(path.join(tmpdir(), 'rye-mutant-'));
  onTestFinished(() => rmSync(home, { recursive: true, force: true }));
  for (const part of ['src', 'test/deliveries', 'package.json', 'tsconfig.json'])
    cpSync(path.join(ROOT, part), path.join(home, part), { recursive: true });
  symlinkSync(path.join(ROOT, 'node_modules'), path.join(home, 'node_modules'));
  const mutated = path.join(home, file);
  const source = readFileSync(mutated, 'utf8');
  // a mutant that changes nothing would prove nothing
  if (source.split(from).length !== 2) throw new Error(`${file} does not contain ${from} once`);
  writeFileSync(mutated, source.replace(from, to));
  writeFileSync(path.join(home, 'program.mts'), PROGRAM);
  const { status, stderr } = spawnSync(
    process.execPath,
    ['--import', 'tsx', 'program.mts', path.join(home, 'runs'), String(seeds)],
    { cwd: home, encoding: 'utf8' },
  );
  if (stderr !== '') throw new Error(stderr);
  return status;
}

describe('the simulation finds', () => {
  it('nothing where nothing is wrong', () => {
    expect(run(HARMLESS, 2)).toBe(0);
  }, 120_000);

  it.each(MUTANTS.map((mutant) => [mutant.name, mutant] as const))(
    'this mistake: %s',
    (_name, mutant) => {
      expect(run(mutant, 60)).toBe(9);
    },
    600_000,
  );
});
