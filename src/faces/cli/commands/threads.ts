import type { ListedThread, ThreadListFilter } from '../../../kernel/app/api/threads.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { THREAD_STATUSES } from '../../../kernel/core/thread.ts';
import { plainTable, screenful, threadTable } from '../../ui/render/thread-list.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import {
  type Context,
  choice,
  commandsOf,
  defineCommand,
  defineGroup,
  flag,
  integer,
  text,
  withHeading,
} from '../command.ts';
import { colorsOf, count, printResult } from '../output.ts';
import { withThreadList } from '../session.ts';

const list = defineCommand({
  options: {
    active: flag('Only running threads'),
    status: choice('STATUS', THREAD_STATUSES, 'Only threads with this status'),
    directive: text('GLOB', 'Only threads of these directives'),
    parent: text('ID', 'Only children of this thread'),
    all: flag('All threads, also children, which are summarized with their parent otherwise'),
    limit: integer('N', 'At most N threads (default at a terminal: what fits the screen)'),
  },
  examples: ['rye threads --active', "rye threads list --status error --directive 'team/*'"],
  run: async (call) => {
    const { options, io, global } = call;
    const { active, parent, all: hasAll, limit, ...rest } = options;
    // a document describes each thread; a list for people, each session
    const sessions = (!global.json && rest.status !== 'continued') || undefined;
    const filter: ThreadListFilter = compact({ ...rest, sessions, active: active || undefined });
    // who asks for a status, a directive or a parent means children too
    const isFiltered = active || Object.values(compact({ ...rest, parent })).length > 0;
    const { found, every, unlisted } = await withThreadList(call, async (view) => ({
      found: await view.threads.list({
        ...filter,
        ...(parent === undefined ? {} : { parent: await view.threads.resolveId(parent) }),
      }),
      // a row counts all its children, also those that the filter does not show
      every:
        isFiltered && io.stdout.isTty && !global.json
          ? await view.threads.list({ sessions: true })
          : undefined,
      unlisted: await view.threads.unlisted(),
    }));
    if (unlisted.length > 0) io.stderr.write(unlistedWarning(unlisted));
    const others = unlisted.length > 0 ? { unlisted } : {};
    const isWhole = global.json || hasAll;
    const listed = isWhole || isFiltered ? found : found.filter((one) => one.parent_id === null);
    const threads = listed.slice(0, limit ?? (isWhole ? undefined : screenful(io.stdout)));
    printResult(call, { threads, total: listed.length, ...others }, () => {
      if (!io.stdout.isTty) return plainTable(threads, io.stdout);
      const total = limit === undefined ? listed.length : threads.length;
      const colors = colorsOf(io.stdout, call);
      const style = { sink: io.stdout, colors, now: io.now(), total };
      return threadTable(threads, { found, every: every ?? found }, style);
    });
    hintCrashed(threads, call);
    return EXIT.ok;
  },
});

function hintCrashed(threads: readonly ListedThread[], { io, global }: Context): void {
  if (global.json || global.quiet) return;
  if (!threads.some((thread) => thread.process_gone === true)) return;
  io.stderr.write(shown`hint: To clean up crashed threads: rye threads recover\n`);
}

const MAX_NAMED = 3;

function unlistedWarning(unlisted: readonly string[]): Shown {
  const named = unlisted.slice(0, MAX_NAMED).join(', ');
  const more = unlisted.length > MAX_NAMED ? ', …' : '';
  const what = shown`${count(unlisted.length, 'thread')} missing from the registry: ${oneLine(named)}${more}`;
  return shown`rye: warning: ${what}\nhint: To restore them: rye doctor --repair\n`;
}

export { list as ps };

export const threads = defineGroup({
  examples: ['rye threads --active', 'rye threads logs hello-7f3k --follow'],
  defaultCommand: 'list',
  commands: [
    ...withHeading(
      'Look:',
      { name: 'list', summary: 'List threads, newest first', ...list },
      ...commandsOf(() => import('./threads-show.ts'), {
        show: 'Show one thread: state, limits, cost, children and the next command',
      }),
      ...commandsOf(() => import('./threads-tree.ts'), {
        tree: 'Draw parents and children with status, time and spend',
      }),
      ...commandsOf(() => import('./threads-branch.ts'), {
        open: "Browse a thread's session tree in the terminal",
      }),
      ...commandsOf(() => import('./attach.ts'), {
        attach: 'Show a running thread as `rye run` does; Ctrl-C detaches',
      }),
      ...commandsOf(() => import('./threads-show.ts'), {
        logs: "Print a thread's log",
        stats: 'Sum up spend, tokens and outcomes',
      }),
    ),
    ...withHeading(
      'Control:',
      ...commandsOf(() => import('./threads-control.ts'), {
        wait: 'Wait until threads have ended',
        steer: 'Send a message to a thread',
        deliveries: 'List messages sent to a thread and their status',
        cancel: 'Ask a thread to stop',
        kill: "Kill a thread's process",
      }),
      ...commandsOf(() => import('./threads-recovery.ts'), {
        resume: 'Resume a finished, suspended or crashed thread',
      }),
    ),
    ...withHeading(
      'Session:',
      ...commandsOf(() => import('./threads-session.ts'), {
        entries: "Draw a thread's session tree",
        label: 'Label an entry of a thread; without LABEL, remove its label',
        rename: 'Set the title of a thread',
        compact: 'Summarize the older part of an idle thread',
        replay: "Replay a thread's recorded answers with the current rules, hooks and gates",
      }),
      ...commandsOf(() => import('./threads-branch.ts'), {
        branch: 'Rewind a thread to an earlier message, or fork it into a new thread',
      }),
      ...commandsOf(() => import('./threads-undo.ts'), {
        undo: 'Restore the files that a thread changed',
      }),
      ...commandsOf(() => import('./threads-exchange.ts'), {
        export: 'Export a thread as a web page, Markdown or JSON lines',
        import: 'Import a pi session as a thread',
      }),
      ...commandsOf(() => import('./threads-pull.ts'), {
        pull: 'Copy a thread from the store of `store.url` into this project',
      }),
    ),
    ...withHeading(
      'Maintain:',
      ...commandsOf(() => import('./threads-recovery.ts'), {
        recover: 'Clean up threads whose process has died',
        gc: 'Compress logs of old threads',
      }),
    ),
  ],
});
