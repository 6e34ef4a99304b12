import { isFinal, type ThreadRecord } from '../core/thread.ts';
import { totalTokens } from '../core/usage.ts';
import type { StatsKey, ThreadStats } from './rye.ts';

/** Sums threads by directive, model or day (UTC), the dearest first. Each thread counts its own spend only. */
export function statsOf(records: readonly ThreadRecord[], by: StatsKey): readonly ThreadStats[] {
  const groups = new Map<string, ThreadRecord[]>();
  for (const record of records) {
    const key = keyOf(record, by);
    groups.set(key, [...(groups.get(key) ?? []), record]);
  }
  return [...groups]
    .map(([key, threads]) => sum(key, threads))
    .toSorted((left, right) => right.spend - left.spend || right.threads - left.threads);
}

function keyOf({ directive, model, created_at }: ThreadRecord, by: StatsKey): string {
  if (by === 'directive') return directive;
  return by === 'model' ? (model ?? '') : created_at.slice(0, 10);
}

function sum(key: string, threads: readonly ThreadRecord[]): ThreadStats {
  const ended = (status: ThreadRecord['status']): number =>
    threads.filter((thread) => thread.status === status).length;
  const total = (of: (thread: ThreadRecord) => number): number =>
    threads.reduce((sofar, thread) => sofar + of(thread), 0);
  return {
    key,
    threads: threads.length,
    open: threads.filter(({ status }) => !isFinal(status)).length,
    completed: ended('completed'),
    error: ended('error'),
    cancelled: ended('cancelled'),
    continued: ended('continued'),
    spend: Math.round(total(({ cost }) => cost.spend) * 1e6) / 1e6,
    tokens: total(({ cost }) => totalTokens(cost)),
    turns: total(({ cost }) => cost.turns),
    elapsed_seconds: Math.round(total(({ cost }) => cost.elapsed_seconds) * 1000) / 1000,
  };
}
