import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { confirm } from '../confirm.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys revoke KEYID`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const keyId = requiredArgument(invocation, 0, 'keyid');
  const reason = textOption(invocation, 'reason');
  const key = await withRye(invocation, io, async (rye) => {
    await confirm(invocation, io, {
      facts: ['Nothing that it signed will be accepted from now on. This cannot be taken back.'],
      question: `Revoke ${keyId}?`,
    });
    return await rye.keys.revoke(keyId, compact({ reason }));
  });
  if (invocation.global.json) printDocument(io, { success: true, ...key });
  else printLine(io, `revoked ${key.key_id}`);
  return EXIT.ok;
}
