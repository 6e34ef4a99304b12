import { accessSync, constants } from 'node:fs';
import { open, realpath } from 'node:fs/promises';
import { delimiter, isAbsolute, join, sep } from 'node:path';
import { RE2JS } from 're2js';
import { messageOf, RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { headChars } from '../../core/text.ts';
import { missing, readLines, startsBinary } from '../files.ts';
import { compileGlob } from '../glob-pattern.ts';
import { confine, type PathRules, shownPath } from '../paths.ts';
import { childEnvironment, runProcess } from '../process.ts';
import {
  builtinTool,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { IGNORED_FOLDERS, walkFiles } from '../walk.ts';
import { printable } from './ls.ts';
import {
  type BuiltinOptions,
  IGNORED_PROPERTY,
  PATH_PROPERTY,
  rulesOf,
  skippedNote,
  tooLarge,
} from './options.ts';

const DEFAULT_HEAD_LIMIT = 250;

/**
 * `rye/file-system/grep` finds lines that match a regular expression. `data`: `matches` (`path`, `line`, `text`; the page
 * from `offset`), `count` (all matching lines), `files` (number of files with a match), `truncated`.
 */
export function createGrepTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/grep',
    description:
      'Searches file contents by a regular expression (RE2 syntax, line by line) and returns path:line:text. Skips files that .gitignore names, .git, node_modules, .ai/state, binary files and the exports of earlier threads (give path .ai/knowledge/agent/threads to search those).',
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
      include_ignored: IGNORED_PROPERTY,
    },
    required: ['pattern'],
    traits: { ...READING_TRAITS, timeout_seconds: 120 },
    async run(input, context) {
      const { pattern, path = '.', glob = '', case_insensitive: ignoreCase = false } = input;
      const { output_mode = 'content', offset = 0, head_limit: asked } = input;
      const { include_ignored: isAll = false } = input;
      let skipped = 0;
      const limit = asked ?? (options.whole ? MAX_MATCHES : DEFAULT_HEAD_LIMIT);
      const root = await confine(path, 'read', rulesOf(options, context));
      if (root.stats === undefined) throw await missing(root);
      const query: GrepQuery = {
        root: root.real,
        project: await realpath(context.projectPath),
        denies: options.denies,
        isFile: root.stats.isFile(),
        ignoreCase,
        expression: compilePattern(pattern, ignoreCase),
        accepts: fileFilter(glob),
        signal: context.signal,
        onIgnored: isAll ? undefined : () => void (skipped += 1),
      };
      const found = await searchFiles(query, await filesWith(query, pattern, options, context));
      if (context.signal.aborted)
        return errorOutput('The search was cancelled.', { code: 'cancelled' });
      if (options.whole && asked === undefined && found.length >= MAX_MATCHES) {
        return tooLarge(
          `${MAX_MATCHES} lines match, or more`,
          'Narrow the pattern or the path, or set head_limit.',
        );
      }
      return present(found, { mode: output_mode, offset, limit, skipped });
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

interface Page {
  readonly mode: 'content' | 'files' | 'count';
  readonly offset: number;
  readonly limit: number;
  /** Number of files and folders that were not searched because git ignores them. */
  readonly skipped: number;
}

function present(found: readonly GrepMatch[], { mode, offset, limit, skipped }: Page): ToolOutput {
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
  if (found.length === 0) return textOutput(`No matches.${skippedNote(skipped)}`, data);
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
  readonly denies: BuiltinOptions['denies'];
  readonly isFile: boolean;
  readonly ignoreCase: boolean;
  readonly expression: RE2JS;
  /** Returns true if a file is to be searched, by its path below the root. */
  readonly accepts: (relativePath: string) => boolean;
  readonly signal: AbortSignal;
  readonly onIgnored: (() => void) | undefined;
}

/** One matching line, with its path as the model sees it. */
type GrepMatch = { readonly path: string; readonly line: number; readonly text: string };

/** Searches one file at a time, linear in the text; `among`: the only files that can match. */
async function searchFiles(
  query: GrepQuery,
  among: ReadonlySet<string> | undefined,
): Promise<readonly GrepMatch[]> {
  const matches: GrepMatch[] = [];
  for await (const file of candidates(query)) {
    if (among && !among.has(file)) continue;
    if (query.signal.aborted || matches.length >= MAX_MATCHES) break;
    await searchFile(file, query, matches);
  }
  return matches;
}

/** Yields the real path of each file that a search with this input would open. */
export async function* searchedFiles(
  { path, glob, include_ignored: isAll = false }: JsonObject,
  rules: PathRules,
): AsyncGenerator<string, void> {
  const root = await confine(typeof path === 'string' ? path : '.', 'read', rules);
  if (root.stats === undefined) return;
  yield* candidates({
    root: root.real,
    project: root.project,
    denies: rules.denies,
    isFile: root.stats.isFile(),
    accepts: fileFilter(typeof glob === 'string' ? glob : ''),
    signal: new AbortController().signal,
    onIgnored: isAll === true ? undefined : () => undefined,
  });
}

async function* candidates(
  query: Omit<GrepQuery, 'ignoreCase' | 'expression'>,
): AsyncGenerator<string, void> {
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
  return text.length <= SHOWN_CHARACTERS ? text : `${headChars(text, SHOWN_CHARACTERS)}…`;
}

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

const TIMEOUT_MS = 110_000;
/** Shorter ones are in nearly every file. */
const MIN_LITERAL = 2;
/** Parts of a pattern: an escape, a class, the begin of a group, its end, a repetition, any other character. */
const PART =
  /\\[^]|\[\^?\]?(?:\\[^]|\[:\^?\w+:\]|[^\]\\])*\]|\((?:\?(?:P?<\w+>|:))?|\)|[*?]|\{\d*,?\d*\}|\+|[^]/gu;

