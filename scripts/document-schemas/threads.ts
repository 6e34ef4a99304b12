import { z } from 'zod';
import type {
  LogMark,
  PulledThread,
  RetentionReport,
  ThreadDetails,
  ThreadStats,
  ThreadTreeNode,
  UnverifiedPart,
} from '../../src/kernel/app/api/threads.ts';
import type { DeliveryAttempt, DeliveryDecision } from '../../src/kernel/core/delivery.ts';
import type { KilledThread } from '../../src/kernel/threads/family/cancel.ts';
import type { WaitReport } from '../../src/kernel/threads/family/wait.ts';
import { worktreeChanges } from './runs.ts';
import {
  activeTurn,
  anyObject,
  closedDocument,
  cost,
  delivery,
  errorInfo,
  membersOf,
  openDocument,
  recovery,
  threadFailure,
  threadPaths,
  threadRecord,
  unverifiedFrom,
  verified,
} from './shared.ts';

export const threadDocuments = {
  'threads-cancel': closedDocument('rye threads cancel', 'The threads that were asked to stop.', {
    thread_id: z.string(),
    threads: z.array(z.string()),
    total: z.int(),
  }),
  'threads-deliveries': closedDocument(
    'rye threads deliveries',
    'The messages to a thread, with every try and every decision.',
    {
      deliveries: z.array(
        delivery.extend({
          tries: z.array(
            z.object(
              membersOf<DeliveryAttempt>()({
                attempt_id: z.string(),
                delivery_id: z.string(),
                thread_id: z.string(),
                generation: z.int(),
                kind: z.enum(['turn_start', 'turn_steer']),
                marker: z.string(),
                state: z.string(),
                epoch: z.int(),
                expected_run_id: z.string(),
                expected_revision: z.int(),
                run_id: z.string().nullable(),
                reason: z.string().nullable(),
                created_at: z.string(),
                proof: activeTurn
                  .nullable()
                  .describe(
                    'The state of the run that a steer was judged by; null for a try that begins a run.',
                  ),
              }),
            ),
          ),
          decisions: z.array(
            z.object(
              membersOf<DeliveryDecision>()({
                seq: z.int(),
                at: z.string(),
                thread_id: z.string(),
                delivery_id: z.string(),
                attempt_id: z.string().nullable(),
                run_id: z.string().nullable(),
                epoch: z.int().nullable(),
                decision: z.string(),
                reason: z.string(),
                details: anyObject,
              }),
            ),
          ),
        }),
      ),
      total: z.int(),
    },
  ),
  'threads-gc': closedDocument(
    'rye threads gc',
    'The logs that were archived, or would be; sizes in bytes.',
    {
      dry_run: z.boolean(),
      copies: z
        .strictObject({ files: z.int(), bytes: z.int() })
        .describe('copies of files for undos that were removed, or would be'),
      threads: z.array(
        z.object(
          membersOf<RetentionReport['archived'][number]>()({
            thread_id: z.string(),
            completed_at: z.string(),
            bytes_before: z.int().nullable(),
            bytes_after: z.int().nullable(),
          }),
        ),
      ),
      total: z.int(),
      problems: z.array(threadFailure),
    },
  ),
  'threads-kill': closedDocument(
    'rye threads kill',
    'The threads that were ended, and the process of each.',
    {
      thread_id: z.string(),
      threads: z.array(
        z.object(
          membersOf<KilledThread>()({
            thread_id: z.string(),
            status: z.string(),
            pid: z.int().nullable(),
          }),
        ),
      ),
      total: z.int(),
    },
  ),
  'threads-pull': closedDocument('rye threads pull', 'The thread that was copied.', {
    ...membersOf<PulledThread>()({
      thread_id: z.string(),
      status: z.string(),
      folder: z.string().describe('of its log and its other files'),
      bytes: z.int().describe('of the log'),
    }),
  }),
  'threads-list': openDocument('rye threads list', 'The registry, newest first.', {
    threads: z.array(threadRecord.extend({ error: errorInfo.nullable() })),
    total: z.int(),
    unlisted: z
      .array(z.string())
      .optional()
      .describe('Folders of threads that the registry does not list; `rye doctor --repair` does.'),
  }),
  'threads-logs': closedDocument(
    'rye threads logs',
    'Events of a log, as docs/log-format.md describes them.',
    {
      thread_id: z.string(),
      events: z.array(
        z.object({
          seq: z.int(),
          timestamp: z.string(),
          thread_id: z.string(),
          event_type: z.string(),
          payload: anyObject,
          id: z.string().optional(),
          parent_id: z.string().nullable().optional(),
        }),
      ),
      total: z.int(),
      verified,
      unverified_from: unverifiedFrom,
    },
  ),
  'threads-recover': closedDocument(
    'rye threads recover',
    'What was done about threads whose process died.',
    {
      threads: z.array(recovery),
      total: z.int(),
      problems: z.array(threadFailure),
      results: z.array(anyObject),
    },
  ),
  'threads-show': openDocument(
    'rye threads show',
    'One thread with its document, children and chain.',
    membersOf<Omit<ThreadDetails, 'deliveries'> & LogMark>()({
      thread: threadRecord,
      document: anyObject.nullable(),
      children: z.array(z.unknown()),
      chain: z.array(threadRecord),
      paths: threadPaths,
      explanation: z.string().nullable(),
      unverified: z.array(
        z.strictObject(
          membersOf<UnverifiedPart>()({
            file: z.string(),
            offset: z.int(),
            bytes: z.int(),
            from: z.int(),
          }),
        ),
      ),
      active_turn: activeTurn
        .nullable()
        .describe('The run that is under way, as its owner last published it; null if none is.'),
      verified,
      unverified_from: unverifiedFrom,
    }),
  ),
  'threads-stats': openDocument('rye threads stats', 'Spend, tokens and outcomes.', {
    by: z.string(),
    stats: z.array(
      z.object(
        membersOf<ThreadStats>()({
          key: z.string(),
          threads: z.int(),
          open: z.int(),
          completed: z.int(),
          error: z.int().nullable(),
          cancelled: z.int(),
          continued: z.int(),
          spend: z.number(),
          estimated_spend_usd: z.number().optional(),
          tokens: z.int(),
          turns: z.int(),
          elapsed_seconds: z.number(),
        }),
      ),
    ),
    total: z.int(),
  }),
  'threads-steer': closedDocument(
    'rye threads steer',
    'A message that was left, and what is to be expected of it.',
    {
      delivery,
      outlook: z.string(),
    },
  ),
  'threads-tree': openDocument('rye threads tree', 'Parents and children.', {
    threads: z.array(
      z.object(
        membersOf<ThreadTreeNode>()({
          thread: threadRecord.extend({
            error: errorInfo.nullable(),
          }),
          subtree_spend: z.number(),
          children: z.array(z.unknown()),
        }),
      ),
    ),
    total: z.int(),
    unverified: z
      .array(
        z.object({
          thread_id: z.string(),
          verified: z.boolean(),
          unverified_from: z.int().optional(),
        }),
      )
      .describe('Threads whose logs are not what was signed.'),
  }),
  'threads-wait': openDocument('rye threads wait', 'State of each awaited thread.', {
    timed_out: z.boolean(),
    threads: z.array(
      z.object(
        membersOf<WaitReport['threads'][number]>()({
          thread_id: z.string(),
          final_thread_id: z.string(),
          directive: z.string(),
          status: z.string(),
          done: z.boolean(),
          result: z.string(),
          outputs: anyObject.optional(),
          error: errorInfo.optional(),
          cost: cost.optional(),
          changes: worktreeChanges.optional(),
          label: z.string().optional(),
        }),
      ),
    ),
    total: z.int(),
  }),
};
