import type { ListedThread, ThreadListFilter } from '../../../kernel/app/api/threads.ts';
import type { ThreadList } from '../../../kernel/app/thread-list.ts';
import { EXIT } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { THREAD_STATUSES } from '../../../kernel/core/thread.ts';
import {
  grouped,
  type OtherThreads,
  pageSize,
  plainTable,
  threadTable,
} from '../../ui/render/thread-list.ts';
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
    limit: integer('N', 'At most N threads (default: a screen, in a pipe 30, with --json all)'),
  },
  examples: ['rye threads --active', "rye threads list --status error --directive 'team/*'"],
  run: async (call) => {
    const { options, io, global } = call;
    const { active, parent, all: hasAll, limit, ...rest } = options;
    const isTable = io.stdout.isTty && !global.json;
    // a document describes each thread; a list for people, each session
    const sessions = (!global.json && rest.status !== 'continued') || undefined;
    // who asks for a status, a directive or a parent means children too
    const isFiltered = active || Object.values(compact({ ...rest, parent })).length > 0;
    const isWhole = global.json || hasAll;
    const roots = !isWhole && !isFiltered;
    const page = limit ?? (isWhole ? undefined : pageSize(io.stdout));
    const { listed, others, unlisted } = await withThreadList(call, async (view) => {
      const all: ThreadListFilter = compact({
        ...rest,
        sessions,
        active: active || undefined,
        parent: parent === undefined ? undefined : await view.threads.resolveId(parent),
      });
      const filter = roots ? { ...all, roots } : all;
      const newest = await view.threads.list(compact({ ...filter, limit: page }));
      const isPart = newest.length === page;
      const rows = isPart ? await view.threads.count(filter) : newest.length;
      return {
        listed: newest,
        others: { rows, ...(isTable ? await othersOf(view, newest, all) : NO_OTHERS) },
        unlisted: await view.threads.unlisted(),
      };
    });
    if (unlisted.length > 0) io.stderr.write(unlistedWarning(unlisted));
    const more = limit === undefined ? others.rows - listed.length : 0;
    const hint = more === 0 ? undefined : moreHint(more, { isFiltered, total: others.rows });
    const found = {
      threads: listed,
      total: others.rows,
      ...(unlisted.length > 0 ? { unlisted } : {}),
    };
    printResult(call, found, () => {
      if (!isTable) return plainTable(listed, io.stdout);
      const colors = colorsOf(io.stdout, call);
      return threadTable(listed, others, { sink: io.stdout, colors, now: io.now(), hint });
    });
    if (hint !== undefined && !isTable) io.stderr.write(shown`hint: ${hint}\n`);
    hintCrashed(listed, call);
    return EXIT.ok;
  },
});

const NO_OTHERS = { threads: 0, running: 0, below: [] };

/** Reads what a table for a terminal tells of threads that it does not show. */
async function othersOf(
  { threads }: ThreadList,
  listed: readonly ListedThread[],
  filter: ThreadListFilter,
): Promise<Omit<OtherThreads, 'rows'>> {
  const { status = 'running' } = filter;
  return {
    threads: await threads.count(filter),
    running: status === 'running' ? await threads.count({ ...filter, status }) : 0,
    below: await threads.descendants(listed.flatMap(({ thread_id: id, chain = [id] }) => chain)),
  };
}

const NEXT_LIMIT = 100;

/** Formats `10,001 more: rye threads list --limit 100`. */
function moreHint(
  more: number,
  { isFiltered, total }: { readonly isFiltered: boolean; readonly total: number },
): Shown {
  const command = isFiltered ? 'add' : 'rye threads list';
  return oneLine(`${grouped(more)} more: ${command} --limit ${Math.min(total, NEXT_LIMIT)}`);
}

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
      ...commandsOf(() => import('./threads-receipt.ts'), {
        receipt: 'Write a receipt: outputs, cost, files, approvals and the verification',
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
