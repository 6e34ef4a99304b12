import type { StatsKey } from '../../app/api/threads.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { formatSeconds, formatTokens, formatUsd } from '../../core/usage.ts';
import { type Invocation, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

const KEYS = ['directive', 'model', 'day'] as const satisfies readonly StatsKey[];

/** `rye threads stats`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const by = KEYS.find((key) => key === textOption(invocation, 'by')) ?? 'directive';
  const stats = await withRye(invocation, io, (rye) => rye.children.stats(by));
  if (invocation.global.json) {
    printDocument(io, { success: true, by, stats, total: stats.length });
    return EXIT.ok;
  }
  // what a narrow terminal cuts off is what matters least
  const headings = [
    by.toUpperCase(),
    'SPEND',
    'TOKENS',
    'TIME',
    'TURNS',
    'THREADS',
    'OPEN',
    'COMPLETED',
    'ERROR',
    'CANCELLED',
  ];
  const rows = stats.map((row) => [
    row.key,
    formatUsd(row.spend),
    formatTokens(row.tokens),
    formatSeconds(row.elapsed_seconds),
    String(row.turns),
    String(row.threads),
    String(row.open),
    String(row.completed + row.continued),
    String(row.error),
    String(row.cancelled),
  ]);
  io.stdout.write(formatTable(headings, rows, io.stdout));
  return EXIT.ok;
}
