import picocolors from 'picocolors';
import { describe, expect, it } from 'vitest';
import { drawThreadTree } from '../../../src/cli/render/thread-tree.ts';
import { NO_COST } from '../../../src/core/usage.ts';
import { NOON, node, record } from '../thread-nodes.ts';

const plain = { colors: picocolors.createColors(false) };
const spent = (spend: number) => ({
  cost: { ...NO_COST, turns: 2, spend, elapsed_seconds: 4.25 },
});

const FAMILY = [
  node(
    record('top', 'running', spent(0.01)),
    node(record('a', 'completed', spent(0.02)), node(record('a1', 'completed', spent(0.005)))),
    node(record('b', 'error', { error: { code: 'thread_crashed', message: 'its process died' } })),
    node(record('c', 'created', { pid: null })),
    node(record('d', 'completed', { continuation_of: 'a' })),
  ),
];

describe('the tree of threads', () => {
  it('shows the status, time, spend and error of each thread', () => {
    expect(drawThreadTree(FAMILY, { ...plain, now: NOON })).toEqual([
      'running top (2 turns, 1m 00s, $0.0100, $0.0350 with all below)',
      '├─ completed a (2 turns, 4.3s, $0.0200, $0.0250 with all below) ↪ handed off to d',
      '│  └─ completed a1 (2 turns, 4.3s, $0.0050)',
      '├─ error b (0ms, $0.00) its process died [thread_crashed]',
      '└─ queued c (1m 00s, $0.00)',
    ]);
  });

  it('folds what has ended where the screen is too low, then leaves lines out', () => {
    expect(drawThreadTree(FAMILY, { ...plain, rows: 4 })).toEqual([
      'running top (2 turns, $0.0100, $0.0350 with all below)',
      '├─ 1 completed, 1 error ($0.0250)',
      '└─ queued c ($0.00)',
    ]);
    expect(drawThreadTree(FAMILY, { ...plain, rows: 2 })).toEqual([
      'running top (2 turns, $0.0100, $0.0350 with all below)',
      '… 2 more lines',
    ]);
  });

  it('cuts lines to the width and colors the status alone', () => {
    const colors = picocolors.createColors(true);
    const [first, second] = drawThreadTree(FAMILY, { colors, columns: 18 });
    expect(first).toBe(`${colors.cyan('running')} top (2 tu…`);
    expect(second).toBe(`├─ ${colors.green('completed')} a (2…`);
    expect(drawThreadTree(FAMILY, { colors, columns: 8 })[1]).toBe('├─ comp…');
  });
});
