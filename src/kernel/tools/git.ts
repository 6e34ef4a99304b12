import { execFile } from 'node:child_process';
import { type ErrorCode, messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import { absoluteSearchPath } from '../core/text.ts';

/** Maximum bytes of the output of one command. */
const MAX_OUTPUT_BYTES = 512 * 1024 * 1024;

/** Settings that keep a hostile repository from running programs: hooks, watchers, remote helpers, maintenance. */
const HARMLESS: readonly (readonly [key: string, value: string])[] = [
  ['core.hooksPath', '/dev/null'],
  ['core.fsmonitor', 'false'],
  ['core.autocrlf', 'false'],
  ['core.untrackedCache', 'false'],
  ['core.attributesFile', '/dev/null'],
  ['protocol.allow', 'never'],
  ['submodule.recurse', 'false'],
  ['gc.auto', '0'],
  ['maintenance.auto', 'false'],
];

export interface GitOptions {
  /** The folder that git runs in. */
  readonly cwd: string;
  /** The environment of rye; git gets its search path alone. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Further variables, such as `GIT_DIR`. */
  readonly variables?: Readonly<Record<string, string>>;
  /** Further settings, such as filters to turn off. */
  readonly settings?: readonly (readonly [key: string, value: string])[];
  /**
   * True for commands that need the settings of the user of this machine, such as their credentials for a server. They are
   * run in a repository that no thread can write.
   */
  readonly isUsers?: boolean;
  /** Milliseconds after which git is ended. */
  readonly timeoutMs?: number;
  /** Sent to its standard input. */
  readonly stdin?: Uint8Array;
}

/** The end of a git command. */
export interface GitOutcome {
  /** Exit status. */
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/**
 * Runs git without the user's settings, and with settings that keep the repository from running programs. A repository of
 * another user works if the settings of this one call it safe.
 */
export async function tryGit(args: readonly string[], options: GitOptions): Promise<GitOutcome> {
  const outcome = await runGit(args, options);
  if (options.isUsers === true || !isOfOtherUser(outcome.stderr)) return outcome;
  const listing = ['config', '--null', '--get-all', 'safe.directory'];
  const { stdout } = await runGit(listing, { ...options, variables: {}, isUsers: true });
  const safe = stdout
    .toString('utf8')
    .split('\0')
    .filter((folder) => folder !== '')
    .map((folder) => ['safe.directory', folder] as const);
  if (safe.length === 0) return outcome;
  return await runGit(args, { ...options, settings: [...(options.settings ?? []), ...safe] });
}

/** True if git refused a repository because another user owns it; `stderr` is in English. */
export function isOfOtherUser(stderr: string): boolean {
  return stderr.includes('dubious ownership');
}

/** The error for a repository that git refuses because another user owns it. */
export function foreignRepository(code: ErrorCode, folder: string, stderr: string): RyeError {
  const [, path = folder] = /dubious ownership in repository at '(.+)'/.exec(stderr) ?? [];
  return new RyeError(code, `${folder} is in a git repository of another user, which git refuses`, {
    hint: `If you trust it: git config --global --add safe.directory ${shellWord(path)}`,
  });
}

/** Returns a word as a shell reads it. */
export function shellWord(word: string): string {
  return /^[\w./-]+$/.test(word) ? word : `'${word.replaceAll("'", String.raw`'\''`)}'`;
}

async function runGit(args: readonly string[], options: GitOptions): Promise<GitOutcome> {
  const { cwd, env, variables = {}, settings = [], isUsers = false, timeoutMs, stdin } = options;
  const all = [...HARMLESS, ...settings];
  const named = all.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return await new Promise((resolve, reject) => {
    const child = execFile(
      'git',
      [...args],
      {
        cwd,
        encoding: 'buffer',
        maxBuffer: MAX_OUTPUT_BYTES,
        ...(timeoutMs === undefined ? {} : { timeout: timeoutMs }),
        env: {
          ...(isUsers ? usersVariables(env) : WITHOUT_USER),
          PATH: absoluteSearchPath(env['PATH'] ?? ''),
          LC_ALL: 'C',
          GIT_TERMINAL_PROMPT: '0',
          GIT_NO_LAZY_FETCH: '1',
          GIT_CONFIG_COUNT: String(all.length),
          ...(Object.fromEntries(named) as Record<string, string>),
          ...variables,
        },
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        const text = stderr.toString('utf8');
        if (typeof code === 'number') resolve({ code, stdout, stderr: text });
        else if (error?.killed === true && timeoutMs !== undefined)
          resolve({ code: 1, stdout, stderr: `${text}\nno end within ${timeoutMs / 1000} s` });
        else reject(notRun(error));
      },
    );
    if (stdin === undefined) return;
    child.stdin?.on('error', () => undefined);
    child.stdin?.end(stdin);
  });
}

/** As {@link tryGit}; throws `tool_failed` if git fails. */
export async function git(args: readonly string[], options: GitOptions): Promise<Buffer> {
  const { code, stdout, stderr } = await tryGit(args, options);
  if (code === 0) return stdout;
  if (isOfOtherUser(stderr)) throw foreignRepository('tool_failed', options.cwd, stderr);
  const [line = ''] = stderr.trim().split('\n').slice(-1);
  throw new RyeError('tool_failed', `git ${args[0] ?? ''} failed: ${line}`, {
    details: { exit_code: code },
  });
}

const WITHOUT_USER = {
  GIT_CONFIG_NOSYSTEM: '1',
  GIT_CONFIG_GLOBAL: '/dev/null',
  GIT_ATTR_NOSYSTEM: '1',
} as const;

/** Names of variables with which a user of git reaches a server; variables of proxies and certificates come in both cases. */
const USERS =
  /^(?:HOME|USER|LOGNAME|XDG_CONFIG_HOME|SSH_.+|GIT_SSH|GIT_SSH_COMMAND|GIT_ASKPASS|GIT_CONFIG_GLOBAL|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_.+|GIT_SSL_CAINFO)$/i;

function usersVariables(env: GitOptions['env']): Record<string, string> {
  const known = Object.entries(env).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && USERS.test(entry[0]),
  );
  return Object.fromEntries(known);
}

function notRun(error: unknown): RyeError {
  if (systemCodeOf(error) === 'ENOENT') {
    return new RyeError('isolation_unavailable', 'git is not installed', {
      hint: 'Install git, or run the directive without isolation.',
    });
  }
  return new RyeError('tool_failed', `git could not be run: ${messageOf(error)}`);
}

/** Returns settings that turn off the filters of a repository, which are programs that git runs on files. */
export async function withoutFilters(options: GitOptions): Promise<GitOptions> {
  const { stdout } = await tryGit(
    ['config', '--null', '--name-only', '--get-regexp', '^filter\\.'],
    options,
  );
  const drivers = stdout
    .toString('utf8')
    .split('\0')
    .filter((key) => key !== '')
    .map((key) => key.slice(0, key.lastIndexOf('.')));
  const settings = [...new Set(drivers)].flatMap((driver) => [
    [`${driver}.clean`, ''] as const,
    [`${driver}.smudge`, ''] as const,
    [`${driver}.process`, ''] as const,
    [`${driver}.required`, 'false'] as const,
  ]);
  return { ...options, settings: [...(options.settings ?? []), ...settings] };
}
