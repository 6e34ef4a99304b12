import type { CommandSpec } from '../spec.ts';
import { INTERNAL_COMMANDS } from './internal.ts';
import { ITEM_COMMANDS } from './items.ts';
import { OPERATING_COMMANDS } from './operate.ts';
import { RULE_COMMANDS } from './rules.ts';
import { RUN_COMMANDS } from './run.ts';
import { THREAD_COMMANDS } from './threads.ts';

/** The whole command tree. */
export const ROOT: CommandSpec = {
  name: 'rye',
  summary: 'Run signed Markdown/XML work orders as managed, durable, budgeted LLM threads.',
  examples: [
    'rye init',
    'rye run hello --input who=Ada',
    'rye search all "rate limit"',
    'rye threads --active',
  ],
  internal: INTERNAL_COMMANDS,
  commands: [
    ...ITEM_COMMANDS,
    ...RUN_COMMANDS,
    ...THREAD_COMMANDS,
    ...RULE_COMMANDS,
    ...OPERATING_COMMANDS,
  ],
};
