import type { ArgumentSpec, CommandSpec, OptionSpec } from '../spec.ts';

const THREAD: ArgumentSpec = {
  name: 'id',
  description: 'thread id, or a unique start or end of it',
};

const STOP_OPTIONS: readonly OptionSpec[] = [
  { name: 'tree', description: 'all threads below it too, whatever child_policy says' },
  { name: 'reason', value: 'TEXT', description: 'why, for the log and the result' },
];

/** Acting on threads of any process. */
export const THREAD_OPERATIONS: readonly CommandSpec[] = [
  {
    name: 'tree',
    summary: 'draw parents and children with status and spend',
    arguments: [{ ...THREAD, optional: true, description: 'only this thread and those below it' }],
    options: [
      { name: 'watch', short: 'w', description: 'draw again at each change until all have ended' },
      { name: 'limit', value: 'N', kind: 'integer', description: 'at most N roots (default 20)' },
    ],
    examples: ['rye threads tree', 'rye threads tree 2456 --watch'],
    load: () => import('../commands/threads-tree.ts'),
  },
  {
    name: 'wait',
    summary: 'wait until threads have ended',
    details:
      'Follows continuations to their end. The exit status is 0 only if every thread completed, and 5 when the time was up.',
    arguments: [{ ...THREAD, name: 'id...' }],
    options: [
      { name: 'any', description: 'until one of them has ended' },
      { name: 'timeout', value: 'SECONDS', kind: 'number', description: 'no longer than this' },
    ],
    examples: [
      'rye threads wait hello-1771322456',
      'rye threads wait 2456 2457 --any --timeout 60 --json',
    ],
    load: () => import('../commands/threads-wait.ts'),
  },
  {
    name: 'cancel',
    summary: 'ask a thread to stop',
    details:
      'Its process sees the request within a moment, ends what runs and finalizes the thread as cancelled.',
    arguments: [THREAD],
    options: STOP_OPTIONS,
    examples: ['rye threads cancel hello-1771322456 --tree --reason "wrong folder"'],
    load: () => import('../commands/threads-cancel.ts'),
  },
  {
    name: 'kill',
    summary: "end a thread's process",
    details: 'SIGTERM, and SIGKILL after three seconds. The thread is finalized as cancelled.',
    arguments: [THREAD],
    options: STOP_OPTIONS,
    examples: ['rye threads kill hello-1771322456'],
    load: () => import('../commands/threads-kill.ts'),
  },
  {
    name: 'stats',
    summary: 'sum up spend, tokens and outcomes',
    options: [
      {
        name: 'by',
        value: 'KEY',
        choices: ['directive', 'model', 'day'],
        description: 'directive (default), model, or day',
      },
    ],
    examples: ['rye threads stats', 'rye threads stats --by day --json'],
    load: () => import('../commands/threads-stats.ts'),
  },
];
