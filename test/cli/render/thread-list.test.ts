import picocolors from 'picocolors';
import { describe, expect, it } from 'vitest';
import type { ListedThread } from '../../../src/app/api/threads.ts';
import { formatAge, summaryOf, threadTable } from '../../../src/cli/render/thread-list.ts';
import { createFakeIo } from '../../helpers/fake-io.ts';
import { node, record } from '../thread-nodes.ts';

const NOW = Date.parse('2026-11-22T12:00:00.000Z');

function thread(id: string, more: Partial<ListedThread> = {}): ListedThread {
  return {
    ...node(record(id, 'completed')).thread,
    created_at: '2026-11-22T11:58:00.000Z',
    result: '',
    ...more,
  };
}

function table(columns: number, shown: readonly ListedThread[], all = shown): readonly string[] {
  const sink = createFakeIo({ stdoutIsTty: true, columns }).stdout;
  return threadTable(shown, all, { sink, colors: picocolors.createColors(false), now: NOW });
}

describe('the list of threads', () => {
  it.each([
    ['2026-11-22T11:59:48.000Z', '12s ago'],
    ['2026-11-22T11:58:00.000Z', '2m ago'],
    ['2026-11-22T09:00:00.000Z', '3h ago'],
    ['2026-11-18T12:00:00.000Z', '4d ago'],
    ['2026-01-02T12:00:00.000Z', '2026-01-02'],
    ['2026-11-22T12:00:09.000Z', '0s ago'],
  ])('shows %s as %s', (iso, age) => {
    expect(formatAge(iso, NOW)).toBe(age);
  });

  it.each([
    ['# Report\n\nThere are **two** folders.', 'Report'],
    ['\n- `a` is [here](http://x)\n- b', 'a is here'],
    ['| --- | --- |\n| x | y |', 'x | y'],
    ['\u001b[31mred\u001b[0m', 'red'],
  ])('shows the first line of %j as plain text', (result, line) => {
    expect(summaryOf(thread('a', { result }))).toBe(line);
  });

  it('summarizes children with their parent and sums up all threads', () => {
    const fan = thread('fan-7f3k', { result: 'report.md' });
    const children = [
      thread('sum-1', { parent_id: 'fan-7f3k' }),
      thread('sum-2', { parent_id: 'fan-7f3k', status: 'error' }),
    ];
    const lines = table(100, [fan], [fan, ...children]);
    expect(lines[1]).toMatch(/^fan-7f3k {2}completed +✗ 1\/2 .* 2m ago +report\.md$/);
    expect(lines.at(-1)).toMatch(/^3 threads \(1 shown\) · \$/);
  });

  it('shows labels where there is room, cut and on one line', () => {
    const kid = thread('kid-7f3k', {
      directive: 'team/kid',
      label: `kid a\u001b[2J.md ${'x'.repeat(60)}`,
    });
    expect(table(120, [kid])[0]).toMatch(/^THREAD +LABEL +STATUS/);
    expect(table(120, [kid])[1]).toMatch(/^kid-7f3k {2}a\.md x{26}… {2}completed/);
    expect(table(80, [kid])[0]).toMatch(/^THREAD +STATUS/);
    expect(table(120, [thread('root')])[0]).toMatch(/^THREAD +STATUS/);
  });

  it.each([20, 60, 100, 200])('fits its rows into %i columns', (columns) => {
    const lines = table(columns, [thread('fan-7f3k', { result: 'long result '.repeat(40) })]);
    for (const line of lines.slice(0, -1)) expect(line.length).toBeLessThanOrEqual(columns);
  });
});
