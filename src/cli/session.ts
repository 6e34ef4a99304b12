import path from 'node:path';
import type { OpenRyeOptions, Rye } from '../app/api/rye.ts';
import type { ThreadList } from '../app/thread-list.ts';
import { accountHome, resolveUserSpace } from '../app/user-space.ts';
import { isSecurityWarning } from '../core/errors.ts';
import type { Invocation } from './invocation.ts';
import type { Io } from './io.ts';

export interface SessionOptions {
  /** Do not look for `.ai` in the folders above: the working directory itself is meant. */
  readonly here?: boolean;
}

/** Opens the project and the user space that the options, the environment or the working directory name. */
export async function withRye<T>(
  invocation: Invocation,
  io: Io,
  action: (rye: Rye) => Promise<T>,
  options?: SessionOptions,
): Promise<T> {
  return await closing(await io.openRye(await placesOf(invocation, io, options)), action);
}

/** Like {@link withRye}, for a command that looks at the list of threads and at nothing else. */
export async function withThreadList<T>(
  invocation: Invocation,
  io: Io,
  action: (list: ThreadList) => Promise<T>,
): Promise<T> {
  return await closing(await io.openThreadList(await placesOf(invocation, io)), action);
}

async function closing<O extends Pick<Rye, 'close'>, T>(
  opened: O,
  action: (opened: O) => Promise<T>,
): Promise<T> {
  try {
    return await action(opened);
  } finally {
    opened.close();
  }
}

async function placesOf(
  { global }: Invocation,
  io: Io,
  { here = false }: SessionOptions = {},
): Promise<OpenRyeOptions> {
  const { findProject } = await import('../app/user-space.ts');
  // the working directory is read only where a path needs it: it may be gone
  const absolute = (folder: string): string =>
    path.isAbsolute(folder) ? path.resolve(folder) : path.resolve(io.cwd, folder);
  const named = (folder: string | undefined): string | undefined =>
    folder === undefined || folder === '' ? undefined : absolute(folder);
  const userSpacePath = resolveUserSpace({
    option: global.userSpace,
    env: io.env,
    accountHome: accountHome(),
    absolute,
  });
  return {
    projectPath:
      named(global.project) ??
      named(io.env['RYE_PROJECT']) ??
      (here ? io.cwd : findProject(io.cwd, userSpacePath)),
    userSpacePath,
    env: io.env,
    configOverrides: global.config,
    onNotice: (notice) => {
      if (!global.quiet || isSecurityWarning(notice)) io.stderr.write(`rye: ${notice}\n`);
    },
  };
}
