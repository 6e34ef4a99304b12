import type { ReplayReport, TreeFilter, TreeView } from '../../../kernel/app/api/trees.ts';
import { EXIT, type ExitCode, RyeError } from '../../../kernel/core/errors.ts';
import { compact, type JsonValue } from '../../../kernel/core/json.ts';
import { timeOf } from '../../../kernel/core/original.ts';
import { headChars } from '../../../kernel/core/text.ts';
import { markMembers, warnUnverified } from '../../ui/render/log-line.ts';
import { drawSessionTree } from '../../ui/render/session-tree.ts';
import { oneLine, type Shown, shown, trimmed, visible } from '../../ui/visible.ts';
import {
  argument,
  type Context,
  choice,
  defineCommand,
  flag,
  integer,
  optionalArgument,
  text,
} from '../command.ts';
import { sessionEnd } from '../last-thread.ts';
import { colorsOf, printDocument, printLine, printLines, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

const FILTERS = [
  'default',
  'no-tools',
  'user-only',
  'labeled-only',
  'all',
] as const satisfies readonly TreeFilter[];

export const entries = defineCommand({
  details:
    'Each line is one entry: the start of its ID, its time (UTC), its kind and its text. ● marks the path to the head, ○ other branches, ◆ the head, ◇ the nearest entry above a head that the filter hides.',
  arguments: { id: THREAD },
  options: {
    filter: choice(
      'FILTER',
      FILTERS,
      'Entries to show (default: all but settings and hidden ones)',
    ),
    search: text(
      'WORDS',
      'Only entries with all of these words in their text, arguments or results',
    ),
    entry: text('ENTRY', 'Show one entry in full, by its ID or a unique start of it'),
  },
  examples: [
    'rye threads entries 2456',
    'rye threads entries 2456 --filter user-only --search invoice',
  ],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { filter, search, entry } = options;
    if (entry !== undefined) {
      const other = search === undefined ? filter && '--filter' : '--search';
      if (other === undefined) return await showEntry(call, args.id, entry);
      throw new RyeError('usage', `--entry cannot be combined with ${other}`);
    }
    const { view, mark } = await withRye(call, async ({ threads, trees }) => {
      const id = await threads.resolveId(args.id);
      // a document describes one thread
      const session = !global.json;
      const found = await trees.view(id, compact({ filter, search, session }));
      return { view: found, mark: await threads.mark(id) };
    });
    warnUnverified(mark, io);
    printResult(call, { ...documentOf(view), ...markMembers(mark) }, () =>
      drawSessionTree(view, io.stdout, colorsOf(io.stdout, call)),
    );
    if (global.json) return EXIT.ok;
    for (const { offset, message } of view.problems) {
      io.stderr.write(shown`rye: warning: byte ${offset}: ${oneLine(message)}\n`);
    }
    if (!global.quiet) io.stderr.write(shown`${oneLine(countLine(view))}\n`);
    return EXIT.ok;
  },
});

/** States how many entries are shown, and where the head is if the filter hides it. */
function countLine({ rows, total, leaf_id: head }: TreeView): string {
  const count = `${rows.filter(({ divider }) => !divider).length} of ${total} entries`;
  if (head === null || rows.some(({ leaf }) => leaf)) return count;
  const above = rows.some(({ aboveLeaf }) => aboveLeaf) ? ', which is below ◇' : '';
  return `${count}; the filter hides the head${above}`;
}

/** Prints one entry in full, as it is in the log. */
async function showEntry(context: Context, idPart: string, entryId: string): Promise<ExitCode> {
  const { mark, ...found } = await withRye(context, async ({ threads, trees }) => {
    const thread_id = await trees.locate(await threads.resolveId(idPart), entryId);
    const entry = await trees.entry(thread_id, entryId);
    return { thread_id, entry, mark: await threads.mark(thread_id) };
  });
  warnUnverified(mark, context.io);
  return printResult(context, { ...found, ...markMembers(mark) }, () => [
    visible(JSON.stringify(found.entry, null, 2)),
  ]);
}

/** Returns the document of `rye threads entries`; its published schema is made from the inferred type. */
export function documentOf({ thread_id, title, leaf_id, rows, total, problems, chain }: TreeView) {
  const members = rows.map((row) => ({
    id: row.entry.id,
    parent_id: row.entry.parent_id,
    /** The nearest ancestor that the filter shows. */
    shown_parent_id: row.parentId,
    seq: row.entry.seq,
    timestamp: timeOf(row.entry),
    event_type: row.entry.event_type,
    /** The role of a message, else the event type. */
    kind: row.kind,
    /** Grows where branches part. */
    depth: row.depth,
    /** On the path to the leaf. */
    active: row.active,
    leaf: row.leaf,
    label: row.label ?? null,
    /** One line, at most 200 characters. */
    text: row.text,
    payload: row.entry.payload,
  }));
  return { thread_id, title, leaf_id, entries: members, total, problems, chain };
}

export const label = defineCommand({
  arguments: {
    id: THREAD,
    entry: argument('Entry ID or a unique start of it'),
    label: optionalArgument('The label'),
  },
  examples: ['rye threads label 2456 3fa9 "before the rewrite"'],
  run: async (call) => {
    const { id, entry, label: name = null } = call.args;
    const outcome = await withRye(call, async ({ threads, trees }) => {
      const thread_id = await trees.locate(await threads.resolveId(id), entry);
      const [written] = await trees.label(thread_id, entry, name);
      // the event has the complete id
      const isWritten = written?.event_type === 'label';
      const entry_id = isWritten ? written.payload.target_id : entry;
      return { thread_id, entry_id, label: isWritten ? written.payload.label : name };
    });
    const { label: kept } = outcome;
    return printResult(call, outcome, () => [
      kept === null
        ? oneLine(`${outcome.entry_id}: label removed`)
        : oneLine(`${outcome.entry_id}: labeled ${kept}`),
    ]);
  },
});

