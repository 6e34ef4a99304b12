import * as fc from 'fast-check';
import { expectTypeOf, it } from 'vitest';
import type { BehaviorOptions } from '../../src/kernel/core/behavior.ts';
import { isRecord, type JsonObject } from '../../src/kernel/core/json.ts';
import { parseBehavior } from '../../src/kernel/loop/behavior.ts';
import type { BehaviorFile } from '../../src/kernel/schemas/behavior.ts';
import { runs } from '../helpers/runs.ts';
import { parseBehavior as parseByHand } from './by-hand/behavior.ts';
import { expectSame, mutated } from './old-and-new.ts';

const documents: readonly JsonObject[] = [
  {
    schema: { type: 'object', properties: { a: { type: 'string' } } },
    thinking: 'low',
    thinking_decay: { after_runs: 2, floor: 'minimal' },
    max_tokens: 500,
    betas: ['a-1', 'b.2'],
    context_management: { edits: [{ type: 'clear_tool_uses_20250919' }] },
    cache: false,
    compact_strategy: 'tail',
    compact_threshold: 9000,
    compact_keep_turns: 2,
    elide_stale_reads: true,
    nudge: false,
    steer_between_calls: true,
    tool_budgets: {
      'rye/bash': 3,
      rye_grep: { max: 1, on_exceed: 'steer', grace: 0, message: 'm' },
    },
    tool_output_budget: 1,
    dedup_tools: ['rye/a', 'rye_b'],
    dedup_reads: false,
    loop_repeats: 3,
    require_read_before_edit: true,
    read_line_numbers: false,
    persist_threshold: 0,
    persist_exclude_tools: 'rye/a, rye/b',
    tool_aliases: { 'rye/bash': 'Bash' },
    shell_max_output_bytes: 7,
    shell_metadata: false,
  },
  {
    schema: '{"type":"object"}',
    thinkingDecay: { afterRuns: '2', floor: 'minimal' },
    maxTokens: '500',
    compactStrategy: 'tail',
    compactThreshold: '9000',
    elideStaleReads: 'true',
    toolBudgets: { 'rye/bash': '3', rye_grep: { max: '1', onExceed: 'block', grace: '4' } },
    dedupTools: 'rye/a, rye_b',
    toolAliases: { rye_bash: 'Bash' },
    nudge: null,
  },
];

it('behavior is read and refused as by hand', () => {
  fc.assert(
    fc.property(mutated(documents).filter(isRecord), (value) => {
      expectSame(
        () => parseByHand(value as JsonObject),
        () => parseBehavior(value as JsonObject),
      );
    }),
    runs(700),
  );
});

it('the options of the library are the declared ones, and null unsets one', () => {
  type Set<T> = { readonly [K in keyof T]-?: NonNullable<T[K]> };
  type Options = Set<BehaviorOptions>;
  type File = Set<BehaviorFile>;
  // these have a short form, and tools as one text
  type Short =
    | 'betas'
    | 'context_management'
    | 'schema'
    | 'tool_budgets'
    | 'tool_aliases'
    | 'dedup_tools'
    | 'persist_exclude_tools';

  expectTypeOf<keyof Options>().toEqualTypeOf<keyof File>();
  expectTypeOf<Omit<Options, Short | 'thinking_decay'>>().toEqualTypeOf<
    Omit<File, Short | 'thinking_decay'>
  >();
  expectTypeOf<Options['thinking_decay']>().toExtend<File['thinking_decay']>();
  expectTypeOf<File['tool_aliases']>().toExtend<Options['tool_aliases']>();
  expectTypeOf<Extract<Options['tool_budgets'][string], object>>().toExtend<
    File['tool_budgets'][string]
  >();
  expectTypeOf<File['dedup_tools']>().toExtend<Options['dedup_tools']>();
  expectTypeOf<File['persist_exclude_tools']>().toExtend<Options['persist_exclude_tools']>();
});
