import type { GuardChange } from '../../app/api/items.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { failureText } from '../failure.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { oneLine } from '../terminal-text.ts';

/** `rye lock status`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const { refusal, ...report } = await withRye(invocation, io, (rye) => rye.lock.status());
  if (invocation.global.json) {
    printDocument(io, {
      success: refusal === null,
      ...(refusal ? { error: refusal } : {}),
      ...report,
    });
    return refusal === null ? EXIT.ok : EXIT.integrity;
  }
  const { files, changes, ignored, serial } = report;
  for (const { type, id, sha256, key_id } of files) {
    if (changes.some((one) => one.type === type && one.id === id)) continue;
    printLine(io, oneLine(`pinned   ${type} ${id} ${sha256.slice(0, 12)} ${key_id}`));
  }
  for (const change of changes) printLine(io, changeLine(change));
  for (const warning of ignored) printLine(io, oneLine(warning));
  const version = serial === null ? 'no lock file' : `lock version ${serial}`;
  printLine(io, `${count(files.length, 'power file')} pinned, ${version}`);
  if (refusal === null) return EXIT.ok;
  io.stderr.write(failureText(refusal));
  return EXIT.integrity;
}

/** One change as a line for people. */
export function changeLine({ type, id, change, detail }: GuardChange): string {
  const what = type === null ? detail : `${type} ${id} ${detail}`;
  const kind = change.startsWith('lock_') ? 'lock' : change;
  return oneLine(`${kind.padEnd(8)} ${what}`);
}
