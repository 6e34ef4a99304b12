import { realpath } from 'node:fs/promises';
import { join } from 'node:path';
import { compileGlob } from '../glob-pattern.ts';
import { shownPath, walkFiles } from '../paths.ts';
import { builtinTool, errorOutput, READING_TRAITS, type Tool, textOutput } from '../tool.ts';
import { confineFolder, printable } from './ls.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

const DEFAULT_LIMIT = 1000;
/** Maximum files that one call collects and counts. */
const MAX_FILES = 100_000;

/**
 * `rye/file-system/glob` finds files whose path matches. `data`: `paths` (relative to the project, sorted, at most
 * `limit`), `count` (all matches), `truncated`.
 */
export function createGlobTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/glob',
    description:
      'Finds files by a glob pattern such as src/**/*.ts, sorted by path. Skips .git, node_modules, .ai/state and the exports of earlier threads (give path .ai/knowledge/agent/threads for those); does not follow links.',
    properties: {
      pattern: { type: 'string', description: 'Pattern relative to path: * ? ** [a-z] {a,b}.' },
      path: { ...PATH_PROPERTY, description: 'Folder to search. Default: the project.' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 10_000,
        description: `Default ${DEFAULT_LIMIT}.`,
      },
    },
    required: ['pattern'],
    traits: { ...READING_TRAITS, timeout_seconds: 120 },
    async run({ pattern, path = '.', limit = DEFAULT_LIMIT }, context) {
      const matches = compileGlob(pattern);
      const folder = await confineFolder(path, rulesOf(options, context));
      const project = await realpath(context.projectPath);
      const paths: string[] = [];
      let count = 0;
      for await (const file of walkFiles({ root: folder.real, project, signal: context.signal })) {
        if (!matches(file.relative)) continue;
        count += 1;
        if (paths.length < limit) paths.push(shownPath(join(folder.real, file.relative), project));
        if (count >= MAX_FILES) break;
      }
      if (context.signal.aborted)
        return errorOutput('The search was cancelled.', { code: 'cancelled' });
      const truncated = count > paths.length || count >= MAX_FILES;
      const lines = paths.map(printable);
      if (truncated)
        lines.push(`(${paths.length} of ${count} files shown; narrow the pattern or raise limit)`);
      const text = count === 0 ? 'No files match.' : lines.join('\n');
      return textOutput(text, { paths, count, truncated });
    },
  });
}
