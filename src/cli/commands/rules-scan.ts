import path from 'node:path';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import { flagOption, type Invocation, numberOption, textOption } from '../invocation.ts';
import type { Io } from '../io.ts';
import { count, displayPath, printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye rules scan [folder]`. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const rule = textOption(invocation, 'rule');
  const maxBytes = numberOption(invocation, 'max-bytes');
  const [folder] = invocation.args;
  const { files, skipped, hits } = await withRye(invocation, io, (rye) =>
    rye.rules.scan({
      folder: folder === undefined ? rye.projectPath : path.resolve(io.cwd, folder),
      gitignore: !flagOption(invocation, 'no-gitignore'),
      ...(rule === undefined ? {} : { rule }),
      ...(maxBytes === undefined ? {} : { maxBytes }),
    }),
  );
  const code = hits.length === 0 ? EXIT.ok : EXIT.failed;
  if (invocation.global.json) {
    printDocument(io, { success: hits.length === 0, files, skipped, hits, total: hits.length });
    return code;
  }
  for (const hit of hits) {
    const where = hit.line === undefined ? '' : `:${hit.line}`;
    printLine(io, `${displayPath(hit.path, io)}${where}: ${hit.rule}`);
  }
  const left = skipped === 0 ? '' : `, ${skipped} left out`;
  printLine(io, `${count(files, 'file')} checked${left}, ${count(hits.length, 'hit')}`);
  return code;
}
