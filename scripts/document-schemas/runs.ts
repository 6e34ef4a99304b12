import { z } from 'zod';
import type { ResultDocument } from '../../src/faces/cli/result-document.ts';
import type { ToolRunResult } from '../../src/kernel/app/api/threads.ts';
import type { WorktreeChanges } from '../../src/kernel/core/isolation.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import type {
  ContextBlock,
  PlannedTool,
  ProgramParts,
  ThreadPlan,
} from '../../src/kernel/core/plan.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import type { LaunchedThread } from '../../src/kernel/threads/ports.ts';
import {
  anyObject,
  closedDocument,
  errorInfo,
  familyCost,
  itemSource,
  membersOf,
  openDocument,
  plannedModel,
  threadPaths,
} from './shared.ts';

type FinishedThread = Omit<ResultDocument, 'success' | 'status'> & {
  readonly status: 'completed' | 'error' | 'cancelled' | 'continued' | 'suspended';
};

type EndStatus = FinishedThread['status'];

/** The document of `rye chat --json`. `thread_id`, `status`: null if nothing was asked. `message`: null for the start of a directive. */
interface ChatDocument {
  readonly thread_id: string | null;
  readonly status: EndStatus | null;
  readonly messages: readonly {
    readonly message: string | null;
    readonly status: EndStatus;
    readonly result: string;
    readonly outputs?: JsonObject;
  }[];
  readonly cost?: ThreadResult['cost'];
  readonly error?: ThreadResult['error'];
  readonly warnings?: ThreadResult['warnings'];
}

export const worktreeChanges = z
  .strictObject(
    membersOf<WorktreeChanges>()({
      pushed: z
        .object({ ref: z.string(), commit: z.string() })
        .optional()
        .describe('The commit with the changes, and the ref at the URL of the source.'),
      status: z.enum(['none', 'patch', 'merged', 'merge_conflict', 'merge_interrupted']),
      base: z.string().describe('the commit that the worktree began at'),
      patch: z.string().nullable().describe('path relative to the project'),
      files: z.array(
        z.strictObject({
          path: z.string(),
          change: z.enum(['added', 'modified', 'deleted']),
        }),
      ),
      conflicts: z
        .array(z.strictObject({ path: z.string(), reason: z.string() }))
        .optional()
        .describe('files that could not be merged; then none was'),
      merged: z
        .array(z.string())
        .optional()
        .describe(
          'files that have the change although the merge did not complete: its process died, or they changed again before theirs was taken back',
        ),
      left_out: z
        .strictObject({ paths: z.array(z.string()), total: z.int(), worktree: z.string() })
        .optional()
        .describe('what the patch does not have, kept in the worktree, which stays'),
    }),
  )
  .describe('With isolation: the changes in the worktree of the thread.');

