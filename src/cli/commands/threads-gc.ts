import type { RetentionReport } from '../../app/api/threads.ts';
import { EXIT, type ExitCode, exitCodeOf, RyeError } from '../../core/errors.ts';
import { flagOption, type Invocation, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

const UNITS_MS: Readonly<Record<string, number>> = {
  s: 1000,
  m: 60_000,
  h: 3_600_000,
  d: 86_400_000,
  w: 7 * 86_400_000,
};
const DEFAULT_AGE = '30d';

/** `rye threads gc`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const olderThanMs = ageOf(textOption(invocation, 'older-than') ?? DEFAULT_AGE);
  const dryRun = flagOption(invocation, 'dry-run');
  const report = await withRye(invocation, io, ({ recovery }) =>
    recovery.collect({ olderThanMs, dryRun }),
  );
  const [failure] = report.failures;
  if (invocation.global.json) {
    printDocument(io, {
      success: failure === undefined,
      dry_run: dryRun,
      threads: report.archived,
      total: report.archived.length,
      problems: report.failures,
    });
  } else for (const line of describe(report, dryRun)) printLine(io, line);
  return failure === undefined ? EXIT.ok : exitCodeOf(failure.error.code);
}

function ageOf(text: string): number {
  const [, digits, unit = ''] = /^(\d{1,6})([smhdw])$/.exec(text) ?? [];
  const factor = UNITS_MS[unit];
  if (digits !== undefined && factor !== undefined) return Number(digits) * factor;
  throw new RyeError('invalid_input', `--older-than: ${JSON.stringify(text)} is no age`, {
    hint: 'A whole number and s, m, h, d or w, such as 30d.',
  });
}

function sum(values: readonly (number | null)[]): number {
  return values.reduce<number>((total, value) => total + (value ?? 0), 0);
}

function describe({ archived, failures }: RetentionReport, dryRun: boolean): readonly string[] {
  const before = sum(archived.map(({ bytes_before: bytes }) => bytes));
  const after = sum(archived.map(({ bytes_after: bytes }) => bytes));
  const size = dryRun ? `${before} bytes` : `${before} bytes to ${after}`;
  return [
    ...archived.map(({ thread_id: id, completed_at: end }) => `${id}  ended ${end}`),
    `${count(archived.length, 'thread')} ${dryRun ? 'would be ' : ''}archived, ${size}`,
    ...failures.map(
      ({ thread_id: id, error }) => `${id}  left alone: ${oneLine(error.message)} [${error.code}]`,
    ),
  ];
}
