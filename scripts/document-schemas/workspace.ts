import { z } from 'zod';
import type { AppliedReport, DryRunRow } from '../../src/features/rye-os/apply.ts';
import type { ReviewedItem } from '../../src/features/rye-os/review.ts';
import type { RuleHit, RuleRow, RuleScan } from '../../src/kernel/app/api/rules.ts';
import type {
  ConfigValue,
  DoctorLine,
  HookExplanation,
  InitOutcome,
  McpServerReport,
  ModelUse,
} from '../../src/kernel/app/api/rye.ts';
import type { RepairReport } from '../../src/kernel/app/api/threads.ts';
import {
  anyObject,
  closedDocument,
  hook,
  membersOf,
  openDocument,
  recovery,
  threadFailure,
} from './shared.ts';

const ruleHit = membersOf<RuleHit>()({
  rule: z.string(),
  interrupts: z.boolean(),
  line: z
    .int()
    .optional()
    .describe("Line of the first match's end, from 1; absent for rules with engine: js."),
});

export const workspaceDocuments = {
  'config-path': closedDocument('rye config path', 'The folders that configuration is read from.', {
    project: z.string(),
    user: z.string(),
  }),
  'config-show': openDocument('rye config show|get', 'Each value with the file that set it.', {
    values: z.array(
      z.object(
        membersOf<ConfigValue>()({
          path: z.string(),
          value: z.unknown(),
          origin: z.string(),
          is_default: z.literal(true).optional(),
        }),
      ),
    ),
    total: z.int(),
  }),
  mcp: openDocument('rye mcp list|test', 'MCP servers with their tools.', {
    servers: z.array(
      z.object(
        membersOf<McpServerReport>()({
          name: z.string(),
          ok: z.boolean(),
          error: anyObject.optional(),
          tools: z.array(z.object({ id: z.string(), description: z.string() })),
        }),
      ),
    ),
    total: z.int(),
  }),
  'mcp-add': closedDocument('rye mcp add', 'The file that names the server.', {
    name: z.string(),
    path: z.string(),
  }),
  doctor: openDocument('rye doctor', 'Each check with its outcome.', {
    checks: z.array(
      z.object(
        membersOf<DoctorLine>()({
          check: z.string(),
          status: z.string(),
          detail: z.string(),
          hint: z.string().optional(),
        }),
      ),
    ),
    total: z.int(),
    repair: z
      .object(
        membersOf<RepairReport>()({
          moved: z.array(
            z.object({
              database: z.string(),
              from: z.string(),
              to: z.string(),
            }),
          ),
          threads: z.array(z.string()),
          budgets: z.array(z.string()),
          recovered: z.array(recovery),
          failures: z.array(threadFailure),
          notes: z.array(z.string()),
        }),
      )
      .optional()
      .describe('What --repair did.'),
  }),
  'hooks-explain': openDocument(
    'rye hooks explain',
    'Which hooks would fire and why the others would not.',
    {
      directive: z.string(),
      hooks: z.array(
        z.object(
          membersOf<HookExplanation>()({
            hook,
            would_fire: z.boolean(),
            depends_on: z.array(z.string()),
            because: z.string(),
          }),
        ),
      ),
      total: z.int(),
    },
  ),
  'hooks-list': openDocument('rye hooks list', 'The merged table of hooks.', {
    hooks: z.array(hook),
    total: z.int(),
  }),
  'hooks-schema': closedDocument('rye hooks schema', 'What the hooks of each event can read.', {
    schemas: z.array(
      z.object({
        event: z.string(),
        schema: anyObject,
      }),
    ),
    total: z.int(),
  }),
  'import-rye-os': openDocument(
    'rye import rye-os',
    'What each item needs before it can be used.',
    {
      items: z.array(
        z.object(
          membersOf<ReviewedItem>()({
            type: z.string(),
            id: z.string(),
            path: z.string(),
            verdict: z.enum(['runs', 'acknowledge', 'change', 'refused']),
            patched: z.boolean(),
            needs: z.array(z.string()),
            code: z.string().nullable(),
            reason: z.string(),
            hint: z.string().nullable(),
          }),
        ),
      ),
      summary: anyObject,
      patch: z.string(),
      total: z.int(),
      applied: z
        .object(
          membersOf<AppliedReport>()({
            files: z.array(anyObject),
            skipped: z.array(anyObject),
            to_fill_in: z.array(z.string()),
            signed: z.int(),
            not_signed: z.array(z.string()),
            directives: z.array(
              z.object(
                membersOf<DryRunRow>()({
                  id: z.string(),
                  plans: z.boolean(),
                  code: z.string().nullable(),
                  reason: z.string().nullable(),
                }),
              ),
            ),
            planned: z.int(),
          }),
        )
        .optional(),
    },
  ),
  init: openDocument(
    'rye init',
    'What was written and which key signs.',
    membersOf<InitOutcome>()({
      project: z.string(),
      created: z.array(z.string()),
      kept: z.array(z.unknown()),
      key_id: z.string(),
      key_created: z.boolean(),
    }),
  ),
  'models-list': openDocument('rye models list', 'Configured models.', {
    models: z.array(
      z.object({
        provider: z.string(),
        model: z.string().nullable(),
        usable: z.boolean(),
        tiers: z.array(z.string()),
        context_window: z.int(),
        max_output_tokens: z.int(),
        pricing: anyObject.nullable(),
        prices_as_of: z.string().nullable(),
        capabilities: z.array(z.string()),
        fallback: z.array(z.unknown()),
        needs: z.array(z.string()),
        key_variable: z.string().nullable(),
        default_provider: z.boolean(),
        chosen: z.boolean(),
        chosen_because: z.string().nullable(),
      }),
    ),
    total: z.int(),
    warnings: z.array(z.string()),
  }),
  'models-prices': openDocument('rye models prices', 'Prices of models.', {
    prices: z.array(
      z.object({
        provider: z.string(),
        model: z.string(),
        input: z.number(),
        output: z.number(),
        cache_read: z.number().nullable(),
        cache_write: z.number().nullable(),
        as_of: z.string().nullable(),
        age_days: z.int().nullable(),
        is_stale: z.boolean(),
        source: z.string(),
      }),
    ),
    total: z.int(),
    warnings: z.array(z.string()),
  }),
  'models-use': openDocument(
    'rye models use',
    'The model for directives that name none.',
    membersOf<ModelUse>()({
      space: z.enum(['user', 'project']),
      path: z.string(),
      provider: z.string(),
      model: z.string().nullable(),
      usable: z.boolean(),
    }),
  ),
  'rules-list': openDocument('rye rules list', 'Rules of the three spaces.', {
    rules: z.array(
      z.object(
        membersOf<RuleRow>()({
          name: z.string(),
          id: z.string(),
          bucket: z.string(),
          space: z.string(),
          path: z.string(),
          description: z.string(),
          scope: z.array(z.string()),
          globs: z.array(z.unknown()),
          interrupt: z.string(),
          repeat: z.string(),
          gap: z.int(),
          engine: z.string(),
          problems: z.array(z.unknown()),
        }),
      ),
    ),
    refused: z.array(z.unknown()),
    total: z.int(),
  }),
  'rules-scan': closedDocument(
    'rye rules scan',
    'The rules that files break; success is false when there is a hit.',
    {
      files: z.int(),
      skipped: z.int(),
      hits: z.array(
        z.object(membersOf<RuleScan['hits'][number]>()({ ...ruleHit, path: z.string() })),
      ),
      total: z.int(),
    },
  ),
  'rules-test': closedDocument('rye rules test', 'The rules that a text breaks.', {
    checked: z.int(),
    hits: z.array(z.object(ruleHit)),
    total: z.int(),
  }),
};
