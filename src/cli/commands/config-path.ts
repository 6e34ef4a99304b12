import path from 'node:path';
import { EXIT, type ExitCode } from '../../core/errors.ts';
import type { Invocation } from '../invocation.ts';
import type { Io } from '../io.ts';
import { printDocument, printLine } from '../output.ts';
import { withRye } from '../session.ts';

/** `rye config path`: the folders that a person may edit, the stronger one first. */
export async function run(invocation: Invocation, io: Io): Promise<ExitCode> {
  const paths = await withRye(invocation, io, (rye) =>
    Promise.resolve({
      project: path.join(rye.projectPath, '.ai', 'config'),
      user: path.join(rye.userSpacePath, '.ai', 'config'),
    }),
  );
  if (invocation.global.json) printDocument(io, { success: true, ...paths });
  else for (const folder of Object.values(paths)) printLine(io, folder);
  return EXIT.ok;
}
