import { describe, expect, it } from 'vitest';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { drawThreadTree } from '../../../src/faces/ui/render/thread-tree.ts';
import { treeProgress } from '../../../src/faces/ui/render/tree-progress.ts';
import { NO_COST } from '../../../src/kernel/core/usage.ts';
import { NOON, node, record } from '../thread-nodes.ts';

const plain = { colors: createColors(false) };
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
  it('shows the mark, time, spend and error of each thread, and names state and ID where nothing is cut', () => {
    expect(drawThreadTree(FAMILY, { ...plain, now: NOON })).toEqual([
      '● top  1m 00s  $0.0350  running  own $0.0100',
      '├─ ✓ job  4.3s    $0.0250  completed  own $0.0200  a  ↪ handed off to d',
      '│  └─ ✓ job  4.3s  $0.0050  completed  a1',
      '├─ ✗ job  0ms     $0.00    error  b  its process died [thread_crashed]',
      '└─ ○ job  1m 00s  $0.00    queued  c',
    ]);
  });

  it('shows what each child works on, by its inputs or its own label', () => {
    const children = [
      { ...record('a', 'completed', spent(0.0004)), parent_id: 'top', label: 'job docs20/f01.txt' },
      { ...record('b', 'suspended'), label: 'the second \u001bfile' },
      { ...record('c', 'cancelled'), label: 'job' },
    ].map((child) => node(child));
    const family = [node(record('top', 'running'), ...children)];
    expect(drawThreadTree(family, { ...plain, columns: 60 })).toEqual([
      '● top  $0.0004  own $0.00',
      '├─ ✓ job  docs20/f01.txt    4.3s  $0.0004',
      '├─ ‖ job  the second ␛file  0ms   $0.00    suspended',
      '└─ ■ job                    0ms   $0.00    cancelled',
    ]);
    expect(drawThreadTree(family, { ...plain, columns: 36 })[1]).toBe(
      '├─ ✓ job  docs20/f01…  4.3s  $0.0004',
    );
  });

  it('marks spend that holds an estimate, of the thread and of those above it', () => {
    const cost = { ...NO_COST, turns: 2, spend: 0.02, estimated_spend_usd: 0.01 };
    const family = [
      node(
        record('top', 'completed', spent(0.01)),
        node(record('a', 'error', { cost })),
        node(record('b', 'completed', spent(0.01))),
      ),
    ];
    expect(drawThreadTree(family, { ...plain, columns: 60 })).toEqual([
      '✓ top  4.3s  ≤ $0.0400  own $0.0100',
      '├─ ✗ job  0ms   ≤ $0.0200',
      '└─ ✓ job  4.3s  $0.0100',
    ]);
    expect(treeProgress(family)).toMatch(/ · ≤ \$0\.04$/);
  });

  it('shows a thread whose process died as crashed', () => {
    const crashed = { ...record('top', 'running'), process_gone: true as const };
    expect(drawThreadTree([node(crashed)], { ...plain, columns: 60 })).toEqual([
      '✗ top  $0.00  crashed',
    ]);
  });

  it('lists roots in one line each, with the children of the newest and of those that run', () => {
    const failed = record('b', 'error', { error: { code: 'provider_rejected', message: 'long' } });
    const old = node(
      record('old', 'running'),
      node(record('c', 'completed')),
      node(record('d', 'running')),
    );
    const roots = [node(record('new', 'completed'), node(failed)), old];
    expect(drawThreadTree(roots, { ...plain, columns: 60, now: NOON, isList: true })).toEqual([
      '✓ new  0/1  0ms     $0.00  1m ago',
      '└─ ✗ job  0ms  $0.00  [provider_rejected]',
      '● old  1/2  1m 00s  $0.00  1m ago',
      '└─ ● job  1m 00s  $0.00',
    ]);
  });

  it('folds what has ended where the screen is too low, then leaves lines out', () => {
    expect(drawThreadTree(FAMILY, { ...plain, rows: 4 })).toEqual([
      '● top  $0.0350  running  own $0.0100',
      '├─ 1 completed, 1 error  $0.0250',
      '└─ ○ job  $0.00  queued  c',
    ]);
    expect(drawThreadTree(FAMILY, { ...plain, rows: 2 })).toEqual([
      '● top  $0.0350  running  own $0.0100',
      '… 2 more lines',
    ]);
  });

  it('cuts lines to the width, and colors marks and words alone', () => {
    const colors = createColors(true);
    const [first, second] = drawThreadTree(FAMILY, { colors, columns: 12 });
    expect(first).toBe(`${colors.cyan('●')} top  $0.0…\u001b[0m`);
    expect(second).toMatch(/^├─ \S+✓\S+ job {2}\S+4…/);
    for (const columns of [1, 8, 20, 60, 200]) {
      for (const line of drawThreadTree(FAMILY, { ...plain, columns })) {
        expect(line.length).toBeLessThanOrEqual(columns);
      }
    }
  });
});

describe('the progress of a tree', () => {
  it.each([
    [FAMILY, '4/5 done (1 failed) · 1 queued · $0.04'],
    [
      [node(record('t', 'running')), node(record('k', 'completed'))],
      '1/2 done · 1 running · $0.00',
    ],
  ])('counts the threads below the roots, or roots alone', (nodes, text) => {
    expect(treeProgress(nodes)).toBe(text);
  });
});
