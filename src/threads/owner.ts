import { isoTime } from '../core/clock.ts';
import { isActive, type ThreadRecord } from '../core/thread.ts';
import type { ThreadEnv } from './ports.ts';

/** `gone`: its process has ended. `stale`: it may live, but gave no sign of life for too long. */
export type Death = 'gone' | 'stale';

/**
 * Whether a thread that should have an owner has lost it; undefined while it lives, is queued without one, or is ours. A
 * process on another host can only be judged by its heartbeat.
 */
export function deathOf(
  { store, owner, clock }: Pick<ThreadEnv, 'store' | 'owner' | 'clock'>,
  record: ThreadRecord,
  staleSeconds: number,
): Death | undefined {
  const { status, pid, process_start: processStart, host, heartbeat_at: heartbeat } = record;
  if (!isActive(status) || pid === null) return undefined;
  if (pid === owner.pid && processStart === owner.processStart && host === owner.host)
    return undefined;
  const known = { pid, processStart: processStart ?? '', host: host ?? owner.host };
  if (!store.processes.isAlive(known)) return 'gone';
  const limit = isoTime(clock.now() - staleSeconds * 1000);
  return heartbeat !== null && heartbeat < limit ? 'stale' : undefined;
}
