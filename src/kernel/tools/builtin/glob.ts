import { join } from 'node:path';
import { compileGlob } from '../glob-pattern.ts';
import { type ConfinedPath, shownPath } from '../paths.ts';
import {
  builtinTool,
  errorOutput,
  READING_TRAITS,
  type Tool,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { walkFiles } from '../walk.ts';
import { confineFolder, printable } from './ls.ts';
import {
  type BuiltinOptions,
  IGNORED_PROPERTY,
  PATH_PROPERTY,
  rulesOf,
  skippedNote,
  tooLarge,
} from './options.ts';

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
      'Finds files by a glob pattern such as src/**/*.ts, sorted by path. Skips files that .gitignore names, .git, node_modules, .ai/state and the exports of earlier threads (give path .ai/knowledge/agent/threads for those); does not follow links.',
    properties: {
      pattern: { type: 'string', description: 'Pattern relative to path: * ? ** [a-z] {a,b}.' },
      path: { ...PATH_PROPERTY, description: 'Folder to search. Default: the project.' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 10_000,
        description: `Default ${DEFAULT_LIMIT}.`,
      },
      include_ignored: IGNORED_PROPERTY,
    },
    required: ['pattern'],
    traits: { ...READING_TRAITS, timeout_seconds: 120 },
    async run({ pattern, path = '.', limit: asked, include_ignored: isAll = false }, context) {
      const limit = asked ?? (options.whole ? MAX_FILES : DEFAULT_LIMIT);
      const matches = compileGlob(pattern);
      const folder = await confineFolder(path, rulesOf(options, context));
      const { signal } = context;
      const found = await findFiles({
        folder,
        matches,
        limit,
        isAll,
        signal,
        denies: options.denies,
      });
      if (signal.aborted) return errorOutput('The search was cancelled.', { code: 'cancelled' });
      if (found.truncated && options.whole && asked === undefined) {
        return tooLarge(
          `more than ${MAX_FILES} files match`,
          'Narrow the pattern, or set a limit.',
        );
      }
      return present(found);
    },
  });
}

interface FoundFiles {
  readonly paths: readonly string[];
  readonly count: number;
  readonly truncated: boolean;
  /** Number of files and folders that were not searched because git ignores them. */
  readonly skipped: number;
}

async function findFiles({
  folder,
  matches,
  limit,
  isAll,
  signal,
  denies,
}: {
  readonly folder: ConfinedPath;
  readonly matches: (path: string) => boolean;
  readonly limit: number;
  readonly isAll: boolean;
  readonly signal: AbortSignal;
  readonly denies: BuiltinOptions['denies'];
}): Promise<FoundFiles> {
  const { real: root, project } = folder;
  const paths: string[] = [];
  let [count, skipped] = [0, 0];
  const onIgnored = isAll ? undefined : () => void (skipped += 1);
  for await (const file of walkFiles({ root, project, signal, onIgnored, denies })) {
    if (!matches(file.relative)) continue;
    count += 1;
    if (paths.length < limit) paths.push(shownPath(join(root, file.relative), project));
    if (count >= MAX_FILES) break;
  }
  return { paths, count, truncated: count > paths.length || count >= MAX_FILES, skipped };
}

function present({ skipped, ...found }: FoundFiles): ToolOutput {
  const { paths, count, truncated } = found;
  if (count === 0) return textOutput(`No files match.${skippedNote(skipped)}`, { ...found });
  const lines = paths.map(printable);
  if (truncated)
    lines.push(`(${paths.length} of ${count} files shown; narrow the pattern or raise limit)`);
  return textOutput(lines.join('\n'), { ...found });
}
