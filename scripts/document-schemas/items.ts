import { z } from 'zod';
import type {
  AcceptedLock,
  FetchedItem,
  ItemSummary,
  LockReport,
} from '../../src/kernel/app/api/items.ts';
import type {
  RecordToSign,
  SignedRecords,
  ThreadVerification,
} from '../../src/kernel/app/api/threads.ts';
import type { SearchHit } from '../../src/kernel/core/search.ts';
import type { KeyInfo } from '../../src/kernel/trust/keys.ts';
import {
  anyObject,
  closedDocument,
  errorInfo,
  guardChange,
  membersOf,
  openDocument,
  pin,
  plainError,
  problem,
} from './shared.ts';

const KEY_SCOPE = {
  purposes: z
    .array(z.enum(['sign', 'approve', 'certify']))
    .describe('What the key may do now; empty unless it is trusted.'),
  only: z.array(z.string()).optional().describe('The only IDs that it may sign, as globs.'),
  types: z
    .array(z.string())
    .optional()
    .describe('The only item types that it may sign; thread means records.'),
  rotated_from: z
    .string()
    .optional()
    .describe('The trusted key that named this one as its successor.'),
  projects: z
    .array(z.string())
    .optional()
    .describe('The only projects in which it counts, by real path.'),
};

export const itemDocuments = {
  list: openDocument('rye list', 'Items of a type, shadowed ones included.', {
    items: z.array(
      z.object(
        membersOf<ItemSummary>()({
          type: z.string(),
          id: z.string(),
          space: z.string(),
          path: z.string().nullable(),
          shadowed_by: z.string().nullable(),
          version: z.string().nullable(),
          description: z.string(),
          signature: z.string(),
          signature_version: z.literal([1, 2]).optional(),
        }),
      ),
    ),
    total: z.int(),
  }),
  search: openDocument('rye search', 'Ranked hits with snippets.', {
    query: z.string(),
    results: z.array(
      z.object(
        membersOf<SearchHit>()({
          type: z.string(),
          id: z.string(),
          space: z.string(),
          title: z.string().nullable(),
          snippet: z.string(),
          time: z.string(),
          path: z.string(),
          score: z.number(),
          directive: z.string().optional(),
          status: z.string().optional(),
          thread_id: z.string().optional().describe('Of a thread export: the thread.'),
          session_id: z
            .string()
            .optional()
            .describe('Of a thread export: the first thread of its session.'),
          signature: z
            .string()
            .describe(
              "State of the file's signature: signed, system, unsigned, modified, untrusted, revoked, invalid, partial or unchecked.",
            ),
          verified: z
            .boolean()
            .describe('True if the signature covers the bytes that title and snippet come from.'),
          context: z
            .string()
            .optional()
            .describe('With --context: the lines around the first match.'),
        }),
      ),
    ),
    total: z.int(),
    complete: z.boolean().describe('False if a bound on time cut the search.'),
    notices: z.array(z.string()).describe('What a bound on time or bytes cut.'),
  }),
  fetch: openDocument(
    'rye fetch',
    'One resolved item.',
    membersOf<FetchedItem>()({
      type: z.string(),
      id: z.string(),
      space: z.string(),
      path: z.string().nullable(),
      signature: z.string(),
      metadata: anyObject,
      content: z.string(),
      copied_to: z.string().optional(),
    }),
  ),
  sign: openDocument('rye sign', 'Outcome of each file.', {
    error: plainError.nullable().optional(),
    items: z.array(
      z.object({
        type: z.string(),
        id: z.string(),
        path: z.string(),
        problems: z.array(problem),
        status: z.string(),
      }),
    ),
    total: z.int(),
  }),
  validate: openDocument('rye validate', 'Every problem of the items that were checked.', {
    problems: z.array(problem),
    total: z.int(),
    checked: z.int(),
    error: plainError.nullable().optional(),
  }),
  verify: openDocument('rye verify', 'Each item and the state of its signature.', {
    items: z.array(
      z.object({
        type: z.string(),
        id: z.string(),
        space: z.string(),
        path: z.string(),
        ok: z.boolean(),
        key_id: z.string().optional(),
        signature_version: z.literal([1, 2]).optional(),
        signed_at: z.string().optional(),
      }),
    ),
    total: z.int(),
  }),
  'verify-thread': openDocument(
    'rye verify thread',
    'Each signed part of a thread.',
    membersOf<ThreadVerification>()({
      thread_id: z.string(),
      ok: z.boolean(),
      imported: z.literal(true).optional(),
      signed_after_run: z
        .object({ key_id: z.string(), signed_at: z.string() })
        .optional()
        .describe('It ran without a signing key: this key signed its record later.'),
      checks: z.array(
        z.object(
          membersOf<ThreadVerification['checks'][number]>()({
            name: z.string(),
            ok: z.boolean(),
            error: errorInfo.optional(),
            offset: z.int().optional(),
            detail: z.string().optional(),
          }),
        ),
      ),
      warnings: z
        .array(z.string())
        .describe("What could not be compared, and files that are none of the thread's."),
    }),
  ),
  'sign-thread': openDocument(
    'rye sign thread',
    'The records of one run without a signing key.',
    membersOf<SignedRecords>()({
      key_id: z.string(),
      run_key_id: z.string(),
      signed: z.boolean(),
      threads: z.array(
        z.object(
          membersOf<RecordToSign>()({
            thread_id: z.string(),
            parent_thread_id: z.string().nullable(),
            directive: z.string(),
            status: z.string(),
            started_at: z.string(),
            provider: z.string(),
            model: z.string(),
            inputs: anyObject,
            spend_usd: z.number(),
            turns: z.int(),
            calls: z.int(),
            events: z.int(),
            bytes: z.int(),
            head_sha256: z.string().nullable(),
          }),
        ),
      ),
    }),
  ),
  'keys-export': openDocument('rye keys export', 'The public key.', {
    key_id: z.string(),
    pem: z.string(),
  }),
  'keys-key': closedDocument(
    'rye keys init, trust, untrust, protect and revoke',
    'The key that the command was about.',
    membersOf<KeyInfo>()({
      key_id: z.string(),
      owner: z.string(),
      source: z.enum(['own', 'user', 'project', 'environment']),
      trusted: z.boolean(),
      revoked: z.boolean(),
      revoked_at: z.string().optional(),
      path: z.string(),
      ...KEY_SCOPE,
    }),
  ),
  'keys-list': openDocument('rye keys list', 'Own, trusted and revoked keys.', {
    keys: z.array(
      z.object(
        membersOf<KeyInfo>()({
          key_id: z.string(),
          owner: z.string(),
          source: z.string(),
          trusted: z.boolean(),
          revoked: z.boolean(),
          path: z.string(),
          ...KEY_SCOPE,
        }),
      ),
    ),
    total: z.int(),
  }),
  'keys-rotate': closedDocument(
    'rye keys rotate',
    'The signing key that was, and the one that is.',
    {
      old_key_id: z.string(),
      key_id: z.string(),
      statement: z
        .string()
        .optional()
        .describe('The file in the project that moves the trust of others; commit it.'),
    },
  ),
  new: closedDocument('rye new', 'The file that was written.', {
    type: z.string(),
    id: z.string(),
    path: z.string(),
  }),
  'git-setup': closedDocument('rye git setup', 'What git uses to merge signed files.', {
    attributes: z.string(),
    driver: z.string(),
    changed: z.boolean(),
  }),
  'keys-publish': closedDocument(
    'rye keys publish',
    'The statements that were written to the project.',
    { files: z.array(z.string()), total: z.int() },
  ),
  'lock-accept': openDocument(
    'rye lock accept',
    'The new lock, and the changes that it accepts.',
    membersOf<AcceptedLock>()({
      path: z.string(),
      serial: z.int(),
      files: z.array(pin),
      changes: z.array(guardChange),
    }),
  ),
  'lock-status': openDocument(
    'rye lock status',
    'What is pinned and what differs from it. While runs are refused, success is false and error is the refusal.',
    membersOf<Omit<LockReport, 'refusal'>>()({
      error: anyObject.optional(),
      path: z.string(),
      state: z.enum(['absent', 'valid', 'untrusted', 'invalid']),
      serial: z.int().nullable(),
      key_id: z.string().nullable(),
      files: z.array(pin),
      changes: z.array(guardChange),
      diffs: z.array(
        z.strictObject({ type: z.string(), id: z.string(), lines: z.array(z.string()) }),
      ),
      ignored: z.array(z.string()),
    }),
  ),
};
