import type { CommandSpec } from '../spec.ts';

/** What rye starts itself. */
export const INTERNAL_COMMANDS: readonly CommandSpec[] = [
  {
    name: '__run-thread',
    summary: 'run a thread that was handed over to this process',
    arguments: [{ name: 'id', description: 'thread id' }],
    examples: [],
    load: () => import('../commands/run-thread.ts'),
  },
];
