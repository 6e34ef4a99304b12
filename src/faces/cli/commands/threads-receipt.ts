import { receiptOf, receiptText } from '../../../kernel/app/receipt.ts';
import { linesOf, visible } from '../../ui/visible.ts';
import { defineCommand } from '../command.ts';
import { printResult } from '../output.ts';
import { withRye } from '../session.ts';
import { THREAD } from '../shared-options.ts';

export const receipt = defineCommand({
  details:
    'Outputs, cost of the thread and the threads below it, changed files, approvals, and whether the record verifies: as Markdown, or as JSON with --json.',
  arguments: { id: THREAD },
  examples: ['rye threads receipt @ > receipt.md', 'rye threads receipt 7f3k --json'],
  run: async (call) => {
    const found = await withRye(call, async (rye) => await receiptOf(rye, call.args.id));
    return printResult(call, { ...found }, () => linesOf(visible(receiptText(found).trimEnd())));
  },
});
