import { accessSync, constants, existsSync, realpathSync, statSync } from 'node:fs';
import { delimiter, dirname, isAbsolute, join } from 'node:path';
import { runProcess } from './process.ts';
import { isWithin } from './sandbox-reads.ts';

/** The borders of a confined command in the file system; everything else is read-only. */
export interface Boundaries {
  /** Homes: only what is named here is there. */
  readonly hidden: readonly string[];
  readonly readable: readonly string[];
  readonly writable: readonly string[];
  /** Parts of `writable` that stay read-only. */
  readonly fixed: readonly string[];
  /** Files and folders that are empty. */
  readonly secret: readonly string[];
}

/** The programs that confine a command. */
export interface Helpers {
  readonly bwrap: string;
  /** Starts a program that can't open sockets of this machine, such as the sockets of D-Bus and of containers. */
  readonly noSockets: string;
}

export interface ConfinedRun {
  readonly helpers: Helpers;
  readonly boundaries: Boundaries;
  readonly hasNetwork: boolean;
  readonly setenv: Readonly<Record<string, string>>;
  readonly unsetenv: readonly string[];
  readonly command: readonly string[];
}

const OWN =
  '--new-session --die-with-parent --cap-drop ALL --unshare-user --unshare-pid --unshare-ipc'.split(
    ' ',
  );
const ALL_READABLE = '--ro-bind / / --dev /dev --proc /proc'.split(' ');
/** A root without capabilities still owns the settings of the kernel, which name programs for it to run. */
const KERNEL = ['sys', 'fs'].flatMap((name) => ['--ro-bind-try', `/proc/${name}`, `/proc/${name}`]);

/** Keeps the settings of the kernel from a command that the vendor's sandbox starts. */
export function withoutKernel({ bwrap }: Helpers, command: readonly string[]): readonly string[] {
  const own = ['--unshare-user', '--cap-drop', 'ALL', '--die-with-parent'];
  return [bwrap, ...own, '--dev-bind', '/', '/', ...KERNEL, '--', ...command];
}

/**
 * Returns the command line that starts a command with its own processes, devices and users. The package that serves
 * `allow_domains` does the same through three shells and two bridges to its proxy, which take several times as long.
 */
export function confinedArgv(run: ConfinedRun): readonly string[] {
  const { helpers, setenv, unsetenv, command } = run;
  return [
    // first, so that no process in sight of the command is free of it
    helpers.noSockets,
    helpers.bwrap,
    ...OWN,
    ...(run.hasNetwork ? [] : ['--unshare-net']),
    ...ALL_READABLE,
    ...KERNEL,
    ...mounts(run.boundaries),
    ...Object.entries(setenv).flatMap(([name, value]) => ['--setenv', name, value]),
    ...unsetenv.flatMap((name) => ['--unsetenv', name]),
    '--',
    ...command,
  ];
}

/** Returns the mounts. If two rules name a path, the later one holds; an inner one is mounted after the outer one. */
function mounts(boundaries: Boundaries): readonly string[] {
  const { hidden, readable } = boundaries;
  const writable = boundaries.writable.map(realPath);
  const isWritable = (path: string): boolean => writable.some((folder) => isWithin(path, folder));
  // what a link of the project leads to outside of it is read-only anyway, or hidden
  const fixed = boundaries.fixed.map(realPath).filter(isWritable);
  const rules = new Map<string, readonly string[]>();
  const add = (paths: readonly string[], mount: (path: string) => readonly string[]): void => {
    for (const path of paths.map(realPath)) rules.set(path, mount(path));
  };
  // what is not the user's looks foreign to ssh, which then refuses to start
  add([...hidden, ...['/etc/ssh/ssh_config.d'].filter((path) => existsSync(path))], emptyFolder);
  add(readable, (path) => ['--ro-bind-try', path, path]);
  add(writable, (path) => ['--bind', path, path]);
  add(fixed, (path) => (existsSync(path) ? ['--ro-bind', path, path] : emptyFixed(path)));
  add(boundaries.secret, empty);
  // a folder above such a place could be exchanged for another, unless it is mounted itself
  for (let path of [...fixed, ...writable]) {
    for (path = dirname(path); isWritable(path) && !rules.has(path); path = dirname(path)) {
      rules.set(path, ['--bind', path, path]);
    }
  }
  return [...rules].toSorted(([one], [other]) => depth(one) - depth(other)).flatMap(([, it]) => it);
}

function empty(path: string): readonly string[] {
  const stats = statSync(path, { throwIfNoEntry: false });
  if (stats?.isDirectory() === true) return emptyFolder(path);
  return stats?.isFile() === true ? ['--ro-bind', '/dev/null', path] : [];
}

function emptyFolder(path: string): readonly string[] {
  return ['--tmpfs', path];
}

function emptyFixed(path: string): readonly string[] {
  return ['--tmpfs', path, '--remount-ro', path];
}

function depth(path: string): number {
  return path.split('/').length;
}

function realPath(path: string): string {
  try {
    return realpathSync(path);
  } catch {
    return path;
  }
}

/** Places to look for the helper programs. */
export interface HelperPlaces {
  /** The `PATH` of rye. */
  readonly searchPath: string;
  /** Folders that commands write: a program there would not confine anyone. */
  readonly untrusted: readonly string[];
  /** The folder that rye is installed in. */
  readonly programPath: string;
}

/** Returns the helper programs, or the reason why commands can't be confined with them. */
export function findHelpers(places: HelperPlaces): Helpers | string {
  const noSockets = socketFilter(places.programPath);
  if (noSockets === undefined) return `rye has no filter of sockets for ${process.arch}`;
  const bwrap = places.searchPath
    .split(delimiter)
    .filter((folder) => isAbsolute(folder))
    .map((folder) => join(folder, 'bwrap'))
    .find((file) => isTrusted(file, places.untrusted));
  return bwrap === undefined ? 'bubblewrap (bwrap) is not installed' : { bwrap, noSockets };
}

function isTrusted(file: string, untrusted: readonly string[]): boolean {
  try {
    accessSync(file, constants.X_OK);
    if (!statSync(file).isFile()) return false;
  } catch {
    return false;
  }
  return ![file, realPath(file)].some((one) => untrusted.some((folder) => isWithin(one, folder)));
}

/** The package is beside the code of rye, or of this project's development. */
function socketFilter(programPath: string): string | undefined {
  const file = join('vendor', 'seccomp', process.arch, 'apply-seccomp');
  return [
    join(programPath, 'dist', file),
    join(programPath, 'node_modules', '@anthropic-ai', 'sandbox-runtime', file),
  ].find((path) => existsSync(path));
}

/** Returns why a command does not start confined, for instance where user namespaces are forbidden; undefined if it does. */
export async function problemOf(helpers: Helpers): Promise<string | undefined> {
  const boundaries = { hidden: [], readable: [], writable: [], fixed: [], secret: [] };
  const [command = '', ...args] = confinedArgv({
    helpers,
    boundaries,
    hasNetwork: false,
    setenv: {},
    unsetenv: [],
    command: ['/bin/sh', '-c', 'exit 41'],
  });
  let told = '';
  const { exitCode } = await runProcess({
    command,
    args,
    cwd: '/',
    env: {},
    timeoutMs: 10_000,
    signal: new AbortController().signal,
    onStdout: () => undefined,
    onStderr: (chunk) => {
      if (told.length < 500) told += chunk.toString();
      return undefined;
    },
  });
  if (exitCode === 41) return undefined;
  const [line = ''] = told.trim().split('\n');
  return `bubblewrap does not work here${line === '' ? '' : `: ${line}`}`;
}