/**
 * Returns the longest text that each match of a pattern contains, in either case if case is ignored. Undefined if there is
 * none, or if the pattern has parts that this does not read.
 */
export function literalOf(pattern: string): string | undefined {
  // flags change how the rest is read, and \Q quotes it
  if (/\(\?(?!:|P?<\w+>)|\\[QpPxCA-Z0-9]/.test(pattern)) return undefined;
  let depth = 0;
  let run = '';
  let longest = '';
  const end = (): void => {
    if (run.length > longest.length) longest = run;
    run = '';
  };
  for (const [part] of pattern.matchAll(PART)) {
    const isEscaped = /^\\[!-/:-@[-`{-~]$/.test(part);
    const isPlain = /^[\w "!#%&',\-/:;<=>@_`~]$/.test(part);
    if (part === '|' && depth === 0) return undefined;
    if (depth === 0 && (isEscaped || isPlain)) {
      run += part.at(-1);
      continue;
    }
    // what comes before it may be absent
    if (/^(?:[*?]|\{.+\})$/.test(part)) run = run.slice(0, -1);
    end();
    if (part.startsWith('(')) depth += 1;
    if (part === ')') depth -= 1;
  }
  end();
  return depth === 0 && longest.length >= MIN_LITERAL ? longest : undefined;
}

/**
 * Asks ripgrep for the files that contain a text of the pattern, so that few have to be searched: its dialect, its encodings
 * and its order differ from ours, and between its versions. Undefined if all have to be searched.
 */
async function filesWith(
  { root, project, isFile, ignoreCase, signal }: GrepQuery,
  pattern: string,
  { ripgrep = true, env }: BuiltinOptions,
  { threadId }: ToolContext,
): Promise<ReadonlySet<string> | undefined> {
  const program = ripgrep && !isFile ? ripgrepPath(env['PATH']) : undefined;
  const literal = literalOf(pattern);
  if (program === undefined || literal === undefined) return undefined;
  const ignored = [...IGNORED_FOLDERS].map((name) => `--glob=!**/${name}/**`);
  const chunks: Buffer[] = [];
  const result = await runProcess({
    command: program,
    args: [
      '--files-with-matches',
      '--null',
      '--fixed-strings',
      '--text',
      '--encoding=none',
      '--no-config',
      '--no-ignore',
      '--hidden',
      '--no-messages',
      ignoreCase ? '--ignore-case' : '--case-sensitive',
      ...ignored,
      `--regexp=${literal}`,
      '--',
      `.${sep}`,
    ],
    cwd: root,
    env: childEnvironment(env, { projectPath: project, threadId }),
    timeoutMs: TIMEOUT_MS,
    signal,
    onStdout: (chunk) => {
      chunks.push(chunk);
      return true;
    },
    onStderr: () => true,
  });
  // 1: no file has it; 2: something could not be read, or an option is unknown to this version
  if (result.exitCode !== 0 && result.exitCode !== 1) return undefined;
  const names = Buffer.concat(chunks).toString('utf8').split('\0');
  return new Set(names.flatMap((name) => (name === '' ? [] : [join(root, name)])));
}
