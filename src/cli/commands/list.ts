import { EXIT, type ExitCode } from '../../core/errors.ts';
import { SPACES } from '../../core/ids.ts';
import { compact } from '../../core/json.ts';
import { type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseItemType } from '../item-arguments.ts';
import { formatTable, printDocument } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye list <type>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const type = parseItemType(requiredArgument(invocation, 0, 'type'));
  const space = SPACES.find((name) => name === textOption(invocation, 'space'));
  const items = await withRye(invocation, io, (rye) => rye.items.list(type, compact({ space })));
  if (invocation.global.json) {
    printDocument(io, { success: true, items, total: items.length });
    return EXIT.ok;
  }
  const rows = items.map((item) => [
    item.id,
    item.space,
    item.version ?? '-',
    item.signature_version === 1 ? `${item.signature} (v1)` : item.signature,
    item.shadowed_by === null ? item.description : `(shadowed by ${item.shadowed_by})`,
  ]);
  const headings = ['ID', 'SPACE', 'VERSION', 'SIGNATURE', 'DESCRIPTION'];
  io.stdout.write(formatTable(headings, rows, io.stdout));
  return EXIT.ok;
}
