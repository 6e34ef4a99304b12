import type { FileUndo, UndoneFile } from '../../../kernel/app/api/trees.ts';
import { compact } from '../../../kernel/core/json.ts';
import { oneLine, type Shown, shown } from '../../ui/visible.ts';
import { defineCommand, flag, text } from '../command.ts';
import { count, printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

export const undo = defineCommand({
  details:
    'Restores the files that the file tools of the thread and of the threads below it changed, to what they were before the thread or when ENTRY was written. A later ENTRY brings changes back. The conversation stays; to rewind both, use `rye threads branch ID --at ENTRY --files`. Refuses if a file changed outside the thread since. Changes by commands stay.',
  arguments: { id: THREAD },
  options: {
    to: text('ENTRY', 'Entry ID or a unique start of it (default: before the thread)'),
    dryRun: flag('List what would be restored and change nothing'),
    force: flag('Restore files that were changed since, and skip those that cannot be restored'),
    own: flag('Leave the changes of the threads below it'),
  },
  examples: ['rye threads undo @ --dry-run', 'rye threads undo 2456 --to 3fa9'],
  run: async (call) => {
    const { args, options } = call;
    const outcome = await withRye(call, async ({ threads, trees }) => {
      const id = await threads.resolveId(args.id);
      return await trees.undoFiles(id, compact(options));
    });
    return printResult(call, outcome, () => undoLines(outcome));
  },
});

/** Formats an undo for people. */
export function undoLines(outcome: FileUndo): readonly Shown[] {
  const { files, folders, dry_run: isDryRun, unrecorded_calls: calls, warnings } = outcome;
  const tools = [...new Set(calls.map(({ tool }) => tool))].join(', ');
  const others =
    calls.length === 0
      ? []
      : [
          shown`${count(calls.length, 'call')} of ${oneLine(tools)} may have changed files too; they stay`,
        ];
  const done = files.filter(({ action }) => action !== 'kept').length;
  const total = isDryRun
    ? shown`${count(files.length, 'file')} differ`
    : shown`restored ${count(done, 'file')}`;
  return [
    ...files.map((file) => fileLine(file)),
    ...folders.map((folder) => shown`removed    ${oneLine(folder)}/`),
    ...warnings.map((warning) => shown`warning: ${oneLine(warning)}`),
    ...others,
    files.length === 0 ? shown`nothing to undo` : total,
  ];
}

function fileLine({ path, action, problem }: UndoneFile): Shown {
  const reason = problem ? `  ${problem.message} [${problem.code}]` : '';
  return oneLine(`${action.padEnd(10)} ${path}${reason}`);
}
