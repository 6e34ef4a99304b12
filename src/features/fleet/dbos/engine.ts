import { createRequire } from 'node:module';
import type * as sdk from '@dbos-inc/dbos-sdk';
import type * as executor from '@dbos-inc/dbos-sdk/internal/dbos-executor';
import type * as database from '@dbos-inc/dbos-sdk/internal/system_database';
import { messageOf, RyeError } from '../../../kernel/core/errors.ts';
import type { QueueNotice } from '../../../kernel/storage/fleet-queue.ts';

/** The schema of DBOS's own tables, beside the schema of rye in the same database. */
export const SCHEMA = 'rye_queue';
/** Scopes queues, legs and schedules in the schema. */
export const APPLICATION = 'rye';
/**
 * The version of the protocol, not of the code: a leg is one step, so nothing of it is replayed, and legs that an earlier rye
 * queued run on later workers.
 */
export const LEG_PROTOCOL = 'rye-leg-1';
/** The name of the workflow of a leg. */
export const LEG = 'rye_leg';
/** The name of the workflow that queues the leg of a schedule. */
export const FIRING = 'rye_firing';
/** The same notice is reported once in this time, in milliseconds. */
const QUIET_MS = 60_000;
const IDLE_MS = 60_000;

/** The modules of DBOS that the adapter uses. */
export interface Engine {
  readonly sdk: typeof sdk;
  readonly executor: typeof executor;
  readonly database: typeof database;
}

// `import()` does not work in the compiled program, see bin/rye.js
const load = createRequire(import.meta.url);

/** Loads DBOS, which is installed only by people with a fleet. */
export function loadEngine(): Engine {
  try {
    return {
      sdk: load('@dbos-inc/dbos-sdk') as typeof sdk,
      executor: load('@dbos-inc/dbos-sdk/internal/dbos-executor') as typeof executor,
      database: load('@dbos-inc/dbos-sdk/internal/system_database') as typeof database,
    };
  } catch (error) {
    throw new RyeError('fleet_unavailable', 'the queue of the fleet is not installed', {
      hint: 'Install it beside rye: npm install @dbos-inc/dbos-sdk pg',
      cause: error,
    });
  }
}

/** Returns the address for the connections of DBOS: a worker that stops in a transaction holds its locks for a minute at most. */
export function engineUrl(url: string): string {
  const address = new URL(url);
  const given = address.searchParams.get('options') ?? '';
  address.searchParams.set(
    'options',
    `${given} -c idle_in_transaction_session_timeout=${IDLE_MS}`.trim(),
  );
  return address.href;
}

/** The part of DBOS's logger that can carry anything. */
export interface EngineLog {
  info(entry: unknown): void;
  debug(entry: unknown): void;
  warn(entry: unknown): void;
  error(entry: unknown): void;
}

/** Returns a logger that prints nothing: it reports what a person should know, and the same text once a minute. */
export function quietLog(
  report: (notice: QueueNotice) => void,
  monotonic: () => number,
): EngineLog {
  const seen = new Map<string, number>();
  const tell = (entry: unknown): void => {
    const message = messageOf(entry);
    const now = monotonic();
    if (now - (seen.get(message) ?? Number.NEGATIVE_INFINITY) < QUIET_MS) return;
    seen.set(message, now);
    report({ code: 'engine', legId: null, message });
  };
  return {
    info: () => undefined,
    debug: () => undefined,
    warn: (entry) => {
      // the others tell of contention and of limits that changed, which end by themselves
      if (messageOf(entry).startsWith('Error')) tell(entry);
    },
    error: tell,
  };
}

/** The message of the engine is kept; its cause is not, for it may hold the address of the store with the password. */
export function engineError(error: unknown): RyeError {
  if (error instanceof RyeError) return error;
  return new RyeError('storage_failed', `the queue of the fleet failed: ${messageOf(error)}`, {
    hint: 'Check that the server runs and can be reached, then try again.',
  });
}
