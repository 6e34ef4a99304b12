import { realpathSync, statSync } from 'node:fs';
import { userInfo } from 'node:os';
import { isAbsolute, join, resolve, sep } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import type { OpenRyeOptions } from './rye.ts';

/** What the user space is chosen from, the strongest first. */
export interface UserSpaceSources {
  /** `--user-space`. */
  readonly option: string | undefined;
  /** `RYE_USER_SPACE` and `HOME` are read. */
  readonly env: OpenRyeOptions['env'];
  /** The home folder of the account, whatever `HOME` is; undefined if the account has none. */
  readonly accountHome: string | undefined;
  /** Makes a path absolute. */
  readonly absolute: (path: string) => string;
}

/**
 * The folder that contains the user's `.ai`. An empty variable counts as unset, and so does a relative `HOME`: either
 * would make the working directory, which may be anyone's repository, the place of the keys that rye trusts.
 */
export function resolveUserSpace(sources: UserSpaceSources): string {
  const { option, env, absolute } = sources;
  const named = nonEmpty(option) ?? nonEmpty(env['RYE_USER_SPACE']);
  if (named !== undefined) return absolute(named);
  const home = env['HOME'];
  if (home !== undefined && isAbsolute(home)) return resolve(home);
  if (sources.accountHome !== undefined) return sources.accountHome;
  throw new RyeError('user_space_refused', 'HOME is not set and the account has no home folder', {
    hint: 'Set RYE_USER_SPACE to a folder of your own.',
  });
}

/** The home folder in the account database, which the environment can't change. */
export function accountHome(): string | undefined {
  try {
    const { homedir } = userInfo();
    return isAbsolute(homedir) ? homedir : undefined;
  } catch {
    return undefined; // an account without an entry, as in some containers
  }
}

function nonEmpty(text: string | undefined): string | undefined {
  return text === '' ? undefined : text;
}

/**
 * Checks where rye is opened: the project is a folder, and the user space is not the project or in its `.ai`, or the
 * project would vouch for itself. Only the account's real home may be a project too. Returns both as absolute paths.
 */
export function checkedPlaces<T extends OpenRyeOptions>(options: T): T {
  const projectPath = absolutePath(options.projectPath);
  const userSpacePath = absolutePath(options.userSpacePath);
  assertFolder(projectPath);
  const [project, user] = [realPath(projectPath), realPath(userSpacePath)];
  const home = accountHome();
  const isOwnHome = home !== undefined && realPath(home) === user;
  const root = join(project, '.ai');
  if (!isOwnHome && (user === project || user === root || user.startsWith(root + sep))) {
    throw new RyeError(
      'user_space_refused',
      `the user space ${userSpacePath} is part of the project ${projectPath}`,
      {
        hint: 'Set HOME or RYE_USER_SPACE to a folder outside the project.',
        details: { user_space: userSpacePath, project: projectPath },
      },
    );
  }
  return { ...options, projectPath, userSpacePath };
}

function assertFolder(path: string): void {
  let problem: string | undefined;
  let isHidden = false;
  try {
    if (!statSync(path).isDirectory()) problem = 'it is not a folder';
  } catch (error) {
    isHidden = systemCodeOf(error) === 'EACCES';
    problem = systemCodeOf(error) === 'ENOENT' ? 'it does not exist' : messageOf(error);
  }
  if (problem === undefined) return;
  throw new RyeError(
    isHidden ? 'path_denied' : 'file_not_found',
    `the project folder ${path} can't be used: ${problem}`,
    { hint: 'Create the folder first, or correct the path.', details: { path } },
  );
}

function absolutePath(path: string): string {
  try {
    return resolve(path);
  } catch (cause) {
    throw new RyeError('file_not_found', `${path} is relative to a folder that doesn't exist`, {
      hint: 'Change to a folder that exists, or give an absolute path.',
      cause,
    });
  }
}

/** The real path, also of what does not exist yet in a folder that does. */
function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = resolve(path, '..');
    return parent === path ? path : join(realPath(parent), path.slice(parent.length));
  }
}
