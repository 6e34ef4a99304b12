import { EXIT, type ExitCode } from '../../core/errors.ts';
import { compact } from '../../core/json.ts';
import { readNamedFile } from '../files.ts';
import { flagOption, type Invocation, requiredArgument, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { parseItemType } from '../item-arguments.ts';
import { displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';
import { neutralise } from '../terminal-text.ts';

/** `rye fetch <type> <id>`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const type = parseItemType(requiredArgument(invocation, 0, 'type'));
  const id = requiredArgument(invocation, 1, 'id');
  const copyTo = (['project', 'user'] as const).find(
    (space) => space === textOption(invocation, 'copy-to'),
  );
  const item = await withRye(invocation, io, (rye) =>
    rye.items.fetch(type, id, compact({ copyTo })),
  );
  if (invocation.global.json) {
    printDocument(io, { success: true, ...item });
    return EXIT.ok;
  }
  if (flagOption(invocation, 'raw')) {
    const { path, content } = item;
    io.stdout.write(path === null ? content : await readNamedFile(path, `${type} ${id}`, io));
    return EXIT.ok;
  }
  if (item.copied_to !== undefined) {
    printLine(io, displayPath(item.copied_to, io));
    return EXIT.ok;
  }
  printLine(io, `${item.type} ${item.id} (${item.space}, ${item.signature})`);
  if (item.path !== null) printLine(io, displayPath(item.path, io));
  for (const [name, value] of Object.entries(item.metadata)) {
    printLine(
      io,
      neutralise(`${name}: ${typeof value === 'string' ? value : JSON.stringify(value)}`),
    );
  }
  printLine(io, `\n${neutralise(item.content).trimEnd()}`);
  return EXIT.ok;
}
