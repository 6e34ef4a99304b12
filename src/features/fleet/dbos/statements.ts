import { SCHEMA } from './engine.ts';

// Statements on the tables of DBOS for which it has no call, or none that is atomic. The version of DBOS is pinned, and the
// contract of the queue runs against it.

/**
 * Brings the queued leg of a thread forward, and locks its row: it does not start before the transaction ends. $1 queue,
 * $2 thread, $3 priority, $4 time in milliseconds or null.
 */
export const ADVANCE = `
  UPDATE ${SCHEMA}.workflow_status SET
    priority = LEAST(priority, $3::int),
    status = CASE WHEN status = 'DELAYED' AND $4::bigint IS NULL THEN 'ENQUEUED' ELSE status END,
    delay_until_epoch_ms = LEAST(delay_until_epoch_ms, $4::bigint)
  WHERE queue_name = $1 AND deduplication_id = $2`;

/** Marks a leg as started: its thread may queue the next one. Waits for a transaction that found it queued. */
export const START = `
  UPDATE ${SCHEMA}.workflow_status SET deduplication_id = NULL WHERE workflow_uuid = $1 RETURNING priority`;

/** The running legs of a worker. */
export const RUNNING = `
  SELECT workflow_uuid AS leg_id FROM ${SCHEMA}.workflow_status
  WHERE executor_id = $1 AND status = 'PENDING' ORDER BY workflow_uuid`;

/** The workers of running legs. */
export const OWNERS = `
  SELECT DISTINCT executor_id AS worker_id FROM ${SCHEMA}.workflow_status
  WHERE status = 'PENDING' AND executor_id IS NOT NULL`;

/** Threads with a queued leg, or one that a worker runs. $1 threads, $2 their queues, $3 workers. */
export const WITH_LEG = `
  SELECT deduplication_id AS thread_id FROM ${SCHEMA}.workflow_status
  WHERE queue_name = ANY($2) AND deduplication_id = ANY($1) AND status IN ('ENQUEUED', 'DELAYED', 'PENDING')
  UNION SELECT attributes ->> 'thread_id' FROM ${SCHEMA}.workflow_status
  WHERE status = 'PENDING' AND executor_id = ANY($3)`;

const RELEASED =
  'owner_xid = NULL, started_at_epoch_ms = NULL, updated_at = (EXTRACT(EPOCH FROM now()) * 1000)::bigint';

/** Returns a running leg to its queue. Breaks a unique key if its thread has a queued leg. $1 leg, $2 worker. */
export const GIVE_BACK = `
  UPDATE ${SCHEMA}.workflow_status
  SET status = 'ENQUEUED', deduplication_id = attributes ->> 'thread_id', ${RELEASED}
  WHERE workflow_uuid = $1 AND executor_id = $2 AND status = 'PENDING'`;

/** Ends a running leg whose thread has a queued leg. $1 leg, $2 worker. */
export const SUPERSEDE = `
  UPDATE ${SCHEMA}.workflow_status
  SET status = 'CANCELLED', completed_at = (EXTRACT(EPOCH FROM now()) * 1000)::bigint, ${RELEASED}
  WHERE workflow_uuid = $1 AND executor_id = $2 AND status = 'PENDING'`;

/** Counts the legs of each queue. */
export const COUNTS = `
  SELECT queue_name AS name,
    COUNT(*) FILTER (WHERE status = 'ENQUEUED') AS queued,
    COUNT(*) FILTER (WHERE status = 'DELAYED') AS delayed,
    COUNT(*) FILTER (WHERE status = 'PENDING') AS running,
    COUNT(*) FILTER (WHERE status IN ('ERROR', 'MAX_RECOVERY_ATTEMPTS_EXCEEDED')) AS failed,
    MIN(created_at) FILTER (WHERE status = 'ENQUEUED') AS oldest
  FROM ${SCHEMA}.workflow_status
  WHERE queue_name IS NOT NULL AND status NOT IN ('SUCCESS', 'CANCELLED')
  GROUP BY queue_name`;

/** Forgets a part of the legs that ended before a time. $1 milliseconds, $2 how many at most. */
export const PRUNE = `
  WITH ended AS (
    SELECT workflow_uuid FROM ${SCHEMA}.workflow_status
    WHERE status NOT IN ('ENQUEUED', 'DELAYED', 'PENDING') AND completed_at < $1::bigint
    LIMIT $2::int FOR UPDATE SKIP LOCKED
  ), inputs AS (
    DELETE FROM ${SCHEMA}.workflow_input WHERE workflow_uuid IN (SELECT workflow_uuid FROM ended)
  ), outputs AS (
    DELETE FROM ${SCHEMA}.workflow_output WHERE workflow_uuid IN (SELECT workflow_uuid FROM ended)
  ), steps AS (
    DELETE FROM ${SCHEMA}.operation_outputs WHERE workflow_uuid IN (SELECT workflow_uuid FROM ended)
  )
  DELETE FROM ${SCHEMA}.workflow_status WHERE workflow_uuid IN (SELECT workflow_uuid FROM ended)
  RETURNING name`;
