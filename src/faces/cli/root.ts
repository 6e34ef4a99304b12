import { FEATURES } from '../../features/shipped.ts';
import { type Command, commandsOf, defineGroup, withHeading } from './command.ts';

/** The commands of features below one heading of the help. */
const ofFeatures = (below: string): readonly Command[] =>
  FEATURES.flatMap(({ commands = [] }) => commands).filter(({ heading }) => heading === below);

/** The whole command tree. The first word of a command line decides which command file is loaded. */
export const ROOT: Command = {
  name: 'rye',
  summary: 'Run LLM agents like jobs, not chats',
  ...defineGroup({
    examples: [
      'rye init',
      'rye run hello --input who=Ada',
      'git diff | rye ask "Write a commit message."',
      'rye search all "rate limit"',
      'rye threads --active',
    ],
    internal: [
      ...commandsOf(() => import('./commands/run.ts'), {
        '__run-thread': 'Run a launched thread in this process',
      }),
      ...commandsOf(() => import('./commands/threads-recovery.ts'), {
        '__resume-run': 'Resume a thread that has not run since',
      }),
      ...FEATURES.flatMap(({ internal = [] }) => internal),
      ...commandsOf(() => import('./commands/complete.ts'), {
        __complete: 'Print the words that a shell offers',
      }),
    ],
    commands: [
      ...withHeading(
        'Start:',
        ...commandsOf(() => import('./commands/items.ts'), {
          init: 'Create .ai/ in this folder, and a signing key if you have none',
        }),
        ...commandsOf(() => import('./commands/ask.ts'), {
          ask: 'Ask one question about files, stdin or the project (read-only)',
        }),
        ...commandsOf(() => import('./commands/chat.ts'), {
          chat: 'Talk with a model about the project; a conversation that can be continued',
        }),
        ...commandsOf(() => import('./commands/run.ts'), {
          run: 'Run a directive; short for `rye execute directive`',
        }),
      ),
      ...withHeading(
        'Watch:',
        ...commandsOf(() => import('./commands/threads.ts'), {
          threads: 'List, inspect and control threads',
          ps: 'List threads, newest first; short for `rye threads list`',
        }),
        ...commandsOf(() => import('./commands/threads-tree.ts'), {
          tree: 'Draw parents and children; short for `rye threads tree`',
        }),
        ...commandsOf(() => import('./commands/threads-show.ts'), {
          show: 'Show one thread and the next command; short for `rye threads show`',
          logs: "Print a thread's log; short for `rye threads logs`",
        }),
        ...commandsOf(() => import('./commands/threads-branch.ts'), {
          open: "Browse a thread's session tree; short for `rye threads open`",
        }),
        ...commandsOf(() => import('./commands/attach.ts'), {
          attach: 'Watch a running thread as if you had started it; Ctrl-C detaches',
        }),
        ...commandsOf(() => import('./commands/threads-recovery.ts'), {
          resume: 'Resume a finished, suspended or crashed thread; short for `rye threads resume`',
        }),
        ...commandsOf(() => import('./commands/threads-control.ts'), {
          stop: 'Ask a thread to stop; short for `rye threads cancel`',
        }),
        ...commandsOf(() => import('./commands/items.ts'), {
          search: 'Search items and thread exports, best match first',
        }),
      ),
      ...ofFeatures('Decide:'),
      ...withHeading(
        'Write:',
        ...commandsOf(() => import('./commands/author.ts'), {
          new: 'Write a directive, tool, skill, rule, hook or knowledge entry from a template',
          edit: 'Edit an item, then validate and sign it',
        }),
        ...commandsOf(() => import('./commands/items.ts'), {
          validate: 'Parse and check items; print each problem as file:line:col: code: message',
          list: 'List items with their space, version and signature; shadowed ones are marked',
          fetch: 'Show one resolved item: metadata and content',
        }),
        ...commandsOf(() => import('./commands/run.ts'), {
          execute: 'Run a directive or a tool',
        }),
        ...commandsOf(() => import('./commands/hooks.ts'), {
          hooks: 'List hooks and explain which ones apply',
        }),
        ...ofFeatures('Write:'),
      ),
      ...withHeading(
        'Trust:',
        ...commandsOf(() => import('./commands/items.ts'), {
          sign: 'Validate and sign items; alone, all that lack a valid signature',
          verify: "Check signatures and trust of items, or of a thread's files",
        }),
        ...commandsOf(() => import('./commands/keys.ts'), {
          keys: 'Manage your signing key and trusted keys',
        }),
        ...commandsOf(() => import('./commands/lock.ts'), {
          lock: "Show and accept changes to the project's power files",
        }),
        ...commandsOf(() => import('./commands/git.ts'), {
          git: 'Set git up for signed files',
        }),
      ),
      ...withHeading(
        'Operate:',
        ...commandsOf(() => import('./commands/models.ts'), {
          models: 'List configured models and set the default',
        }),
        ...commandsOf(() => import('./commands/config.ts'), {
          config: 'Show configuration and the source of each value',
        }),
        ...commandsOf(() => import('./commands/doctor.ts'), {
          doctor: 'Check keys, configuration, providers, sandbox and state',
        }),
        ...commandsOf(() => import('./commands/completion.ts'), {
          completion: 'Print a completion script for a shell',
        }),
        ...ofFeatures('Operate:'),
      ),
    ],
  }),
};
