import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { lab, processesOf } from './lab.ts';

const CHILDREN = 16;

test(`${CHILDREN} children of one parent all end, their waiter wakes at once, and the ledger is exact`, {
  timeout: 120_000,
}, async () => {
  const here = await lab({ coordination: 'concurrency: { max_children: 4, max_total: 20 }\n' });
  const parent = await here.job('parent');
  const parentThreadId = parent.thread_id;
  await here.until('the arrival', () => existsSync(path.join(here.project, 'arrived-parent')));
  here.openGate('kid');
  const ids: string[] = [];
  for (let n = 0; n < CHILDREN; n += 1) {
    const limits = { spend: 0.0003 };
    ids.push((await here.job('kid', { parentThreadId, limits })).thread_id);
  }
  expect(new Set(ids).size).toBe(CHILDREN);
  const lags: number[] = [];
  const report = await here.rye.children.wait(ids, {
    onEnd: ({ completed_at }) => {
      lags.push(Date.now() - Date.parse(completed_at ?? ''));
    },
  });
  expect(report.success).toBe(true);
  expect(lags).toHaveLength(CHILDREN);
  const late = lags.toSorted((left, right) => left - right)[CHILDREN >> 1] ?? Infinity;
  // 50 ms on a quiet machine (bench/children.mjs measures it); tests run beside others
  expect(late).toBeLessThan(1000);

  here.openGate('parent');
  await here.rye.children.wait([parentThreadId]);
  const rows = await here.store.ledger.rows();
  expect(rows).toHaveLength(CHILDREN + 1);
  expect(rows.every(({ status }) => status === 'released')).toBe(true);
  expect(await here.store.ledger.remaining(parentThreadId)).toBe(10_000);
  const records = await here.store.registry.list({});
  const pids = records.flatMap(({ pid }) => pid ?? []);
  expect(new Set(pids).size).toBe(CHILDREN + 1);
  await here.until('the end of all', () => processesOf(here.project, pids).length === 0);
});

test('the shipped fan-out example tolerates a child that fails and reports the others', async () => {
  const here = await lab();
  mkdirSync(path.join(here.project, 'texts/deep'), { recursive: true });
  for (let n = 0; n < 16; n += 1)
    writeFileSync(path.join(here.project, `texts/deep/f${n}.txt`), 'two words\nthree more words\n');
  writeFileSync(path.join(here.project, 'texts/deep/f0.txt'), new Uint8Array([0xff, 0xfe, 0x00]));
  const result = await here.rye.threads.execute({
    directiveId: 'rye/examples/fan_out_report',
    inputs: { path: 'texts', report: 'report.md' },
  });
  expect(result.error).toBeUndefined();
  expect(result).toMatchObject({
    success: true,
    outputs: { report_path: 'report.md', completed: 7, failed: 1, files: 14, lines: 28 },
  });
  expect(result.children).toHaveLength(8);
  const report = readFileSync(path.join(here.project, 'report.md'), 'utf8');
  expect(report).toContain('14 files, 28 lines, 70 words in 7 of 8 shares.');
  expect(report).toContain('ended as error');
  expect(report).toContain('f0.txt is not UTF-8 text');
});
