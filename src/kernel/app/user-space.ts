import {
  closeSync,
  constants,
  existsSync,
  fstatSync,
  lstatSync,
  openSync,
  readFileSync,
  realpathSync,
  statSync,
} from 'node:fs';
import { userInfo } from 'node:os';
import { dirname, isAbsolute, join, resolve, sep } from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import type { OpenRyeOptions } from './api/rye.ts';
import { systemSpacePath } from './system.ts';

/** Sources of the user space, highest precedence first. */
export interface UserSpaceSources {
  /** `--user-space`. */
  readonly option: string | undefined;
  /** `RYE_USER_SPACE` and `HOME` are read. */
  readonly env: OpenRyeOptions['env'];
  /** The home folder of the account, independent of `HOME`; undefined if the account has none. */
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
 * Checks where rye is opened: the project is a folder, neither it nor the user space is the folder of an installed rye, and
 * the user space is not in the `.ai` of the project, which would vouch for itself. The user space may be the project: who
 * names it as their own gives its files that trust in every project. Returns both as absolute paths.
 */
export function checkedPlaces<T extends OpenRyeOptions>(options: T): T {
  const projectPath = absolutePath(options.projectPath);
  const userSpacePath = absolutePath(options.userSpacePath);
  assertFolder(projectPath);
  const [project, user] = [realPath(projectPath), realPath(userSpacePath)];
  const system = realPath(systemSpacePath());
  if (user === system || (project === system && !isClone(system))) {
    throw new RyeError(
      'read_only_space',
      `${system} is the folder of rye itself: its .ai is the system space, which is read-only`,
      {
        hint:
          user === system
            ? 'Set HOME or RYE_USER_SPACE to a folder of your own.'
            : 'Change to a folder of your own, or name it: rye -C FOLDER …',
        details: { path: system },
      },
    );
  }
  // `.ai` itself may be a link
  const roots = [join(project, '.ai'), realPath(join(project, '.ai'))];
  if (roots.some((root) => user === root || user.startsWith(root + sep))) {
    throw new RyeError(
      'user_space_refused',
      `the user space ${userSpacePath} is in the .ai folder of the project ${projectPath}`,
      {
        hint: 'Set HOME or RYE_USER_SPACE to a folder outside the .ai folder.',
        details: { user_space: userSpacePath, project: projectPath },
      },
    );
  }
  return { ...options, projectPath, userSpacePath };
}

/** True for a folder of rye with its sources: the project of the people who work on it. */
function isClone(system: string): boolean {
  return existsSync(join(system, 'src', 'index.ts'));
}

function isInstalled(folder: string): boolean {
  return folder === realPath(systemSpacePath()) && !isClone(folder);
}

/** Throws `file_not_found` or `path_denied` if a project folder can't be used. */
export function assertFolder(path: string): void {
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

/** The real path, also of a missing file in an existing folder. */
export function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    const parent = resolve(path, '..');
    return parent === path ? path : join(realPath(parent), path.slice(parent.length));
  }
}

const MAX_BYTES = 65_536;
const GROUP_AND_WORLD = 0o077;

/**
 * The environment with `~/.ai/.env` below it: `NAME=value` lines, `#` comments, optional quotes. Anything but a
 * regular file is ignored, with a notice; a file that others can read is used, with a notice.
 */
export function withUserEnv({
  env,
  userSpacePath,
  onNotice,
}: Pick<OpenRyeOptions, 'env' | 'userSpacePath' | 'onNotice'>): OpenRyeOptions['env'] {
  const path = join(userSpacePath, '.ai', '.env');
  let descriptor: number;
  try {
    // without O_NONBLOCK a FIFO would hang every command
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') onNotice?.(`${path} cannot be read and is ignored`);
    return env;
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > MAX_BYTES) {
      onNotice?.(`${path} is ignored: it is not a regular file of at most 64 KiB`);
      return env;
    }
    if (process.platform !== 'win32' && (stats.mode & GROUP_AND_WORLD) !== 0)
      onNotice?.(`${path} holds keys, and others can reach it. Run: chmod 600 ${path}`);
    return { ...Object.fromEntries(entriesOf(readFileSync(descriptor, 'utf8'))), ...env };
  } finally {
    closeSync(descriptor);
  }
}

/** Returns the variables of `~/.ai/.env`; none if it cannot be read. */
export function readUserEnv(userSpacePath: string): OpenRyeOptions['env'] {
  return withUserEnv({ env: {}, userSpacePath });
}

function entriesOf(text: string): [string, string][] {
  return text.split(/\r?\n/).flatMap((line): [string, string][] => {
    const match = /^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$/.exec(line);
    if (!match) return [];
    const [, name = '', value = ''] = match;
    return [[name, value.replace(/^(["'])(.*)\1$/, '$2')]];
  });
}

/**
 * The project: the nearest ancestor of `cwd` that holds `.ai/`, else `cwd` itself. The search ends at the user space, and
 * skips the folder of an installed rye and one that another user created in a world-writable place such as /tmp.
 */
export function findProject(
  cwd: string,
  userSpacePath: string,
  uid: number | undefined = process.getuid?.(),
): string {
  const user = realPath(userSpacePath);
  let folder = cwd;
  for (;;) {
    const real = realPath(folder);
    // what is above the user's own folder is not the user's
    if (real === user) return cwd;
    const holds = existsSync(join(folder, '.ai')) && !isInstalled(real);
    if (holds && (folder === cwd || !isPlanted(folder, uid))) return folder;
    const parent = dirname(folder);
    if (parent === folder) return cwd;
    folder = parent;
  }
}

const WORLD_WRITABLE = 0o002;

function isPlanted(folder: string, uid: number | undefined): boolean {
  if (uid === undefined || (statSync(folder).mode & WORLD_WRITABLE) === 0) return false;
  return lstatSync(join(folder, '.ai')).uid !== uid;
}