export const rename = defineCommand({
  details:
    'Exports and `rye threads open` show the title. The ID stays. An empty title removes the earlier one.',
  arguments: { id: THREAD, title: argument('The title') },
  examples: ['rye threads rename 2456 "Coupons at checkout"'],
  run: async (call) => {
    const { id, title: given } = call.args;
    const { thread_id, title } = await withRye(call, async ({ threads, trees }) => {
      const last = await sessionEnd({ threads }, id);
      const [written] = await trees.title(last, given);
      const stored = written?.event_type === 'title' ? written.payload.title : given;
      return { thread_id: last, title: stored === '' ? null : stored };
    });
    return printResult(call, { thread_id, title }, () => [
      oneLine(title === null ? `${thread_id}: title removed` : `${thread_id}: ${title}`),
    ]);
  },
});

const compactThread = defineCommand({
  details:
    "The thread's model writes the summary within the rest of the limits. The recent conversation stays in full, and all entries stay in the log.",
  arguments: { id: THREAD },
  options: { instructions: text('TEXT', 'What the summary should focus on') },
  examples: ['rye threads compact 2456 --instructions "Keep every invoice number."'],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { instructions } = options;
    const signal = io.cancellation();
    const { thread_id, outcome } = await withRye(call, async ({ threads, trees }) => {
      const id = await threads.resolveId(args.id);
      return { thread_id: id, outcome: await trees.compact(id, compact({ instructions, signal })) };
    });
    if (global.json) printDocument(io, { success: true, thread_id, ...outcome });
    else if (outcome.compacted) {
      printLine(io, trimmed(visible(outcome.summary)));
      io.stderr.write(
        shown`compacted: entry ${oneLine(outcome.entry_id)} replaces ${outcome.tokens_before} tokens\n`,
      );
    } else printLine(io, shown`not compacted: ${oneLine(outcome.reason)}`);
    return EXIT.ok;
  },
});

export const replay = defineCommand({
  details:
    'Calls no model, runs no tool and writes nothing: tools return their recorded results. Shows the first difference from the recording.',
  arguments: { id: THREAD },
  options: {
    from: text('ENTRY', 'Replay from after this entry'),
    run: integer('N', 'Replay only this run (default: one after the other)'),
    verify: flag('Exit with status 1 if the replay differs'),
  },
  examples: ['rye threads replay 2456 --verify'],
  run: async (call) => {
    const { args, options, io, global } = call;
    const { from, run } = options;
    const signal = io.cancellation();
    const report = await withRye(call, async ({ threads, trees }) => {
      const id = await threads.resolveId(args.id);
      const reports: ReplayReport[] = [];
      // an entry and the number of a run belong to one thread
      const at = from === undefined ? undefined : await trees.locate(id, from);
      const session = run === undefined && at === undefined ? await threads.session(id) : [];
      const only = at ?? (await threads.session(id)).at(-1) ?? id;
      for (const thread of session.length === 0 ? [only] : session) {
        const one = await trees.replay(thread, compact({ from, run, signal }));
        reports.push(one);
        if (one.difference !== null) break;
      }
      return reports.reduce(joined);
    });
    const same = report.difference === null;
    const success = same || !options.verify;
    const message = `the replay of ${report.thread_id} differs from its recording`;
    const error = success ? undefined : { code: 'replay_differs', message };
    if (global.json) printDocument(io, compact({ success, error, same, ...report }));
    else printLines(io, replayLines(report));
    return success ? EXIT.ok : EXIT.failed;
  },
});

/** Joins the report of a thread of a session with the reports of the threads before it. */
function joined(before: ReplayReport, last: ReplayReport): ReplayReport {
  return {
    ...last,
    runs: [...before.runs, ...last.runs],
    answers: before.answers + last.answers,
    steps: before.steps + last.steps,
    matched: before.matched + last.matched,
    not_run: [...new Set([...before.not_run, ...last.not_run])],
  };
}

function replayLines(report: ReplayReport): readonly Shown[] {
  const { runs, matched, steps, answers, difference, not_run: notRun } = report;
  const which = runs.length > 1 ? `runs ${runs.join(', ')}: ` : '';
  const lines = [
    shown`${oneLine(which)}${matched} of ${steps} steps match, ${answers} recorded answers`,
  ];
  if (notRun.length > 0)
    lines.push(oneLine(`not run because hooks request it: ${notRun.join(', ')}`));
  if (difference === null) return [...lines, shown`no difference`];
  const { entry_id: id } = difference;
  const at = id === null ? 'after the end of the recording' : `entry ${id}`;
  return [
    ...lines,
    oneLine(
      `first difference at step ${difference.step}${runs.length > 1 ? ` of run ${runs.at(-1)}` : ''}, ${at}: ${difference.path}`,
    ),
    shown`  recorded: ${shortened(difference.recorded)}`,
    shown`  replayed: ${shortened(difference.replayed)}`,
  ];
}

const MAX_VALUE = 400;

function shortened(value: JsonValue): Shown {
  const json = value === null ? 'nothing' : JSON.stringify(value);
  return visible(json.length <= MAX_VALUE ? json : `${headChars(json, MAX_VALUE)}…`);
}

export { compactThread as compact };
