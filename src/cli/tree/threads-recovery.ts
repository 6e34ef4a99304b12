import type { CommandSpec } from '../spec.ts';

/** Threads that go on, and what becomes of those that are over. */
export const THREAD_RECOVERY: readonly CommandSpec[] = [
  {
    name: 'resume',
    summary: 'go on with a thread that ended, was suspended or crashed',
    details:
      'A suspended thread goes on under its own id, any other in a new thread that continues it: same directive, inputs, model and parent, what is left of the limits, and the whole conversation. The log is verified first.',
    arguments: [{ name: 'id', description: 'thread id, or a unique start or end of it' }],
    options: [
      { name: 'message', short: 'm', value: 'TEXT', description: 'what to tell the model' },
      {
        name: 'from',
        value: 'ENTRY',
        description: 'go on from this entry of the session, not from its end',
      },
      {
        name: 'limit',
        value: 'NAME=N',
        repeat: true,
        description: 'a limit of the continuation, instead of what is left of it',
      },
      {
        name: 'input',
        value: 'NAME=VALUE',
        repeat: true,
        description: 'a secret input again; NAME=@FILE reads a file. All others are taken over',
      },
      {
        name: 'allow-unsigned',
        description: "run the project's own unsigned items; the thread is marked as unverified",
      },
      {
        name: 'output-format',
        value: 'FORMAT',
        choices: ['text', 'json', 'stream-json'],
        description: 'text, the result as JSON, or every event as a JSON line',
      },
      {
        name: 'print',
        short: 'p',
        description: 'print the final result only, without live output',
      },
    ],
    examples: [
      'rye threads resume hello-1771322456 --message "Now in French."',
      'rye threads resume 2456 --from 3fa9 --limit turns=10',
    ],
    load: () => import('../commands/threads-resume.ts'),
  },
  {
    name: 'recover',
    summary: 'end threads in order whose process died',
    details:
      'Repairs the log, answers open tool calls, settles the budget. The thread ends as an error that can be resumed; with recovery.mode: resume in coordination.yaml it goes on at once.',
    arguments: [
      {
        name: 'id',
        optional: true,
        description: 'only this thread; default: every dead thread of the project',
      },
    ],
    options: [
      {
        name: 'rebuild',
        description:
          'replace a damaged or forged thread.json of this thread by what its signed log says; the old file is kept beside it',
      },
    ],
    examples: [
      'rye threads recover',
      'rye threads recover hello-1771322456 --json',
      'rye threads recover hello-1771322456 --rebuild',
    ],
    load: () => import('../commands/threads-recover.ts'),
  },
  {
    name: 'gc',
    summary: 'archive the logs of threads that ended long ago',
    details:
      'The logs are compressed and can be read, verified and resumed from as before. Threads stay as they are while their chain, parent or children are young or not over.',
    options: [
      {
        name: 'older-than',
        value: 'AGE',
        description: 'since the end, such as 12h, 30d or 8w (default: 30d)',
      },
      { name: 'dry-run', description: 'say what would be archived, and change nothing' },
    ],
    examples: ['rye threads gc --dry-run', 'rye threads gc --older-than 7d'],
    load: () => import('../commands/threads-gc.ts'),
  },
];
