import { accessSync, constants, existsSync, readFileSync, statSync } from 'node:fs';
import { delimiter, join, resolve } from 'node:path';

/**
 * The limit on file locks that every unconfined program of a tool gets. Linux has enforced none since 2.4, so that it disturbs
 * nothing; programs inherit it however they are started, and only root can raise it again.
 */
const MARK = 1_381_581_000;

const PRLIMIT = ['/usr/bin/prlimit', '/bin/prlimit'];
const SETPRIV = ['/usr/bin/setpriv', '/bin/setpriv'];
/** The shells name the limit differently. */
const ULIMIT = `ulimit -w ${MARK} 2>/dev/null || ulimit -x ${MARK} 2>/dev/null; exec "$@"`;

export interface ToolProgram {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
}

/**
 * Returns the command that starts a tool's program with a mark that it cannot take off: what a thread started may not
 * decide, sign or trust ({@link isMarked}). A program that cannot be found is returned as it is, for the usual error.
 */
export function markedProgram(program: ToolProgram): Pick<ToolProgram, 'command' | 'args'> {
  const { command, args } = program;
  if (process.platform !== 'linux' || !isRunnable(program)) return { command, args };
  const [first = command, ...rest] = [...markers(), command, ...args];
  return { command: first, args: rest };
}

let known: readonly string[] | undefined;

function markers(): readonly string[] {
  known ??= [...unprivileged(), ...limited()];
  return known;
}

/** Root could lift the limit, but no process can take back that it gains no privileges. */
function unprivileged(): readonly string[] {
  const setpriv = process.getuid?.() === 0 ? SETPRIV.find((path) => existsSync(path)) : undefined;
  return setpriv === undefined ? [] : [setpriv, '--no-new-privs'];
}

function limited(): readonly string[] {
  // a tool inside a tool: an ordinary user may not set a limit that is not lower
  if (lockLimit('self') !== undefined) return [];
  const prlimit = PRLIMIT.find((path) => existsSync(path));
  return prlimit === undefined
    ? ['/bin/sh', '-c', ULIMIT, 'rye']
    : [prlimit, `--locks=${MARK}:${MARK}`];
}

/** Returns whether the system would find the program: one that fails to start it for us could not tell why. */
export function isRunnable({ command, cwd, env }: ToolProgram): boolean {
  const folders = command.includes('/')
    ? [cwd]
    : (env['PATH'] ?? '/usr/bin:/bin').split(delimiter).map((folder) => resolve(cwd, folder));
  return folders.some((folder) =>
    isProgram(command.includes('/') ? resolve(folder, command) : join(folder, command)),
  );
}

function isProgram(path: string): boolean {
  try {
    accessSync(path, constants.X_OK);
    return statSync(path).isFile();
  } catch {
    return false;
  }
}

/** True for a process that a tool started, however many programs are in between and whether those still run. */
export function isMarked(pid: number | 'self'): boolean {
  return lockLimit(pid) !== undefined || (process.getuid?.() === 0 && hasGivenUp(pid));
}

/** The hard limit on file locks; undefined where there is none. */
function lockLimit(pid: number | 'self'): number | undefined {
  const [, limit = ''] = /^Max file locks +\S+ +(\d+)/m.exec(procFile(pid, 'limits')) ?? [];
  return limit === '' ? undefined : Number(limit);
}

/** In a container in which no process may gain privileges, this tells nothing. */
function hasGivenUp(pid: number | 'self'): boolean {
  const given = /^NoNewPrivs:\s*1/m;
  return given.test(procFile(pid, 'status')) && !given.test(procFile(1, 'status'));
}

function procFile(pid: number | 'self', name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1');
  } catch {
    return '';
  }
}
