import { execFile } from 'node:child_process';
import { messageOf, RyeError, systemCodeOf } from '../../core/errors.ts';
import { absoluteSearchPath } from '../../core/text.ts';

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
}

/** The end of a git command. */
export interface GitOutcome {
  /** Exit status. */
  readonly code: number;
  readonly stdout: Buffer;
  readonly stderr: string;
}

/** Runs git without the user's settings, and with settings that keep the repository from running programs. */
export async function tryGit(args: readonly string[], options: GitOptions): Promise<GitOutcome> {
  const { cwd, env, variables = {}, settings = [] } = options;
  const all = [...HARMLESS, ...settings];
  const named = all.flatMap(([key, value], index) => [
    [`GIT_CONFIG_KEY_${index}`, key],
    [`GIT_CONFIG_VALUE_${index}`, value],
  ]);
  return await new Promise((resolve, reject) => {
    execFile(
      'git',
      [...args],
      {
        cwd,
        encoding: 'buffer',
        maxBuffer: MAX_OUTPUT_BYTES,
        env: {
          PATH: absoluteSearchPath(env['PATH'] ?? ''),
          LC_ALL: 'C',
          GIT_CONFIG_NOSYSTEM: '1',
          GIT_CONFIG_GLOBAL: '/dev/null',
          GIT_TERMINAL_PROMPT: '0',
          GIT_NO_LAZY_FETCH: '1',
          GIT_ATTR_NOSYSTEM: '1',
          GIT_CONFIG_COUNT: String(all.length),
          ...(Object.fromEntries(named) as Record<string, string>),
          ...variables,
        },
      },
      (error, stdout, stderr) => {
        const code = error === null ? 0 : error.code;
        if (typeof code === 'number') resolve({ code, stdout, stderr: stderr.toString('utf8') });
        else reject(notRun(error));
      },
    );
  });
}

/** As {@link tryGit}; throws `tool_failed` if git fails. */
export async function git(args: readonly string[], options: GitOptions): Promise<Buffer> {
  const { code, stdout, stderr } = await tryGit(args, options);
  if (code === 0) return stdout;
  const [line = ''] = stderr.trim().split('\n').slice(-1);
  throw new RyeError('tool_failed', `git ${args[0] ?? ''} failed: ${line}`, {
    details: { exit_code: code },
  });
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
  return { ...options, settings };
}
