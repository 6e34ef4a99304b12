import type { Rye } from '../../../kernel/app/api/rye.ts';
import type { BranchOptions, FileUndo } from '../../../kernel/app/api/trees.ts';
import { EXIT, RyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import { isActive } from '../../../kernel/core/thread.ts';
import { ERASE_LINE } from '../../ui/terminal-text.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import {
  type Context,
  defineCommand,
  flag,
  optionalText,
  text,
  type ValuesOf,
} from '../command.ts';
import { colorsOf, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';
import { resumeThread } from '../thread-run.ts';
import { undoLines } from './threads-undo.ts';

const BRANCH_OPTIONS = {
  at: text('ENTRY', 'Entry ID or a unique start of it; root: ask the opening message again'),
  summary: optionalText(
    'TEXT',
    'Start the new branch with a summary of the old one; without TEXT the model writes it',
  ),
  instructions: text('TEXT', "What the model's summary should focus on"),
  message: text('TEXT', 'Start the branch with a message', { short: 'm' }),
  label: text('LABEL', 'Label the entry, or the summary if there is one'),
  new: flag('Fork: copy the path into a new thread'),
  threadId: text('ID', 'ID for the new thread (must not exist yet)'),
  run: flag('Resume from there at once, like `rye threads resume`'),
  files: flag('Restore the files of that moment too, like `rye threads undo`'),
  force: flag('With --files: restore files that changed outside the thread since'),
  refresh: flag('With --run: use the directive as it is now'),
} as const;

type BranchRequest = Partial<ValuesOf<typeof BRANCH_OPTIONS>> & { readonly at: string };

/** The document of `rye threads branch`. */
export interface Branched {
  readonly thread_id: string;
  readonly leaf_id: string | null;
  /** The thread that the path was copied from. */
  readonly branched_from?: string;
  /** With --files: what was restored. */
  readonly files?: FileUndo;
}

export const branch = defineCommand({
  details:
    'Moves the head, the entry where the conversation continues, and removes nothing. --new copies the path into a new, suspended thread instead.',
  arguments: { id: THREAD },
  options: BRANCH_OPTIONS,
  examples: [
    'rye threads branch 2456 --at 3fa9 --message "Try it without the cache."',
    'rye threads branch 2456 --at 3fa9 --new --run --message "Again, in French."',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    assertFitting(options);
    const { at, message, run, refresh, files } = options;
    const signal = io.cancellation();
    return await withRye(call, async (rye) => {
      const asked = await rye.threads.resolveId(args.id);
      const id = await threadAt(rye, asked, { at, newest: !options.new });
      // with --run the resume brings the message; at the root it takes the place of the opening one
      const isResumed = run && at !== 'root';
      const request = { ...options, at, message: isResumed ? undefined : message };
      if (files) await assertUndoable(rye, id, request);
      const moved = options.new
        ? await fork(rye, id, request)
        : await rewind(rye, id, request, signal);
      // last, because a branch that is refused must leave the files as they are
      const undone = files ? await rye.trees.undoFiles(id, undoOf(request)) : undefined;
      const branched: Branched = { ...moved, ...(undone ? { files: undone } : {}) };
      const { thread_id: threadId } = branched;
      if (run) {
        const resumed = { threadId, refresh, message: isResumed ? message : undefined };
        return await resumeThread(call, rye, compact(resumed));
      }
      return printResult(call, branched, () => [
        ...(undone ? undoLines(undone) : []),
        branched.branched_from === undefined ? headLine(id, branched) : oneLine(threadId),
      ]);
    });
  },
});

/** Refuses options that do not fit together. */
function assertFitting(
  options: Partial<ValuesOf<typeof BRANCH_OPTIONS>>,
): asserts options is BranchRequest {
  const { at, run, refresh, files, force, summary, instructions, threadId } = options;
  if (at === undefined) {
    throw new RyeError('usage', 'missing option --at ENTRY', {
      hint: 'List the entries with: rye threads entries <id>',
    });
  }
  if (refresh && !run) {
    throw new RyeError('usage', '--refresh needs --run', {
      hint: 'Add --run, or refresh the thread later: rye threads resume <id> --refresh',
    });
  }
  if (force && !files) {
    throw new RyeError('usage', '--force needs --files', {
      hint: 'A branch alone changes no files.',
    });
  }
  if (threadId !== undefined && !options.new) {
    throw new RyeError('usage', '--thread-id needs --new', {
      hint: 'Add --new to copy the path into a new thread.',
    });
  }
  if (summary !== undefined && options.new) {
    throw new RyeError('usage', '--summary cannot be combined with --new: the copy has one branch');
  }
  if (instructions !== undefined && summary !== true) {
    throw new RyeError('usage', '--instructions needs --summary without a text');
  }
}

type UndoOptions = Parameters<Rye['trees']['undoFiles']>[1];

function undoOf({ at, force }: BranchRequest): UndoOptions {
  return { to: at, force: force === true };
}

/** Throws what an undo would throw, before anything has changed. */
async function assertUndoable({ trees }: Rye, id: string, request: BranchRequest): Promise<void> {
  const { files } = await trees.undoFiles(id, { ...undoOf(request), dryRun: true });
  const isRefused = files.some(({ problem }) => problem !== undefined);
  // it restores none of the files if it can't restore all of them
  if (isRefused && request.force !== true) await trees.undoFiles(id, undoOf(request));
}

/** Returns the thread of a session that has an entry; the conversation continues in the last one. */
async function threadAt(
  { threads, trees }: Rye,
  id: string,
  { at, newest }: { readonly at: string; readonly newest: boolean },
): Promise<string> {
  if (at !== 'root') return await trees.locate(id, at, { newest });
  return newest ? ((await threads.session(id)).at(-1) ?? id) : id;
}

function headLine(id: string, { leaf_id: head }: Branched): Shown {
  return oneLine(`the head of ${id} is now ${head ?? 'before the first entry'}`);
}

async function rewind(
  { trees }: Rye,
  id: string,
  request: BranchRequest,
  signal: AbortSignal,
): Promise<Branched> {
  const { at, label, instructions, message } = request;
  const target = at === 'root' ? 'root' : (await trees.entry(id, at)).id;
  const summary = summaryOf(request);
  const isNew = summary !== undefined || target === 'root';
  // before the head moves, because a label is an entry too
  if (label !== undefined && !isNew) await trees.label(id, target, label);
  const written = await trees.branch(
    id,
    compact({ at: target, summary, instructions, message, signal }),
  );
  const first =
    written.find(({ event_type }) => event_type === 'branch_summary') ??
    written.findLast((event) => event.id !== undefined);
  if (label !== undefined && isNew && first?.id !== undefined) {
    await trees.label(id, first.id, label);
  }
  return { thread_id: id, leaf_id: (await trees.view(id)).leaf_id };
}

async function fork({ trees }: Rye, id: string, request: BranchRequest): Promise<Branched> {
  const { at, threadId, label, message } = request;
  const { thread_id } = await trees.extract(id, compact({ at, threadId }));
  const target = at === 'root' ? undefined : (await trees.entry(id, at)).id;
  if (label !== undefined && target !== undefined) await trees.label(thread_id, target, label);
  const { leaf_id: head } = await trees.view(thread_id);
  if (message !== undefined) {
    await trees.branch(thread_id, {
      at: target === undefined ? 'root' : (head ?? target),
      message,
    });
  }
  return { thread_id, leaf_id: (await trees.view(thread_id)).leaf_id, branched_from: id };
}

function summaryOf({ summary }: BranchRequest): BranchOptions['summary'] {
  if (summary === true) return 'model';
  return summary === undefined ? undefined : { text: summary };
}

export const open = defineCommand({
  details:
    'Press ? for the keys: filter, fold, search, label, open child threads, branch, and resume from an entry. In scripts, use `rye threads entries`.',
  arguments: { id: THREAD },
  options: { follow: flag('Show new entries of a running thread') },
  examples: ['rye threads open 2456'],
  run: async (call) => {
    const { args, options, io } = call;
    assertTerminal(call);
    const signal = io.cancellation();
    return await withRye(call, async (rye) => {
      const opened = await rye.threads.resolveId(args.id);
      const { browse, readTree } = await import('../../ui/browser/browse.ts');
      io.stderr.write(shown`reading ${oneLine(opened)}…`);
      const tree = await readTree(rye, opened);
      io.stderr.writeRaw(ERASE_LINE);
      const colors = colorsOf(io.stdout, call);
      const { follow } = options;
      const notice = follow ? '' : await runningNotice(rye, tree.threadId);
      const { effect, threadId } = await browse(rye, tree, { colors, follow, notice, signal });
      if (effect.kind === 'resume') {
        const { entry: from, message } = effect;
        const request = compact({ threadId, from, message: message || undefined });
        return await resumeThread(call, rye, request);
      }
      if (effect.kind === 'branch') {
        io.stderr.write(shown`the model summarizes the branch that you leave…\n`);
        const branched = await rewind(rye, threadId, { at: effect.entry, summary: true }, signal);
        return printResult(call, branched, () => [headLine(threadId, branched)]);
      }
      return signal.aborted ? EXIT.cancelled : EXIT.ok;
    });
  },
});

/** Tells how to follow a thread that runs. */
async function runningNotice({ threads }: Rye, id: string): Promise<string> {
  const { thread, explanation } = await threads.show(id);
  if (!isActive(thread.status)) return '';
  return explanation ?? 'this thread is running: press f to follow it';
}

function assertTerminal({ io, global }: Context): void {
  const isCapable = io.stdinIsTty && io.stdout.isTty && io.env['TERM'] !== 'dumb';
  if (isCapable && !global.json) return;
  throw new RyeError('terminal_required', '`rye threads open` needs a terminal', {
    hint: 'In scripts, use: rye threads entries <id> --json',
  });
}
