import { resolve } from 'node:path';
import type { ReviewedItem, RyeOsReview } from '../../app/rye-os/review.ts';
import { EXIT, type ExitCode, RyeError } from '../../core/errors.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { displayPath, printDocument, printLine } from '../output.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye import rye-os DIR`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const dir = resolve(io.cwd, requiredArgument(invocation, 0, 'dir'));
  const target = textOption(invocation, 'patch');
  const { reviewRyeOs } = await import('../../app/rye-os/review.ts');
  const review = await reviewRyeOs(dir, io.env);
  const patchFile = target === undefined ? undefined : resolve(io.cwd, target);
  if (patchFile !== undefined) await writePatch(patchFile, review.patch);
  if (invocation.global.json) {
    printDocument(io, { success: true, ...review, total: review.items.length });
    return EXIT.ok;
  }
  printReview(review, io);
  if (patchFile !== undefined) {
    printLine(io, '');
    printLine(
      io,
      `To apply the patch: cd ${displayPath(dir, io)} && git apply ${displayPath(patchFile, io)}`,
    );
  } else if (review.patch !== '') {
    printLine(io, '');
    printLine(io, 'To write the mechanical changes as a patch: --patch FILE');
  }
  printLine(io, "Then review the items and sign them: rye sign directive '**'");
  return EXIT.ok;
}

const TITLES: readonly (readonly [verdict: ReviewedItem['verdict'], title: string])[] = [
  ['runs', 'Run as they are, once you have signed them'],
  ['acknowledge', 'Run with an acknowledgement'],
  ['change', 'Need a change'],
  ['refused', 'Cannot run'],
];

function printReview({ items, summary }: RyeOsReview, io: Io): void {
  for (const [verdict, title] of TITLES) {
    const rows = items.filter((item) => item.verdict === verdict);
    if (rows.length === 0) continue;
    printLine(io, `${title} (${rows.length}):`);
    for (const row of rows) printItem(row, io);
    printLine(io, '');
  }
  if (items.some(({ verdict }) => verdict === 'acknowledge')) {
    printLine(
      io,
      'Acknowledge in the directive, with --acknowledge, or for the project: risk_levels: {elevated: allow}',
    );
    printLine(
      io,
      'in .ai/config/agent/capability_risk.yaml, then rye sign config agent/capability_risk.',
    );
    printLine(io, '');
  }
  for (const [type, counts] of Object.entries(summary)) {
    const total = Object.values(counts).reduce((sum, one) => sum + one, 0);
    const parts = TITLES.filter(([verdict]) => counts[verdict] > 0).map(
      ([verdict]) =>
        `${verdict} ${counts[verdict]} (${Math.round((100 * counts[verdict]) / total)} %)`,
    );
    printLine(io, `${type}: ${total}: ${parts.join(', ')}`);
  }
}

function printItem(
  { type, id, path, needs, patched, reason, hint, code }: ReviewedItem,
  io: Io,
): void {
  const asks = needs.length === 0 ? '' : `  [${needs.join(', ')}]`;
  printLine(io, `  ${type} ${id}${asks}`);
  if (reason === '') return;
  printLine(io, `    ${path}: ${code}: ${oneLine(reason)}`);
  if (patched) printLine(io, '    The patch makes the change.');
  else {
    for (const line of (hint ?? '').split('\n').filter((text) => text !== '')) {
      const indent = /^ */.exec(line)?.[0] ?? '';
      printLine(io, `    ${indent}${oneLine(line)}`);
    }
  }
}

/** A patch is never written over another file: it may be the one that a person has edited. */
async function writePatch(file: string, patch: string): Promise<void> {
  const { createWhole } = await import('../../disk/whole-file.ts');
  if (createWhole(file, patch)) return;
  throw new RyeError('already_exists', `${file} exists already`, {
    hint: 'Remove it, or give --patch another name.',
    location: { path: file },
  });
}
