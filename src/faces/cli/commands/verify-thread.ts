import type { ThreadVerification } from '../../../kernel/app/api/threads.ts';
import { type ErrorInfo, EXIT, type ExitCode, exitCodeOf } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import type { Io } from '../../ui/io.ts';
import { oneLine, shown, visible } from '../../ui/visible.ts';
import { reporting } from '../ci.ts';
import type { CiCase } from '../ci-report.ts';
import type { Context } from '../command.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** Verifies every thread of a session, by the ID of any. */
export async function verifyThread(
  context: Context,
  idPart: string,
  { acceptHead, junit }: { readonly acceptHead: boolean; readonly junit: string | undefined },
): Promise<ExitCode> {
  const { io, global } = context;
  const suite = { suite: 'rye verify', junit, name: `thread ${idPart}` };
  const verification = await reporting(context, { ...suite, casesOf: casesOfThread }, () =>
    withRye(context, async ({ threads }) => {
      const id = await threads.resolveId(idPart);
      const found: ThreadVerification[] = [];
      for (const one of await threads.session(id)) {
        found.push(acceptHead ? await threads.acceptHead(one) : await threads.verify(one));
      }
      return found.length === 1 && found[0] ? found[0] : sessionVerification(id, found);
    }),
  );
  const error = verification.checks.find(({ ok }) => !ok)?.error;
  if (global.json) {
    printDocument(io, compact({ success: verification.ok, error, ...verification }));
  } else printThread(verification, io);
  return verificationExit(verification.ok, error);
}

/** Joins the checks of the threads of a session, each with the ID of its thread. */
function sessionVerification(
  thread_id: string,
  found: readonly ThreadVerification[],
): ThreadVerification {
  return {
    thread_id,
    ok: found.every(({ ok }) => ok),
    ...(found.some(({ imported }) => imported) ? { imported: true } : {}),
    checks: found.flatMap((one) =>
      one.checks.map((check) => ({ ...check, thread_id: one.thread_id })),
    ),
    warnings: found.flatMap(({ warnings }) => warnings),
  };
}

function casesOfThread({ thread_id: id, checks }: ThreadVerification): readonly CiCase[] {
  return checks.map(({ name, ok, error, thread_id: own = id }) => ({
    name: `thread ${own}: ${name}`,
    ...(ok ? {} : { failure: error ?? { code: 'thread_tampered', message: `${name} differs` } }),
  }));
}

function printThread({ checks, warnings }: ThreadVerification, io: Io): void {
  for (const { name, ok, error, offset, detail, thread_id: own } of checks) {
    const where = offset === undefined ? '' : ` at byte ${offset}`;
    const more = detail === undefined ? '' : ` (${detail})`;
    const part = own === undefined ? name : `${own}: ${name}`;
    printLine(io, oneLine(`${ok ? 'ok  ' : 'FAIL'} ${part}${where}${reason(error)}${more}`));
    printHint(error, io);
  }
  for (const warning of warnings) io.stderr.write(shown`rye: warning: ${oneLine(warning)}\n`);
}

/** Returns why a check failed, for the end of a line. */
export function reason(error: ErrorInfo | undefined): string {
  return error === undefined ? '' : `: ${error.message} [${error.code}]`;
}

export function printHint(error: ErrorInfo | undefined, io: Io): void {
  if (error?.hint !== undefined) io.stderr.write(shown`hint: ${visible(error.hint)}\n`);
}

export function verificationExit(success: boolean, error: ErrorInfo | undefined): ExitCode {
  if (success) return EXIT.ok;
  return error === undefined ? EXIT.integrity : exitCodeOf(error.code);
}
