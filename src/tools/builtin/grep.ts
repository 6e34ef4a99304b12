import { realpath } from 'node:fs/promises';
import { RE2JS } from 're2js';
import { messageOf, RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { flag, integer, objectSchema, text } from '../arguments.ts';
import { missing } from '../files.ts';
import { compileGlob } from '../glob-pattern.ts';
import { guarded } from '../guard.ts';
import { type ConfinedPath, confine } from '../paths.ts';
import type { Tool, ToolContext, ToolOutput } from '../tool.ts';
import { errorOutput, textOutput } from '../tool.ts';
import { type GrepMatch, type GrepQuery, MAX_MATCHES, searchFiles } from './grep-files.ts';
import { ripgrepPath, searchWithRipgrep } from './grep-ripgrep.ts';
import { printable } from './ls.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

const DEFAULT_HEAD_LIMIT = 250;

/**
 * `rye/file-system/grep`: lines that match a regular expression. `data`: `matches` (`path`, `line`, `text`; the
 * page from `offset`), `count` (matching lines in all), `files` (number of files with a match), `truncated`.
 */
export function createGrepTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/grep',
    description:
      'Searches file contents by a regular expression (RE2 syntax, line by line) and returns path:line:text. Skips .git, node_modules, .ai/state, binary files and the exports of earlier threads (give path .ai/knowledge/agent/threads to search those).',
    inputSchema: objectSchema(
      {
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
          description:
            'Matching lines, file names, or number of matches per file. Default content.',
        },
        head_limit: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_MATCHES,
          description: `Results to show. Default ${DEFAULT_HEAD_LIMIT}.`,
        },
        offset: { type: 'integer', minimum: 0, description: 'Results to pass over. Default 0.' },
      },
      ['pattern'],
    ),
    traits: {
      reads_only: true,
      idempotent: true,
      network: false,
      sequential: false,
      timeout_seconds: 120,
    },
    execute: (input, context) => guarded(() => grep(input, context, options)),
  };
}

async function grep(
  input: JsonObject,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const path = await confine(text(input, 'path', '.'), 'read', rulesOf(options, context));
  if (path.stats === undefined) throw await missing(path);
  const query = await queryOf(input, path, context);
  const program = options.ripgrep === false ? undefined : ripgrepPath(options.env['PATH']);
  const found =
    program === undefined
      ? await searchFiles(query)
      : await searchWithRipgrep(query, { program, env: options.env, threadId: context.threadId });
  if (context.signal.aborted)
    return errorOutput('The search was cancelled.', { code: 'cancelled' });
  return present(found, {
    mode: text(input, 'output_mode', 'content'),
    offset: integer(input, 'offset', 0),
    limit: integer(input, 'head_limit', DEFAULT_HEAD_LIMIT),
  });
}

async function queryOf(
  input: JsonObject,
  path: ConfinedPath,
  context: ToolContext,
): Promise<GrepQuery> {
  const project = await realpath(context.projectPath);
  const pattern = text(input, 'pattern');
  const ignoreCase = flag(input, 'case_insensitive');
  return {
    root: path.real,
    project,
    isFile: path.stats?.isFile() === true,
    pattern,
    ignoreCase,
    expression: compilePattern(pattern, ignoreCase),
    accepts: fileFilter(text(input, 'glob')),
    signal: context.signal,
  };
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

/** A glob without a slash judges the file name, one with a slash the path below the searched folder. */
function fileFilter(glob: string): (relativePath: string) => boolean {
  if (glob === '') return () => true;
  const matches = compileGlob(glob);
  if (glob.includes('/')) return matches;
  return (path) => matches(path.slice(path.lastIndexOf('/') + 1));
}

interface Page {
  readonly mode: string;
  readonly offset: number;
  readonly limit: number;
}

function present(found: readonly GrepMatch[], { mode, offset, limit }: Page): ToolOutput {
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
