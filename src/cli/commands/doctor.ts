import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { colorsOf, count, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye doctor`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const checks = await withRye(invocation, io, (rye) => rye.doctor());
  const failed = checks.filter(({ status }) => status === 'fail').length;
  if (invocation.global.json) {
    const error = { code: 'state_unwritable', message: `${count(failed, 'check')} failed` };
    printDocument(io, {
      success: failed === 0,
      ...(failed === 0 ? {} : { error }),
      checks,
      total: checks.length,
    });
  } else {
    const { green, yellow, red } = colorsOf(io.stdout, io, invocation.global);
    const paint = { ok: green, warn: yellow, fail: red };
    for (const { check, status, detail, hint } of checks) {
      printLine(io, `${paint[status](status.padEnd(4))} ${check}: ${detail}`);
      if (hint !== undefined) printLine(io, `     hint: ${hint}`);
    }
  }
  return failed === 0 ? EXIT.ok : EXIT.failed;
}
