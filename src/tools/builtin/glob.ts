import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { missing } from '../files.ts';
import { compileGlob } from '../glob-pattern.ts';
import { confine, shownPath, walkFiles } from '../paths.ts';
import {
  errorOutput,
  guarded,
  integerArgument,
  objectSchema,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textArgument,
  textOutput,
} from '../tool.ts';
import { printable } from './ls.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

const DEFAULT_LIMIT = 1000;
/** Files that one call collects and counts. */
const MAX_FILES = 100_000;

/**
 * `rye/file-system/glob`: files whose path matches. `data`: `paths` (relative to the project, sorted, at most
 * `limit`), `count` (all matches), `truncated`.
 */
export function createGlobTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/glob',
    description:
      'Finds files by a glob pattern such as src/**/*.ts, sorted by path. Skips .git, node_modules, .ai/state and the exports of earlier threads (give path .ai/knowledge/agent/threads for those); does not follow links.',
    inputSchema: objectSchema(
      {
        pattern: { type: 'string', description: 'Pattern relative to path: * ? ** [a-z] {a,b}.' },
        path: { ...PATH_PROPERTY, description: 'Folder to search. Default: the project.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 10_000,
          description: `Default ${DEFAULT_LIMIT}.`,
        },
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
    execute: (input, context) => guarded(() => find(input, context, options)),
  };
}

async function find(
  input: JsonObject,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const matches = compileGlob(textArgument(input, 'pattern'));
  const path = await confine(textArgument(input, 'path', '.'), 'read', rulesOf(options, context));
  if (path.stats === undefined) throw await missing(path);
  if (!path.stats.isDirectory()) {
    throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a file, not a folder`);
  }
  const project = await realpath(context.projectPath);
  const limit = integerArgument(input, 'limit', DEFAULT_LIMIT);
  const paths: string[] = [];
  let count = 0;
  for await (const file of walkFiles({ root: path.real, project, signal: context.signal })) {
    if (!matches(file.relative)) continue;
    count += 1;
    if (paths.length < limit) paths.push(shownPath(join(path.real, file.relative), project));
    if (count >= MAX_FILES) break;
  }
  if (context.signal.aborted)
    return errorOutput('The search was cancelled.', { code: 'cancelled' });
  const truncated = count > paths.length || count >= MAX_FILES;
  const lines = paths.map(printable);
  if (truncated)
    lines.push(`(${paths.length} of ${count} files shown; narrow the pattern or raise limit)`);
  return textOutput(count === 0 ? 'No files match.' : lines.join('\n'), {
    paths,
    count,
    truncated,
  });
}
