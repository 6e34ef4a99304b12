import path from 'node:path';
import type { Rye } from '../app/rye.ts';
import type { Invocation } from './invocation.ts';
import type { Io } from './io.ts';

export interface SessionOptions {
  /** Do not look for `.ai` in the folders above: the working directory itself is meant. */
  readonly here?: boolean;
}

/** Opens the project and the user space that the options, the environment or the working directory name. */
export async function withRye<T>(
  { global }: Invocation,
  io: Io,
  action: (rye: Rye) => Promise<T>,
  { here = false }: SessionOptions = {},
): Promise<T> {
  const { findProject } = await import('../app/system.ts');
  const named = (folder: string | undefined): string | undefined =>
    folder === undefined || folder === '' ? undefined : path.resolve(io.cwd, folder);
  const userSpacePath =
    named(global.userSpace) ?? named(io.env['RYE_USER_SPACE']) ?? path.resolve(io.homeDirectory);
  const rye = await io.openRye({
    projectPath:
      named(global.project) ??
      named(io.env['RYE_PROJECT']) ??
      (here ? io.cwd : findProject(io.cwd, userSpacePath)),
    userSpacePath,
    env: io.env,
    configOverrides: global.config,
    onNotice: (notice) => {
      if (!global.quiet) io.stderr.write(`rye: ${notice}\n`);
    },
  });
  try {
    return await action(rye);
  } finally {
    rye.close();
  }
}
