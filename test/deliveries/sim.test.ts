import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { type SimReport, simulate } from './sim.ts';

const SEEDS = Number(process.env['RYE_SEEDS'] ?? 6);
const ACTIONS = Number(process.env['RYE_ACTIONS'] ?? 700);
const FIRST = Number(process.env['RYE_FIRST_SEED'] ?? 1);

function folder(): string {
  const made = mkdtempSync(path.join(tmpdir(), 'rye-deliveries-'));
  onTestFinished(() => removeFolder(made));
  return made;
}

describe('deliveries under chance', () => {
  it(`keep their promises over ${SEEDS} seeds of ${ACTIONS} actions, with crashes at any point`, async () => {
    const home = folder();
    const reports: SimReport[] = [];
    for (let seed = FIRST; seed < FIRST + SEEDS; seed += 1) {
      const report = await simulate({ seed, actions: ACTIONS, folder: home });
      expect({ seed, violations: report.violations }).toEqual({ seed, violations: [] });
      reports.push(report);
    }
    const sum = (name: 'crashes' | 'steers' | 'delivered' | 'manual'): number =>
      reports.reduce((total, report) => total + report[name], 0);
    // a simulation in which nothing happens proves nothing
    const sums = (['crashes', 'steers', 'delivered', 'manual'] as const).map(sum);
    expect(Math.min(...sums)).toBeGreaterThan(0);
  }, 3_600_000);
});
