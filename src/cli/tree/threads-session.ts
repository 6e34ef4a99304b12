import type { ArgumentSpec, CommandSpec } from '../spec.ts';

const THREAD: ArgumentSpec = {
  name: 'id',
  description: 'thread id, or a unique start or end of it',
};

const FILTERS = ['default', 'no-tools', 'user-only', 'labeled-only', 'all'] as const;

/** A thread's history as a tree: looked at, branched, labelled, compacted, played again. */
export const THREAD_SESSION: readonly CommandSpec[] = [
  {
    name: 'entries',
    summary: "draw a thread's session tree",
    details:
      'Each line is one entry: the start of its id, its kind and its text. The active branch is marked with ●, the leaf with ◆.',
    arguments: [THREAD],
    options: [
      {
        name: 'filter',
        value: 'FILTER',
        choices: FILTERS,
        description: 'what is shown; default: all but settings and hidden entries',
      },
      { name: 'search', value: 'WORDS', description: 'only entries with all of these words' },
      { name: 'entry', value: 'ENTRY', description: 'one entry in full, by its id or its start' },
    ],
    examples: [
      'rye threads entries hello-1771322456',
      'rye threads entries 2456 --filter user-only --search invoice',
    ],
    load: () => import('../commands/threads-entries.ts'),
  },
  {
    name: 'open',
    summary: "browse a thread's session tree on the terminal",
    details:
      'The tree stands at the left, the chosen entry at the right. ? shows the keys: filters, folding, search, labels, branching and resuming from an entry. Scripts use `rye threads entries`.',
    arguments: [THREAD],
    examples: ['rye threads open hello-1771322456'],
    load: () => import('../commands/threads-open.ts'),
  },
  {
    name: 'branch',
    summary: 'move the leaf of a thread, or begin a new thread with its path',
    details:
      'What comes next hangs on the leaf; nothing is removed. With --new the path is copied into a new, suspended thread and this one stays as it is.',
    arguments: [THREAD],
    options: [
      {
        name: 'at',
        value: 'ENTRY',
        description: 'entry id or a unique start of it; root: before the first entry',
      },
      {
        name: 'summary',
        value: 'TEXT',
        optional: true,
        description:
          'tell the new branch of the one that is left; without TEXT the model writes it',
      },
      {
        name: 'instructions',
        value: 'TEXT',
        description: 'what a summary by the model is to attend to',
      },
      {
        name: 'message',
        short: 'm',
        value: 'TEXT',
        description: 'begin the branch with a message',
      },
      { name: 'label', value: 'LABEL', description: 'name the entry too' },
      { name: 'new', description: 'extract the path into a new thread' },
      { name: 'thread-id', value: 'ID', description: 'id of the new thread' },
      { name: 'run', description: 'go on from there at once, as `rye threads resume` does' },
    ],
    examples: [
      'rye threads branch hello-1771322456 --at 3fa9 --message "Try it without the cache."',
      'rye threads branch 2456 --at 3fa9 --summary',
      'rye threads branch 2456 --at 3fa9 --new --run --message "Again, in French."',
    ],
    load: () => import('../commands/threads-branch.ts'),
  },
  {
    name: 'label',
    summary: 'name an entry of a thread; without a label its name is cleared',
    arguments: [
      THREAD,
      { name: 'entry', description: 'entry id or a unique start of it' },
      { name: 'label', optional: true, description: 'the name' },
    ],
    examples: ['rye threads label hello-1771322456 3fa9 "before the rewrite"'],
    load: () => import('../commands/threads-label.ts'),
  },
  {
    name: 'compact',
    summary: 'summarise the older part of a thread that does not run',
    details:
      "The thread's model writes the summary within what is left of its limits; the newest conversation stays in full. The entries stay in the log.",
    arguments: [THREAD],
    options: [
      { name: 'instructions', value: 'TEXT', description: 'what the summary is to attend to' },
    ],
    examples: ['rye threads compact hello-1771322456 --instructions "Keep every invoice number."'],
    load: () => import('../commands/threads-compact.ts'),
  },
  {
    name: 'replay',
    summary: "play a thread's recorded answers through today's rules, hooks and gates",
    details:
      'No model is asked, no tool runs and nothing is written: tools give what they gave. The first difference to the recording is shown; with --verify it is a failure.',
    arguments: [THREAD],
    options: [
      { name: 'from', value: 'ENTRY', description: 'play what comes behind this entry' },
      { name: 'verify', description: 'exit with 1 where the replay differs' },
    ],
    examples: ['rye threads replay hello-1771322456 --verify'],
    load: () => import('../commands/threads-replay.ts'),
  },
];
