import { accessSync, constants } from 'node:fs';
import { open, realpath } from 'node:fs/promises';
import { delimiter, isAbsolute, join, relative, sep } from 'node:path';
import { RE2JS } from 're2js';
import { messageOf, RyeError } from '../../core/errors.ts';
import { isRecord, parseJson } from '../../core/json.ts';
import { missing, readLines, startsBinary } from '../files.ts';
import { compileGlob } from '../glob-pattern.ts';
import { HeadBuffer } from '../output.ts';
import {
  confine,
  EXPORTS_FOLDER,
  IGNORED_FOLDERS,
  isInside,
  protectedReason,
  shownPath,
  skipsExports,
  walkFiles,
} from '../paths.ts';
import { childEnvironment, runProcess } from '../process.ts';
import {
  builtinTool,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { printable } from './ls.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

const DEFAULT_HEAD_LIMIT = 250;

/**
 * `rye/file-system/grep` finds lines that match a regular expression. `data`: `matches` (`path`, `line`, `text`; the page
 * from `offset`), `count` (all matching lines), `files` (number of files with a match), `truncated`.
 */
export function createGrepTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/grep',
    description:
      'Searches file contents by a regular expression (RE2 syntax, line by line) and returns path:line:text. Skips .git, node_modules, .ai/state, binary files and the exports of earlier threads (give path .ai/knowledge/agent/threads to search those).',
    properties: {
      pattern: { type: 'string', minLength: 1, description: 'Regular expression.' },
      path: { ...PATH_PROPERTY, description: 'Folder or file to search. Default: the project.' },
      glob: {
        type: 'string',
        description: 'Only files that match, such as *.ts (any folder) or src/**/*.ts.',
      },
      case_insensitive: { type: 'boolean' },
      output_mode: {
        type: 'string',
        enum: ['content', 'files', 'count'],
        description: 'Matching lines, file names, or number of matches per file. Default content.',
      },
      head_limit: {
        type: 'integer',
        minimum: 1,
        maximum: MAX_MATCHES,
        description: `Results to show. Default ${DEFAULT_HEAD_LIMIT}.`,
      },
      offset: { type: 'integer', minimum: 0, description: 'Results to skip. Default 0.' },
    },
    required: ['pattern'],
    traits: { ...READING_TRAITS, timeout_seconds: 120 },
    async run(input, context) {
      const { pattern, path = '.', glob = '', case_insensitive: ignoreCase = false } = input;
      const { output_mode = 'content', offset = 0, head_limit = DEFAULT_HEAD_LIMIT } = input;
      const root = await confine(path, 'read', rulesOf(options, context));
      if (root.stats === undefined) throw await missing(root);
      const query: GrepQuery = {
        root: root.real,
        project: await realpath(context.projectPath),
        isFile: root.stats.isFile(),
        pattern,
        ignoreCase,
        expression: compilePattern(pattern, ignoreCase),
        accepts: fileFilter(glob),
        signal: context.signal,
      };
      const program = options.ripgrep === false ? undefined : ripgrepPath(options.env['PATH']);
      const environment = { projectPath: query.project, threadId: context.threadId };
      const found =
        program === undefined
          ? await searchFiles(query)
          : await searchWithRipgrep(query, program, childEnvironment(options.env, environment));
      if (context.signal.aborted)
        return errorOutput('The search was cancelled.', { code: 'cancelled' });
      return present(found, output_mode, offset, head_limit);
    },
  });
}

function compilePattern(pattern: string, ignoreCase: boolean): RE2JS {
  try {
    return RE2JS.compile(pattern, ignoreCase ? RE2JS.CASE_INSENSITIVE : 0);
  } catch (error) {
    throw new RyeError(
      'pattern_invalid',
      `${JSON.stringify(pattern)} is not a pattern: ${messageOf(error)}`,
      {
        hint: 'RE2 syntax: no look-around, no back-references; escape literal ( [ { . with a backslash.',
      },
    );
  }
}

/** Matches a glob without a slash against the file name, others against the path below the searched folder. */
function fileFilter(glob: string): (relativePath: string) => boolean {
  if (glob === '') return () => true;
  const matches = compileGlob(glob);
  if (glob.includes('/')) return matches;
  return (path) => matches(path.slice(path.lastIndexOf('/') + 1));
}

