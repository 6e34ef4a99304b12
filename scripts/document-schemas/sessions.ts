import { z } from 'zod';
import type {
  FileUndo,
  PiProblem,
  ReplayDifference,
  UndoneFile,
} from '../../src/kernel/app/api/trees.ts';
import type { LogProblem } from '../../src/kernel/log/codec.ts';
import {
  anyObject,
  closedDocument,
  membersOf,
  openDocument,
  plainError,
  unverifiedFrom,
  verified,
} from './shared.ts';

const fileUndo = membersOf<FileUndo>()({
  thread_id: z.string().describe('the last thread of the session, whose log records the undo'),
  to_entry: z.string().nullable().describe('null: before the thread'),
  dry_run: z.boolean(),
  files: z
    .array(
      z.strictObject(
        membersOf<UndoneFile>()({
          path: z.string(),
          action: z
            .enum(['restored', 'recreated', 'removed', 'kept'])
            .describe('kept: it stays as it is, because of its problem'),
          problem: plainError.optional(),
        }),
      ),
    )
    .describe('files that differed from what they were then'),
  folders: z.array(z.string()).describe('empty folders that were removed'),
  unrecorded_calls: z
    .array(z.strictObject({ thread_id: z.string(), call_id: z.string(), tool: z.string() }))
    .describe('later calls that may have changed files without a record'),
  warnings: z.array(z.string()),
});

export const sessionDocuments = {
  'threads-branch': openDocument(
    'rye threads branch',
    'Where the leaf is now. With --run the document is a thread result.',
    {
      thread_id: z.string(),
      leaf_id: z.string().nullable(),
      branched_from: z
        .string()
        .optional()
        .describe('With --new: the thread that the path was copied from.'),
      files: z.strictObject(fileUndo).optional().describe('With --files: what was restored.'),
    },
  ),
  'threads-compact': openDocument(
    'rye threads compact',
    'The compaction that was written, or why there is none.',
    {
      thread_id: z.string(),
      compacted: z.boolean(),
      entry_id: z.string().optional(),
      tokens_before: z.int().optional(),
      summary: z.string().optional(),
      reason: z.string().optional(),
    },
  ),
  'threads-entries': openDocument(
    'rye threads entries',
    'The session tree of a thread, depth first, the active branch first.',
    {
      thread_id: z.string(),
      title: z.string().nullable(),
      leaf_id: z.string().nullable(),
      entries: z.array(
        z.object({
          id: z.string(),
          parent_id: z.string().nullable(),
          shown_parent_id: z
            .string()
            .nullable()
            .describe('The nearest ancestor that the filter shows.'),
          seq: z.int(),
          timestamp: z.string(),
          event_type: z.string(),
          kind: z.string().describe('Of a message its role, else the event type.'),
          depth: z.int().describe('Grows where branches part.'),
          active: z.boolean().describe('On the path to the leaf.'),
          leaf: z.boolean(),
          label: z.string().nullable(),
          text: z.string().describe('One line, at most 200 characters.'),
          payload: anyObject,
        }),
      ),
      total: z.int().describe('Entries in all, shown or not.'),
      chain: z
        .array(z.string())
        .describe('The threads of the session: more than one if it was handed off.'),
      problems: z.array(
        z.object(
          membersOf<LogProblem>()({
            kind: z.string(),
            offset: z.int(),
            message: z.string(),
          }),
        ),
      ),
      verified,
      unverified_from: unverifiedFrom,
    },
  ),
  'threads-entry': openDocument(
    'rye threads entries --entry ENTRY',
    'One entry of a session tree, as the log has it.',
    {
      thread_id: z.string(),
      entry: z.object({
        seq: z.int(),
        timestamp: z.string(),
        thread_id: z.string(),
        event_type: z.string(),
        payload: anyObject,
        id: z.string(),
        parent_id: z.string().nullable(),
      }),
      verified,
      unverified_from: unverifiedFrom,
    },
  ),
  'threads-export': closedDocument(
    'rye threads export',
    'A thread in another form, in the document or in a file.',
    {
      success: z
        .boolean()
        .describe(
          'false where the log is damaged or does not verify; what is readable is exported all the same',
        ),
      thread_id: z.string(),
      format: z.string(),
      leaf_id: z.string().nullable().describe('last entry of the path'),
      entries: z.int(),
      redactions: z.int().optional().describe('values that were taken out, with --redact'),
      problems: z.array(
        z.strictObject(
          membersOf<LogProblem>()({
            kind: z.string(),
            offset: z.int(),
            message: z.string(),
          }),
        ),
      ),
      content: z.string().optional().describe('the text, without --out'),
      path: z.string().optional().describe('the file, with --out'),
      bytes: z.int().optional().describe('length of the file'),
      error: plainError.optional(),
    },
  ),
  'threads-import': closedDocument(
    'rye threads import',
    'The thread that a session of another program became.',
    {
      success: z.literal(true),
      thread_id: z.string(),
      status: z.literal('completed'),
      format: z.string().describe('whose session it was'),
      version: z.int().describe('version of that format'),
      session_id: z.string(),
      entries: z.int(),
      messages: z.int().describe('on all branches'),
      problems: z
        .array(
          z.strictObject(
            membersOf<PiProblem>()({
              kind: z.string(),
              line: z.int().describe('from 1'),
              message: z.string(),
            }),
          ),
        )
        .describe('what was damaged or not understood'),
    },
  ),
  'threads-rename': openDocument('rye threads rename', 'The title that was set.', {
    thread_id: z.string().describe('The thread in which the session continues.'),
    title: z.string(),
  }),
  'threads-label': openDocument(
    'rye threads label',
    'The entry and its label; null: it has none.',
    {
      thread_id: z.string(),
      entry_id: z.string(),
      label: z.string().nullable(),
    },
  ),
  'threads-undo': openDocument(
    'rye threads undo',
    'The files that were restored to what they were at an entry, or before the thread.',
    fileUndo,
  ),
  'threads-replay': closedDocument(
    'rye threads replay',
    "How a thread's recorded answers go through today's rules, hooks and gates.",
    {
      success: z.boolean().describe('false with --verify where the replay differs'),
      same: z.boolean(),
      thread_id: z.string(),
      runs: z.array(z.int()).describe('runs that were replayed; a difference is in the last one'),
      answers: z.int().describe('recorded answers of the model'),
      steps: z.int().describe('recorded steps'),
      matched: z.int().describe('steps that were the same, from the first on'),
      difference: z
        .strictObject(
          membersOf<ReplayDifference>()({
            step: z.int(),
            entry_id: z.string().nullable(),
            seq: z.int().nullable(),
            path: z.string().describe('dotted path of the member that differs, or kind'),
            recorded: z.unknown(),
            replayed: z.unknown(),
          }),
        )
        .nullable(),
      not_run: z.array(z.string()).describe('tools and directives that hooks would have run'),
    },
  ),
};
