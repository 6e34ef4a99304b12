import path from 'node:path';
import type { OpenRyeOptions, Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadList } from '../../kernel/app/thread-list.ts';
import {
  accountHome,
  checkedPlaces,
  findProject,
  resolveUserSpace,
} from '../../kernel/app/user-space.ts';
import { isSecurityWarning } from '../../kernel/core/errors.ts';
import type { Io } from '../ui/io.ts';
import { wrapText } from '../ui/terminal-text.ts';
import { joined, oneLine, type Shown, shown } from '../ui/visible.ts';
import type { Context } from './command.ts';
import { displayText } from './output.ts';
import { holdUnsigned } from './unsigned-notices.ts';
import { noteWarning } from './warnings.ts';

/** Notices about what rye did as it should; all others are warnings. */
const FACT = /^(?:new signing key |thread \S+ is a fork of |nothing has changed since thread )/;

export interface SessionOptions {
  /** Use the working directory itself, without a search for `.ai` in its parents. */
  readonly here?: boolean;
  /** Prints a notice; by default on stderr. */
  readonly notify?: (line: Shown) => void;
  /** Runs without a signing key. */
  readonly unsignedRecords?: boolean;
}

/** Opens the project and the user space that the options, the environment or the working directory name. */
export async function withRye<T>(
  context: Context,
  action: (rye: Rye) => Promise<T>,
  options?: SessionOptions,
): Promise<T> {
  const { io } = context;
  return await closing(await io.openRye(openOptions(context, options)), io, action);
}

/** Opens the project and the user space as {@link withRye} does; the caller closes them. */
export async function openedRye(context: Context): Promise<Rye> {
  return await context.io.openRye(openOptions(context));
}

/** Opens only the list of threads, which takes a fraction of the time of {@link withRye}. */
export async function withThreadList<T>(
  context: Context,
  action: (list: ThreadList) => Promise<T>,
): Promise<T> {
  const { io } = context;
  return await closing(await io.openThreadList(openOptions(context)), io, action);
}

async function closing<O extends Pick<Rye, 'close'>, T>(
  opened: O,
  { endsWithCommand: exiting }: Io,
  action: (opened: O) => Promise<T>,
): Promise<T> {
  try {
    return await action(opened);
  } finally {
    opened.close({ exiting });
  }
}

/** The folder of the project that a command works in. */
export function projectFolder(context: Context): string {
  return openOptions(context).projectPath;
}

/** The folder that a worker works in, which need not be a project, and the user space. Throws `file_not_found`. */
export function workerFolders(context: Context): readonly [folder: string, userSpace: string] {
  const { projectPath, userSpacePath } = checkedPlaces(openOptions(context, { here: true }));
  return [projectPath, userSpacePath];
}

/** The folders of the spaces that a person can change: the project, then the user's. */
export function spaceFolders(context: Context): readonly string[] {
  const { projectPath, userSpacePath } = openOptions(context);
  return [projectPath, userSpacePath];
}

/** Writes a line for people; on a terminal it breaks between words. */
function writeNotice({ stderr }: Io, line: Shown): void {
  const lines = stderr.isTty ? wrapText(line, stderr.columns) : [line];
  stderr.write(shown`${joined(lines, '\n')}\n`);
}

/** Returns the options of {@link withRye} for a look at files before it, which reports nothing. */
export function quietOptions(context: Context): OpenRyeOptions {
  return { ...openOptions(context), createKey: false, onNotice: () => undefined };
}

function openOptions(
  { io, global }: Context,
  {
    here = false,
    notify = (line) => writeNotice(io, line),
    unsignedRecords = false,
  }: SessionOptions = {},
): OpenRyeOptions {
  // the working directory may have been deleted, so it is read only if a path needs it
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
    features: io.features,
    configOverrides: global.config,
    createKey: true,
    unsignedRecords,
    onNotice: (notice) => {
      if (!FACT.test(notice)) noteWarning(io, notice);
      if (global.quiet && !isSecurityWarning(notice)) return;
      const print = (text: string): void => notify(oneLine(`rye: ${displayText(text, io)}`));
      if (!holdUnsigned(io, notice, print)) print(notice);
    },
  };
}