function present(
  found: readonly GrepMatch[],
  mode: 'content' | 'files' | 'count',
  offset: number,
  limit: number,
): ToolOutput {
  const perFile = new Map<string, number>();
  for (const { path } of found) perFile.set(path, (perFile.get(path) ?? 0) + 1);
  const all =
    mode === 'content'
      ? found.map(({ path, line, text: shown }) => `${printable(path)}:${line}:${shown}`)
      : [...perFile].map(([path, count]) =>
          mode === 'count' ? `${printable(path)}:${count}` : printable(path),
        );
  const capped = found.length >= MAX_MATCHES;
  const lines = all.slice(offset, offset + limit);
  const end = offset + lines.length;
  const truncated = end < all.length || capped;
  const data = {
    matches: found.slice(...(mode === 'content' ? [offset, offset + limit] : [0, 0])),
    count: found.length,
    files: perFile.size,
    truncated,
    ...(mode === 'content' ? {} : { paths: [...perFile.keys()].slice(offset, offset + limit) }),
  };
  if (found.length === 0) return textOutput('No matches.', data);
  if (lines.length === 0) {
    return errorOutput(`offset ${offset} is past the end: there are ${all.length} results.`, {
      code: 'invalid_input',
    });
  }
  if (truncated) {
    const total = capped ? `the first ${all.length}` : `${all.length}`;
    const next =
      end < all.length ? `continue with offset=${end}` : 'narrow the pattern or the path';
    lines.push(`(results ${offset + 1}-${end} of ${total} shown; ${next})`);
  }
  return textOutput(lines.join('\n'), data);
}

/** Matching lines that one call collects and counts. */
const MAX_MATCHES = 10_000;
/** Maximum characters of a line to search. */
const MAX_LINE_BYTES = 1024 * 1024;
/** Maximum characters of a line to show. */
const SHOWN_CHARACTERS = 500;

interface GrepQuery {
  /** Real path of the folder or file. */
  readonly root: string;
  /** Real path of the project. */
  readonly project: string;
  readonly isFile: boolean;
  readonly pattern: string;
  readonly ignoreCase: boolean;
  readonly expression: RE2JS;
  /** Returns true if a file is to be searched, by its path below the root. */
  readonly accepts: (relativePath: string) => boolean;
  readonly signal: AbortSignal;
}

/** One matching line, with its path as the model sees it. */
type GrepMatch = { readonly path: string; readonly line: number; readonly text: string };

/** The built-in engine: the same dialect and order as ripgrep's, one file at a time, linear in the text. */
async function searchFiles(query: GrepQuery): Promise<readonly GrepMatch[]> {
  const matches: GrepMatch[] = [];
  for await (const file of candidates(query)) {
    if (query.signal.aborted || matches.length >= MAX_MATCHES) break;
    await searchFile(file, query, matches);
  }
  return matches;
}

async function* candidates(query: GrepQuery): AsyncGenerator<string, void> {
  if (query.isFile) {
    if (query.accepts(query.root.slice(query.root.lastIndexOf('/') + 1))) yield query.root;
    return;
  }
  for await (const file of walkFiles(query)) {
    if (query.accepts(file.relative)) yield file.real;
  }
}

async function searchFile(real: string, query: GrepQuery, matches: GrepMatch[]): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(real, flags).catch(() => undefined);
  if (handle === undefined) return;
  try {
    if (!(await handle.stat()).isFile() || (await startsBinary(handle))) return;
    const path = shownPath(real, query.project);
    for await (const { number, bytes } of readLines(handle, 1, MAX_LINE_BYTES)) {
      // A NUL byte makes the rest of the file binary.
      if (query.signal.aborted || matches.length >= MAX_MATCHES || bytes.includes(0)) return;
      const text = bytes.toString('utf8').replace(/\r$/, '');
      if (query.expression.test(text)) matches.push({ path, line: number, text: shownLine(text) });
    }
  } catch {
    // An unreadable file is no match, as in grep -s.
  } finally {
    await handle.close();
  }
}

function shownLine(text: string): string {
  return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS)}…`;
}

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
 * Searches with ripgrep: JSON events sorted by path, no configuration file, no ignore files, links not followed. Always
 * passes a path, without which ripgrep would read stdin.
 */
async function searchWithRipgrep(
  query: GrepQuery,
  program: string,
  env: Readonly<Record<string, string>>,
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
    env,
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

/** Splits a stream of JSON lines; `onEvent` returns false to stop. Skips an over-long event. */
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

/** Returns a text of ripgrep: `{text}`, or `{bytes}` in base64 if it is not UTF-8. */
function textOf(value: unknown): string | undefined {
  if (!isRecord(value)) return undefined;
  if (typeof value['text'] === 'string') return value['text'];
  return typeof value['bytes'] === 'string'
    ? Buffer.from(value['bytes'], 'base64').toString('utf8')
    : undefined;
}
