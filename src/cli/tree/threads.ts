import { THREAD_STATUSES } from '../../core/thread.ts';
import type { ArgumentSpec, CommandSpec } from '../spec.ts';
import { THREAD_DELIVERIES } from './threads-deliver.ts';
import { THREAD_EXCHANGE } from './threads-exchange.ts';
import { THREAD_OPERATIONS } from './threads-operate.ts';
import { THREAD_RECOVERY } from './threads-recovery.ts';
import { THREAD_SESSION } from './threads-session.ts';

const THREAD: ArgumentSpec = {
  name: 'id',
  description: 'thread id, or a unique start or end of it',
};

export const THREAD_COMMANDS: readonly CommandSpec[] = [
  {
    name: 'threads',
    summary: 'look at threads',
    examples: ['rye threads --active', 'rye threads logs hello-1771322456 --follow'],
    defaultCommand: 'list',
    commands: [
      {
        name: 'list',
        summary: 'list threads, newest first',
        options: [
          { name: 'active', description: 'only threads that a process should own' },
          {
            name: 'status',
            value: 'STATUS',
            choices: THREAD_STATUSES,
            description: 'only this status',
          },
          { name: 'directive', value: 'GLOB', description: 'only threads of these directives' },
          { name: 'parent', value: 'ID', description: 'only children of this thread' },
          { name: 'limit', value: 'N', kind: 'integer', description: 'at most N threads' },
        ],
        examples: ['rye threads --active', "rye threads list --status error --directive 'team/*'"],
        load: () => import('../commands/threads-list.ts'),
      },
      {
        name: 'show',
        summary: 'show one thread: status, cost, limits, chain and children',
        arguments: [THREAD],
        examples: ['rye threads show hello-1771322456'],
        load: () => import('../commands/threads-show.ts'),
      },
      {
        name: 'logs',
        summary: "print a thread's log",
        details:
          'With --json the events come as one document; with --json --follow as one JSON object per line, because a live log has no end.',
        arguments: [THREAD],
        options: [
          { name: 'follow', short: 'f', description: 'go on until the thread is finished' },
          { name: 'text', description: 'print lines for people (the default)' },
          {
            name: 'tail',
            short: 'n',
            value: 'N',
            kind: 'integer',
            description: 'the last N events',
          },
          { name: 'since', value: 'SEQ', kind: 'integer', description: 'only events after SEQ' },
          {
            name: 'unverified',
            description: 'only lines that no signature covers, each marked; they may be forged',
          },
        ],
        examples: ['rye threads logs hello-1771322456 --tail 20', 'rye threads logs 2456 --follow'],
        load: () => import('../commands/threads-logs.ts'),
      },
      ...THREAD_OPERATIONS,
      ...THREAD_DELIVERIES,
      ...THREAD_RECOVERY,
      ...THREAD_SESSION,
      ...THREAD_EXCHANGE,
    ],
  },
];
