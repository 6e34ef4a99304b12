import { DELIVERY_MODES } from '../../core/delivery.ts';
import type { CommandSpec } from '../spec.ts';

const THREAD = { name: 'id', description: 'thread id, or a unique start or end of it' };

/** Messages to threads. */
export const THREAD_DELIVERIES: readonly CommandSpec[] = [
  {
    name: 'steer',
    summary: 'leave a message for a thread',
    details:
      'A running thread takes it in before its next request, or with --mode idle or follow-up when its model has finished. For a thread that does not run it is held until the thread is resumed.',
    arguments: [
      THREAD,
      { name: 'message', description: 'what the thread is to know, or - for stdin' },
    ],
    options: [
      {
        name: 'mode',
        value: 'MODE',
        choices: DELIVERY_MODES,
        description: 'when it is taken in (default: auto)',
      },
    ],
    examples: [
      "rye threads steer hello-1771322456 'Use metric units'",
      "rye threads steer 2456 'Then write a summary' --mode follow-up",
      'git diff | rye threads steer 2456 -',
    ],
    load: () => import('../commands/threads-steer.ts'),
  },
  {
    name: 'deliveries',
    summary: 'list messages sent to a thread and their status',
    details:
      'With --json each comes with every try and every decision. A delivery is manual when the model may have acted on it: settle it with --resolve. A crashed thread is recovered first.',
    arguments: [THREAD],
    options: [
      { name: 'resolve', value: 'N', kind: 'integer', description: 'settle number N' },
      {
        name: 'as',
        value: 'ANSWER',
        choices: ['delivered', 'dropped', 'retry'],
        description: 'delivered, dropped, or retry as a new delivery',
      },
    ],
    examples: [
      'rye threads deliveries hello-1771322456',
      'rye threads deliveries 2456 --resolve 3 --as retry',
    ],
    load: () => import('../commands/threads-deliveries.ts'),
  },
];
