import { resolve } from 'node:path';
import { argument, defineCommand, defineGroup, flag, text } from '../../../faces/cli/command.ts';
import { displayPath, printResult } from '../../../faces/cli/output.ts';
import { oneLine, type Shown, shown } from '../../../faces/ui/visible.ts';
import { RyeError } from '../../../kernel/core/errors.ts';
import type { ReviewedItem, RyeOsReview } from '../review.ts';

const ryeOs = defineCommand({
  name: 'rye-os',
  summary: 'Review a Rye OS project: what runs, what needs a change, and a patch',
  details:
    'Reads every .ai folder below DIR. rye signs and plans a private copy; it runs no tool, model or server. Without --apply it changes nothing.',
  arguments: { dir: argument('A Rye OS project or checkout') },
  options: {
    apply: flag('Write the items into this project, sign them and dry-run every directive'),
    yes: flag('With --apply: sign and allow elevated tools without a question', { short: 'y' }),
    patch: text('FILE', 'Write the mechanical changes to FILE, a new file for `git apply` in DIR'),
  },
  examples: [
    'rye import rye-os ../project --apply',
    'rye import rye-os ../project --patch project.patch',
  ],
  run: async (call) => {
    const { args, options, io } = call;
    const dir = resolve(io.cwd, args.dir);
    if (options.yes && !options.apply) {
      throw new RyeError('usage', '--yes has no effect without --apply', {
        hint: `Run: rye import rye-os ${args.dir} --apply --yes`,
      });
    }
    const { examineRyeOs } = await import('../review.ts');
    const examined = await examineRyeOs(dir, io);
    const { review } = examined;
    const patchFile = options.patch === undefined ? undefined : resolve(io.cwd, options.patch);
    if (patchFile !== undefined) await writePatch(patchFile, review.patch);
    if (options.apply) {
      const { applyImport } = await import('./rye-os-import.ts');
      return await applyImport(call, dir, examined);
    }
    return printResult(call, { ...review, total: review.items.length }, () => [
      ...reviewLines(review),
      ...(patchFile === undefined
        ? review.patch === ''
          ? []
          : [shown``, shown`To write the mechanical changes as a patch: --patch FILE`]
        : [
            shown``,
            shown`To apply the patch: cd ${displayPath(dir, io)} && git apply ${displayPath(patchFile, io)}`,
          ]),
      shown`To write, sign and dry-run all of it in the project here: rye import rye-os ${oneLine(args.dir)} --apply`,
    ]);
  },
});

const TITLES: readonly (readonly [verdict: ReviewedItem['verdict'], title: string])[] = [
  ['runs', 'Run unchanged, once you have signed them'],
  ['acknowledge', 'Run with an acknowledgement'],
  ['change', 'Need a change'],
  ['refused', 'Cannot run'],
];

const ACKNOWLEDGE = [
  shown`Acknowledge the risk in the directive, with --acknowledge, or for the project: put risk_levels: {elevated: allow}`,
  shown`in .ai/config/agent/capability_risk.yaml, then run rye sign config agent/capability_risk.`,
  shown``,
];

function reviewLines({ items, summary }: RyeOsReview): readonly Shown[] {
  return [
    ...TITLES.flatMap(([verdict, title]) => {
      const rows = items.filter((item) => item.verdict === verdict);
      return rows.length === 0
        ? []
        : [oneLine(`${title} (${rows.length}):`), ...rows.flatMap(itemLines), shown``];
    }),
    ...(items.some(({ verdict }) => verdict === 'acknowledge') ? ACKNOWLEDGE : []),
    ...Object.entries(summary).map(([type, counts]) => {
      const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
      const shares = TITLES.filter(([verdict]) => counts[verdict] > 0).map(
        ([verdict]) =>
          `${verdict} ${counts[verdict]} (${Math.round((100 * counts[verdict]) / total)} %)`,
      );
      return oneLine(`${type}: ${total}: ${shares.join(', ')}`);
    }),
  ];
}

function itemLines(item: ReviewedItem): readonly Shown[] {
  const { type, id, path, needs, patched, reason, hint, code } = item;
  const risks = needs.length === 0 ? '' : `  [${needs.join(', ')}]`;
  const first = oneLine(`  ${type} ${id}${risks}`);
  if (reason === '') return [first];
  const hintLines = (hint ?? '').split('\n').filter((line) => line !== '');
  return [
    first,
    oneLine(`    ${path}: ${code}: ${reason}`),
    ...(patched
      ? [shown`    The patch makes the change.`]
      : hintLines.map((line) => oneLine(`    ${/^ */.exec(line)?.[0] ?? ''}${line}`))),
  ];
}

/** Never overwrites a file: it may be a patch that a person has edited. */
async function writePatch(file: string, patch: string): Promise<void> {
  const { createWhole } = await import('../../../kernel/disk/whole-file.ts');
  if (createWhole(file, patch)) return;
  throw new RyeError('already_exists', `${file} already exists`, {
    hint: 'Remove it, or choose another name for --patch.',
    location: { path: file },
  });
}

const importGroup = defineGroup({
  examples: ['rye import rye-os ../project'],
  commands: [ryeOs],
});

export { importGroup as import };
