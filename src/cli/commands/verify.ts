import type { VerifyOutcome } from '../../app/api/items.ts';
import type { ThreadVerification } from '../../app/api/threads.ts';
import { type ErrorInfo, EXIT, type ExitCode, exitCodeOf } from '../../core/errors.ts';
import type { SignableType } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import { flagOption, type Invocation, requiredArgument } from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseVerifiableType } from '../item-arguments.ts';
import { displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye verify <type> <id|glob>` and `rye verify thread <thread_id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const type = parseVerifiableType(requiredArgument(invocation, 0, 'type'));
  const pattern = requiredArgument(invocation, 1, 'id|glob');
  return type === 'thread'
    ? verifyThread(invocation, io, pattern)
    : verifyItems(invocation, io, { type, pattern });
}

interface Selector {
  readonly type: SignableType;
  readonly pattern: string;
}

async function verifyItems(
  invocation: Invocation,
  io: Io,
  { type, pattern }: Selector,
): Promise<ExitCode> {
  const items = await withRye(invocation, io, (rye) => rye.items.verify(type, pattern));
  const error = items.find(({ ok }) => !ok)?.error;
  const success = items.every(({ ok }) => ok);
  if (invocation.global.json) {
    printDocument(io, compact({ success, error, items, total: items.length }));
  } else {
    for (const item of items) {
      printLine(
        io,
        `${item.ok ? 'ok  ' : 'FAIL'} ${displayPath(item.path, io)}${reason(item.error)}`,
      );
      printHint(item.error, io);
      printUpgrade(item, io);
    }
  }
  return exitFor(success, error);
}

async function verifyThread(invocation: Invocation, io: Io, part: string): Promise<ExitCode> {
  const verification = await withRye(invocation, io, async ({ threads }) =>
    flagOption(invocation, 'accept-head')
      ? threads.acceptHead(await threads.resolveId(part))
      : threads.verify(await threads.resolveId(part)),
  );
  const error = verification.checks.find(({ ok }) => !ok)?.error;
  if (invocation.global.json) {
    printDocument(io, compact({ success: verification.ok, error, ...verification }));
  } else {
    printThread(verification, io);
  }
  return exitFor(verification.ok, error);
}

function printThread({ checks, warnings }: ThreadVerification, io: Io): void {
  for (const { name, ok, error, offset, detail } of checks) {
    const where = offset === undefined ? '' : ` at byte ${offset}`;
    const more = detail === undefined ? '' : ` (${detail})`;
    printLine(io, `${ok ? 'ok  ' : 'FAIL'} ${name}${where}${reason(error)}${more}`);
    printHint(error, io);
  }
  for (const warning of warnings) io.stderr.write(`rye: warning: ${oneLine(warning)}\n`);
}

function reason(error: ErrorInfo | undefined): string {
  return error === undefined ? '' : `: ${error.message} [${error.code}]`;
}

function printHint(error: ErrorInfo | undefined, io: Io): void {
  if (error?.hint !== undefined) io.stderr.write(`hint: ${error.hint}\n`);
}

function printUpgrade({ type, id, signature_version: version }: VerifyOutcome, io: Io): void {
  if (version !== 1) return;
  io.stderr.write(
    `hint: The signature has the older form, which names neither kind nor id. Sign it again: rye sign ${type} ${id}\n`,
  );
}

function exitFor(success: boolean, error: ErrorInfo | undefined): ExitCode {
  if (success) return EXIT.ok;
  return error === undefined ? EXIT.integrity : exitCodeOf(error.code);
}
