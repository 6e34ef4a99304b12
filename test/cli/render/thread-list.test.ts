import { describe, expect, it } from 'vitest';
import { createColors } from '../../../src/faces/ui/colors.ts';
import { formatAge, summaryOf, threadTable } from '../../../src/faces/ui/render/thread-list.ts';
import type { ListedThread } from '../../../src/kernel/app/api/threads.ts';
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

function table(
  columns: number,
  shown: readonly ListedThread[],
  below: readonly ListedThread[] = [],
  { isColored = false, rows = shown.length, threads = shown.length + below.length } = {},
): readonly string[] {
  const sink = createFakeIo({ stdoutIsTty: true, columns }).stdout;
  const style = { sink, colors: createColors(isColored), now: NOW, hint: undefined };
  return threadTable(shown, { rows, threads, running: 0, below }, style);
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
  ])('shows the first line of %j as plain text', (result, line) => {
    expect(summaryOf(thread('a', { result }))).toBe(line);
  });

  it('summarizes children with their parent and sums up all threads', () => {
    const fan = thread('fan-7f3k', { result: 'report.md' });
    const children = [
      thread('sum-1', { parent_id: 'fan-7f3k' }),
      thread('sum-2', { parent_id: 'fan-7f3k', status: 'error' }),
    ];
    const lines = table(100, [fan], children);
    expect(lines[1]).toMatch(/^fan-7f3k {2}completed +✗ 1\/2 .* 2m ago +report\.md$/);
    expect(lines.at(-1)).toMatch(/^3 threads \(1 shown\) · \$/);
  });

  it('shows labels where there is room, cut and on one line', () => {
    const kid = thread('kid-7f3k', {
      directive: 'team/kid',
      parent_id: 'fan-7f3k',
      label: `kid a\u001b.md ${'x'.repeat(60)}`,
    });
    expect(table(120, [kid])[0]).toMatch(/^THREAD +LABEL +STATUS/);
    expect(table(120, [kid])[1]).toMatch(/^kid-7f3k {2}a␛\.md x{25}… {2}completed/);
    expect(table(80, [kid])[0]).toMatch(/^THREAD +STATUS/);
    expect(table(120, [thread('root')])[0]).toMatch(/^THREAD +STATUS/);
  });

  it('shows the label in place of the result where both do not fit', () => {
    const asked = thread('ask-7f3k', { label: 'ask the\u202e team', result: 'Findings' });
    expect(table(80, [asked])[0]).toMatch(/^THREAD +STATUS +SPEND +CREATED +ABOUT$/);
    expect(table(80, [asked, thread('hello', { result: 'Hi' })]).slice(1, 3)).toEqual([
      expect.stringMatching(/^ask-7f3k +completed .* 2m ago +ask the\\u\{202e\} team$/),
      expect.stringMatching(/^hello +completed .* 2m ago +Hi$/),
    ]);
    expect(table(120, [asked])[1]).toMatch(/^ask-7f3k {2}ask the\\u\{202e\} team .* Findings$/);
  });

  it('shows the same children and money of a row with any filter', () => {
    const cost = (own: number, total = own): ListedThread['cost'] => {
      const share = { tokens: 0, turns: 0 };
      const { cost: base } = thread('x');
      return {
        ...base,
        spend: own,
        own: { spend: own, ...share },
        total: { spend: total, ...share },
      };
    };
    const root = thread('fan', { cost: cost(1, 4) });
    const good = thread('good', { parent_id: 'fan', cost: cost(2) });
    const bad = thread('bad', { parent_id: 'fan', status: 'error', cost: cost(1) });
    const [, whole] = table(100, [root], [good, bad]);
    expect(whole).toMatch(/^fan +completed +✗ 1\/2 .*\$4\.00/);
    for (const found of [[root, good, bad], [root], [root, good], [root, bad]]) {
      const lines = table(100, found, [good, bad]);
      expect(lines[1]).toBe(whole);
      expect(lines.at(-1)).toMatch(/\$4\.00$/);
    }
    expect(table(100, [good, bad]).at(-1)).toMatch(/^2 threads · \$3\.00$/);
    const part = { rows: 10_031, threads: 10_031 };
    expect(table(100, [root], [good, bad], part).at(-1)).toBe(
      '10,031 threads · $4.00 for the 1 shown',
    );
  });

  it('paints the status and no word of a label', () => {
    const failed = thread('日本', { status: 'error', label: '日本 fix error handling' });
    const [, row = ''] = table(120, [failed], [], { isColored: true });
    const colors = createColors(true);
    expect(row).toContain(colors.red('error'));
    expect(row).toContain('fix error handling');
  });

  it.each([20, 60, 100, 200])('fits its rows into %i columns', (columns) => {
    const lines = table(columns, [thread('fan-7f3k', { result: 'long result '.repeat(40) })]);
    for (const line of lines.slice(0, -1)) expect(line.length).toBeLessThanOrEqual(columns);
  });
});
