import type { CiCase } from './ci-report.ts';
import { type Context, text } from './command.ts';

export const JUNIT = text('FILE', 'Write the outcome to FILE as JUnit XML, also of a failure');

interface Reported<T> {
  /** Name of the suite, such as `rye run`. */
  readonly suite: string;
  /** The value of `--junit`. */
  readonly junit: string | undefined;
  /** Name of the case if the work fails as a whole. */
  readonly name: string;
  readonly casesOf: (value: T) => readonly CiCase[];
}

/** Does the work, and reports it where a job reads the outcome: with `--junit`, and in GitHub Actions. */
export async function reporting<T>(
  context: Context,
  { casesOf, ...request }: Reported<T>,
  work: () => Promise<T>,
): Promise<T> {
  const { GITHUB_ACTIONS: actions, GITHUB_STEP_SUMMARY: summary = '' } = context.io.env;
  if (request.junit === undefined && actions !== 'true' && summary === '') return await work();
  const { withCiReport } = await import('./ci-report.ts');
  return await withCiReport(context, request, async () => {
    const value = await work();
    return { value, cases: casesOf(value) };
  });
}
