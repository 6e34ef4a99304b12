import { EXPORT_FORMATS } from '../../core/thread.ts';
import type { CommandSpec } from '../spec.ts';

/** A thread's history for people and other programs. */
export const THREAD_EXCHANGE: readonly CommandSpec[] = [
  {
    name: 'export',
    summary: 'write a thread as a page, as Markdown or as JSON lines',
    details:
      'html: one page with the whole tree, the conversation, costs and the state of the record; it needs nothing else and loads nothing. md: the conversation of one branch. jsonl: one branch as an unsigned log of its own. pi: a session file of pi with all branches. A damaged log is exported as far as it can be read, and the exit status says so.',
    arguments: [{ name: 'id', description: 'thread id, or a unique start or end of it' }],
    options: [
      {
        name: 'format',
        value: 'FORMAT',
        choices: EXPORT_FORMATS,
        description: 'what to write; default: the ending of FILE, else md',
      },
      { name: 'out', short: 'o', value: 'FILE', description: 'write to FILE; default: stdout' },
      {
        name: 'branch',
        value: 'ENTRY',
        optional: true,
        description: 'only the path to ENTRY; without ENTRY the open one',
      },
      {
        name: 'redact',
        description:
          'without tool arguments and results, thinking, hook state and what looks like a secret',
      },
    ],
    examples: [
      'rye threads export hello-1771322456 --out hello.html',
      'rye threads export hello-1771322456 --out hello.html --redact --branch',
      'rye threads export 2456 --format jsonl --branch 3fa9',
    ],
    load: () => import('../commands/threads-export.ts'),
  },
  {
    name: 'import',
    summary: 'make a thread of a session of pi',
    details:
      'Reads a session file of version 1, 2 or 3, all its branches, and leaves it as it is. The thread is completed and has no permissions; it can be searched, branched, exported and resumed. What was damaged or not understood is listed on stderr.',
    arguments: [{ name: 'file', description: 'the session file (.jsonl)' }],
    options: [
      { name: 'thread-id', value: 'ID', description: 'id of the new thread' },
      {
        name: 'model',
        value: 'MODEL',
        description: "model that a resume asks; default: the session's own, if it is configured",
      },
    ],
    examples: ['rye threads import session.jsonl', 'rye threads import session.jsonl --json'],
    load: () => import('../commands/threads-import.ts'),
  },
];
