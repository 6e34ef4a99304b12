import { z } from 'zod';
import type { ApprovalVerification, ListedApproval } from '../../src/kernel/app/api/approvals.ts';
import { APPROVAL_SCOPES, APPROVAL_STATES } from '../../src/kernel/core/approval.ts';
import { anyObject, closedDocument, errorInfo, membersOf, openDocument } from './shared.ts';

const verb = z.enum(['approve', 'deny', 'answer']);

const listed = {
  id: z.string(),
  thread_id: z.string(),
  root_thread_id: z.string().describe('The thread at the top of the family.'),
  kind: z.enum(['call', 'question', 'limit']),
  state: z.enum(APPROVAL_STATES),
  tool: z.string(),
  capability: z.string(),
  reason: z.string(),
  rule: z.string().describe('The source of the demand.'),
  input: anyObject,
  input_sha256: z.string(),
  request_sha256: z.string().describe('The hash that decisions sign.'),
  preview: z.object({
    title: z.string(),
    format: z.enum(['diff', 'command', 'url', 'question', 'input']),
    text: z.string(),
    schema: anyObject.optional().describe('JSON Schema of the answer to a question.'),
  }),
  approvers: z.array(z.object({ name: z.string(), key_id: z.string() })),
  quorum: z.int(),
  scopes: z.array(z.enum(APPROVAL_SCOPES)),
  created_at: z.string(),
  expires_at: z.string(),
  decisions: z.array(
    z.object({
      decision: verb,
      key_id: z.string(),
      scope: z.enum(APPROVAL_SCOPES),
      comment: z.string(),
      decided_at: z.string(),
      late: z.boolean().describe('Signed too late: evidence without effect.'),
    }),
  ),
};

const approval = z.object(membersOf<ListedApproval>()(listed));

export const approvalDocuments = {
  approvals: openDocument('rye approvals list', 'Requests, oldest first; questions too.', {
    approvals: z.array(approval),
    total: z.int(),
  }),
  approval: openDocument('rye approvals show', 'One request.', { approval }),
  'approval-decided': closedDocument('rye approve|deny|answer', 'The requests that were decided.', {
    approvals: z.array(
      z.object({
        ...listed,
        missing: z.int().describe('Further approvers that are needed; 0: decided.'),
        resumed: z.boolean().describe('True if a process was started that resumes the thread.'),
        awaits_owner: z
          .literal(true)
          .optional()
          .describe('The thread runs under another key, whose owner resumes it.'),
      }),
    ),
    total: z.int(),
    problems: z.array(z.object({ id: z.string(), error: errorInfo })),
    error: errorInfo.optional(),
  }),
  'approval-verify': openDocument(
    'rye approvals verify',
    "A request and its decisions, checked in the thread's signed log.",
    membersOf<ApprovalVerification>()({
      id: z.string(),
      thread_id: z.string(),
      ok: z.boolean(),
      request_sha256: z.string(),
      outcome: z.enum(APPROVAL_STATES),
      decisions: z.array(
        z.object({
          key_id: z.string(),
          decision: verb,
          decided_at: z.string(),
          ok: z.boolean(),
          problem: z.string().optional(),
        }),
      ),
      error: errorInfo.optional(),
    }),
  ),
};
