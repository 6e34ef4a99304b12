import { type Command, defineGroup } from './command.ts';
import { completion } from './commands/completion.ts';
import { config } from './commands/config.ts';
import { doctor } from './commands/doctor.ts';
import { hooks } from './commands/hooks.ts';
import { importGroup } from './commands/import.ts';
import { ITEM_COMMANDS } from './commands/items.ts';
import { keys } from './commands/keys.ts';
import { lock } from './commands/lock.ts';
import { models } from './commands/models.ts';
import { rules } from './commands/rules.ts';
import { execute, runDirective, runLaunched } from './commands/run.ts';
import { list, logs, show, stats, tree } from './commands/threads.ts';
import { branch, open } from './commands/threads-branch.ts';
import { cancel, deliveries, kill, steer, wait } from './commands/threads-control.ts';
import { exportThread, importThread } from './commands/threads-exchange.ts';
import { gc, recover, resume } from './commands/threads-recovery.ts';
import { compactThread, entries, label, replay } from './commands/threads-session.ts';

const threads = defineGroup({
  name: 'threads',
  summary: 'List, inspect and control threads',
  examples: ['rye threads --active', 'rye threads logs hello-1771322456 --follow'],
  defaultCommand: 'list',
  commands: [
    list,
    show,
    logs,
    tree,
    wait,
    cancel,
    kill,
    stats,
    steer,
    deliveries,
    resume,
    recover,
    gc,
    entries,
    open,
    branch,
    label,
    compactThread,
    replay,
    exportThread,
    importThread,
  ],
});

/** The whole command tree. */
export const ROOT: Command = defineGroup({
  name: 'rye',
  summary: 'Run signed Markdown/XML work orders as managed, durable, budgeted LLM threads',
  examples: [
    'rye init',
    'rye run hello --input who=Ada',
    'rye search all "rate limit"',
    'rye threads --active',
  ],
  internal: [runLaunched],
  commands: [
    ...ITEM_COMMANDS,
    lock,
    keys,
    execute,
    runDirective,
    threads,
    rules,
    importGroup,
    hooks,
    config,
    models,
    doctor,
    completion,
  ],
});
