import type { KeySummary } from '../../app/api/items.ts';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye keys list`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const keys = await withRye(invocation, io, (rye) => rye.keys.list());
  if (invocation.global.json) {
    printDocument(io, { success: true, keys, total: keys.length });
    return EXIT.ok;
  }
  const rows = keys.map((key) => [key.key_id, key.owner, key.source, stateOf(key)]);
  io.stdout.write(formatTable(['KEY', 'OWNER', 'SOURCE', 'STATE'], rows, io.stdout));
  return EXIT.ok;
}

function stateOf({ revoked, revoked_at, trusted }: KeySummary): string {
  if (revoked) return revoked_at === undefined ? 'revoked' : `revoked ${revoked_at}`;
  return trusted ? 'trusted' : 'not trusted';
}
