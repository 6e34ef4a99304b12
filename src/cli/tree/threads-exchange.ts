import { EXPORT_FORMATS } from '../../app/exports-types.ts';
import type { CommandSpec } from '../spec.ts';

/** A thread's history for people and other programs. */
export const THREAD_EXCHANGE: readonly CommandSpec[] = [
  {
    name: 'export',
    summary: 'write a thread as a page, as Markdown or as JSON lines',
    details:
      'md: the conversation for reading. jsonl: the active path as an unsigned log of its own. Both follow one branch. A damaged log is exported as far as it can be read, and the exit status says so.',
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
    ],
    examples: [
      'rye threads export hello-1771322456 --out hello.md',
      'rye threads export 2456 --format jsonl --branch 3fa9',
    ],
    load: () => import('../commands/threads-export.ts'),
  },
];
