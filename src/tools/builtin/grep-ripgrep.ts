import { accessSync, constants } from 'node:fs';
import { delimiter, isAbsolute, join, relative, sep } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import { isRecord, parseJson } from '../../core/json.ts';
import { HeadBuffer } from '../output.ts';
import { isInside, protectedReason, shownPath } from '../paths.ts';
import { childEnvironment, runProcess } from '../process.ts';
import { EXPORTS_FOLDER, IGNORED_FOLDERS, skipsExports } from '../walk.ts';
import { type GrepMatch, type GrepQuery, MAX_MATCHES, shownLine } from './grep-files.ts';

const TIMEOUT_MS = 110_000;
const MAX_EVENT_BYTES = 4 * 1024 * 1024;

/** Absolute path of `rg` on a PATH, or undefined. */
export function ripgrepPath(path: string | undefined): string | undefined {
  for (const folder of (path ?? '').split(delimiter)) {
    // a relative entry would let a project bring its own program
    if (!isAbsolute(folder)) continue;
    const program = join(folder, 'rg');
    try {
      accessSync(program, constants.X_OK);
      return program;
    } catch {
      // Not in this folder.
    }
  }
  return undefined;
}

/**
 * Searches with ripgrep: JSON events, sorted by path, always with an explicit path so that it never reads stdin,
 * no configuration file, no ignore files, links not followed.
 */
export async function searchWithRipgrep(
  query: GrepQuery,
  {
    program,
    env,
    threadId,
  }: {
    readonly program: string;
    readonly env: Readonly<Record<string, string | undefined>>;
    readonly threadId: string;
  },
): Promise<readonly GrepMatch[]> {
  const cwd = isInside(query.root, query.project) ? query.project : query.root;
  const matches: GrepMatch[] = [];
  const errors = new HeadBuffer(2000);
  const events = eventReader((event) => {
    const match = matchOf(event, query, cwd);
    if (match !== undefined && matches.length < MAX_MATCHES) matches.push(match);
    return matches.length < MAX_MATCHES;
  });
  const result = await runProcess({
    command: program,
    args: argumentsOf(query, cwd),
    cwd,
    env: childEnvironment(env, { projectPath: query.project, threadId }),
    timeoutMs: TIMEOUT_MS,
    signal: query.signal,
    onStdout: events,
    onStderr: (chunk) => {
      errors.push(chunk);
      return true;
    },
  });
  // 2 with matches: some files could not be read.
  if (
    result.stopped === undefined &&
    result.exitCode === 2 &&
    matches.length === 0 &&
    errors.text() !== ''
  ) {
    throw new RyeError('pattern_invalid', `ripgrep refused the search: ${errors.text().trim()}`);
  }
  if (result.stopped === 'timeout') {
    throw new RyeError('tool_failed', `the search took longer than ${TIMEOUT_MS / 1000} seconds`, {
      hint: 'Narrow the path or the glob.',
    });
  }
  return matches;
}

function argumentsOf(query: GrepQuery, cwd: string): string[] {
  const inside = relative(cwd, query.root).split(sep);
  const ignored = [...IGNORED_FOLDERS].filter((name) => !inside.includes(name));
  const exports = skipsExports(query.root, query.project) ? [EXPORTS_FOLDER] : [];
  const excluded = [...ignored, '.ai/state', '.ai/config/keys', ...exports];
  return [
    '--json',
    '--no-config',
    '--no-ignore',
    '--hidden',
    '--no-messages',
    '--sort=path',
    ...(query.ignoreCase ? ['--ignore-case'] : ['--case-sensitive']),
    ...excluded.map((name) => `--glob=!**/${name}/**`),
    `--regexp=${query.pattern}`,
    '--',
    `.${sep}${inside.join(sep)}`,
  ];
}

/** Splits a stream of JSON lines; `onEvent` returns false to stop. An over-long event is passed over. */
function eventReader(onEvent: (event: unknown) => boolean): (chunk: Buffer) => boolean {
  let rest: Buffer[] = [];
  let held = 0;
  return (chunk) => {
    let start = 0;
    for (let end = chunk.indexOf(0x0a); end !== -1; end = chunk.indexOf(0x0a, start)) {
      const line = Buffer.concat([...rest, chunk.subarray(start, end)]);
      rest = [];
      held = 0;
      start = end + 1;
      if (line.length <= MAX_EVENT_BYTES && !onEvent(parseJson(line.toString('utf8'))))
        return false;
    }
    const tail = chunk.subarray(start);
    held += tail.length;
    if (held <= MAX_EVENT_BYTES + 1) rest.push(tail);
    return true;
  };
}

function matchOf(event: unknown, query: GrepQuery, cwd: string): GrepMatch | undefined {
  if (!isRecord(event) || event['type'] !== 'match' || !isRecord(event['data'])) return undefined;
  const { path, lines, line_number: line } = event['data'];
  const file = textOf(path);
  const content = textOf(lines);
  if (file === undefined || content === undefined || typeof line !== 'number') return undefined;
  const real = join(cwd, file);
  if (protectedReason(real, query.project, undefined) !== undefined) return undefined;
  const below = query.isFile ? file.slice(file.lastIndexOf(sep) + 1) : relative(query.root, real);
  if (!query.accepts(below.split(sep).join('/'))) return undefined;
  return {
    path: shownPath(real, query.project),
    line,
    text: shownLine(content.replace(/\r?\n$/, '')),
  };
}

/** ripgrep writes `{text}`, or `{bytes}` in base64 where it is not UTF-8. */
function textOf(value: unknown): string | undefined {
  if (!isRecord(value)) return undefined;
  if (typeof value['text'] === 'string') return value['text'];
  return typeof value['bytes'] === 'string'
    ? Buffer.from(value['bytes'], 'base64').toString('utf8')
    : undefined;
}