export const runDocuments = {
  'thread-result': openDocument(
    'rye execute directive',
    'The ThreadResult; with stream-json the last line.',
    membersOf<FinishedThread>()({
      thread_id: z.string(),
      directive: z.string(),
      status: z.enum(['completed', 'error', 'cancelled', 'continued', 'suspended']),
      result: z.string(),
      outputs: anyObject.optional(),
      cost: familyCost,
      model: z.string(),
      children: z.array(z.string()),
      changes: worktreeChanges.optional(),
      warnings: z.array(z.string()).optional(),
      paths: threadPaths,
      error: errorInfo.optional(),
      waiting_for: z.literal('approval').optional(),
      approvals: z.array(z.string()).optional().describe('Requests that it waits for.'),
      parent_thread_id: z.string().optional(),
      continuation_thread_id: z.string().optional(),
      session_id: z.string(),
      is_error: z.boolean(),
      num_turns: z.int(),
      total_cost_usd: z.number(),
      duration_ms: z.int(),
      structured_output: anyObject.nullable(),
      permission_denials: z.array(
        z.object(
          membersOf<ResultDocument['permission_denials'][number]>()({
            tool_name: z.string(),
            tool_use_id: z.string(),
            tool_input: anyObject,
            reason: z.string().optional(),
          }),
        ),
      ),
    }),
  ),
  chat: openDocument(
    'rye chat',
    'A conversation that was piped in, with every message and its answer.',
    membersOf<ChatDocument>()({
      thread_id: z.string().nullable(),
      status: z.enum(['completed', 'error', 'cancelled', 'continued', 'suspended']).nullable(),
      messages: z.array(
        z.object({
          message: z.string().nullable(),
          status: z.enum(['completed', 'error', 'cancelled', 'continued', 'suspended']),
          result: z.string(),
          outputs: anyObject.optional(),
        }),
      ),
      cost: familyCost.optional(),
      error: errorInfo.optional(),
      warnings: z.array(z.string()).optional(),
    }),
  ),
  'tool-result': openDocument(
    'rye execute tool',
    'The outcome of one tool.',
    membersOf<Omit<ToolRunResult, 'success'>>()({
      tool: z.string(),
      result: z.string(),
      data: anyObject.optional(),
      duration_ms: z.int(),
    }),
  ),
  launched: closedDocument(
    'rye execute directive --async --json, rye execute tool --async',
    'A background thread, running or queued.',
    membersOf<LaunchedThread>()({
      thread_id: z.string(),
      directive: z.string(),
      status: z.enum(['running', 'created']),
      pid: z.int().nullable(),
      label: z.string().optional(),
    }),
  ),
  plan: closedDocument(
    'rye execute directive --dry-run',
    'The plan of a thread: everything that decides how it would run, and in origins the file that gave each value.',
    {
      plan: z.object(
        membersOf<ThreadPlan>()({
          format: z.literal(1),
          directive: z.object({
            type: z.string(),
            id: z.string(),
            space: z.string(),
            path: z.string(),
            sha256: z.string(),
            integrity: z.string(),
            name: z.string(),
            version: z.string(),
            description: z.string(),
            category: z.string(),
          }),
          chain: z.array(itemSource),
          context_sources: z.array(itemSource),
          parent_thread_id: z.string().nullable(),
          inputs: anyObject,
          secret_inputs: z.array(z.string()),
          outputs: z.array(anyObject),
          prompt: z.string(),
          body: z.string(),
          context: z.array(
            z.object(
              membersOf<ContextBlock>()({
                position: z.enum(['system', 'before', 'after']),
                id: z.string(),
                source: z.string(),
                content: z.string(),
              }),
            ),
          ),
          suppress: z.array(z.string()),
          process: z.array(anyObject),
          process_values: anyObject.optional(),
          limits: z.object({
            turns: z.number(),
            tokens: z.number(),
            spend: z.number(),
            duration_seconds: z.number(),
            spawns: z.number(),
            depth: z.number(),
          }),
          capabilities: z.array(z.string()),
          acknowledged: z.array(anyObject),
          risks: z.array(
            z.object({
              capability: z.string(),
              risk: z.enum(['safe', 'write', 'elevated', 'unrestricted']),
            }),
          ),
          hooks: z.array(anyObject),
          tools: z.array(
            z.object(
              membersOf<PlannedTool>()({
                id: z.string(),
                name: z.string(),
                description: z.string(),
                input_schema: anyObject,
                preloaded: z.boolean(),
                risk: z.string(),
              }),
            ),
          ),
          model: plannedModel,
          fallbacks: z.array(plannedModel),
          thinking: z.enum(['off', 'minimal', 'low', 'medium', 'high']),
          integrity: z.string(),
          allow_unpriced: z.boolean(),
          continuation_directive: z.string().nullable(),
          behavior: anyObject,
          origins: z.record(z.string(), z.string()),
          warnings: z.array(z.string()),
          settings: anyObject,
          rules: anyObject.optional(),
          program: z
            .strictObject(
              membersOf<ProgramParts>()({
                handlers: z.array(z.string()),
                tools: z.array(z.string()),
                directives: z.array(z.string()).optional(),
                mcp_servers: z.array(z.string()).optional(),
                skills: z.array(z.string()).optional(),
              }),
            )
            .optional(),
        }),
      ),
      warnings: z.array(z.string()),
    },
  ),
  failure: openDocument('any command', 'Why nothing was done; every failure has this form.', {
    error: errorInfo,
  }),
};
