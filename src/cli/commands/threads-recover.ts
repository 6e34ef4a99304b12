import type { RecoveryReport } from '../../app/api/threads.ts';
import { EXIT, type ExitCode, exitCodeOf, RyeError } from '../../core/errors.ts';
import { flagOption, type Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye threads recover [<id>]`. Fails when a thread could not be recovered; how a thread ends is its own matter. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const [part] = invocation.args;
  const rebuild = flagOption(invocation, 'rebuild');
  if (rebuild && part === undefined) {
    throw new RyeError('usage', '--rebuild needs the id of a thread', {
      hint: 'Run: rye threads recover ID --rebuild',
    });
  }
  const signal = io.cancellation();
  const report = await withRye(invocation, io, async ({ threads, recovery }) =>
    recovery.recover({
      signal,
      rebuild,
      ...(part === undefined ? {} : { threadId: rebuild ? part : await threads.resolveId(part) }),
    }),
  );
  const [failure] = report.failures;
  if (invocation.global.json) {
    printDocument(io, {
      success: failure === undefined,
      threads: report.recovered,
      total: report.recovered.length,
      problems: report.failures,
      results: report.resumed,
    });
  } else for (const line of describe(report)) printLine(io, line);
  return failure === undefined ? EXIT.ok : exitCodeOf(failure.error.code);
}

function describe({ recovered, failures, resumed }: RecoveryReport): readonly string[] {
  if (recovered.length === 0 && failures.length === 0) return ['no thread has lost its process'];
  return [
    ...recovered.map(
      ({ thread_id: id, status, action, reason, unverified_bytes: bytes }) =>
        `${id}  ${status}  ${action.replace('_', ' ')}: ${oneLine(reason)}${
          bytes === undefined ? '' : ` (${bytes} unverified bytes of its log set aside)`
        }`,
    ),
    ...resumed.map(({ thread_id: id, status }) => `${id}  ${status}  resumed`),
    ...failures.map(
      ({ thread_id: id, error }) =>
        `${id}  not recovered: ${oneLine(error.message)} [${error.code}]`,
    ),
  ];
}
