import { type Dirent, lstatSync, opendirSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { missing } from '../files.ts';
import { GitIgnore } from '../git-ignore.ts';
import { type ConfinedPath, confine, type PathRules } from '../paths.ts';
import { builtinTool, READING_TRAITS, type Tool, textOutput } from '../tool.ts';
import {
  type BuiltinOptions,
  IGNORED_PROPERTY,
  PATH_PROPERTY,
  rulesOf,
  tooLarge,
} from './options.ts';

const DEFAULT_LIMIT = 1000;
/** Maximum names that one call reads. */
const MAX_NAMES = 50_000;

/**
 * `rye/file-system/ls` lists one folder. `data`: `path`, `entries` (`name`, `type` of `file`, `folder`, `link` or
 * `other`, `bytes` of files), `count` (all of the folder, without what git ignores), `truncated`.
 */
export function createLsTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/ls',
    description:
      'Lists a folder: names sorted, folders with a trailing slash, files with their size. Skips what .gitignore names.',
    properties: {
      path: { ...PATH_PROPERTY, description: 'Folder to list. Default: the project.' },
      limit: {
        type: 'integer',
        minimum: 1,
        maximum: 10_000,
        description: `Default ${DEFAULT_LIMIT}.`,
      },
      include_ignored: IGNORED_PROPERTY,
    },
    required: [],
    traits: READING_TRAITS,
    async run({ path = '.', limit: asked, include_ignored: isAll = false }, context) {
      const limit = asked ?? (options.whole ? MAX_NAMES : DEFAULT_LIMIT);
      const { real, project, shown } = await confineFolder(path, rulesOf(options, context));
      const { found: listed, complete } = entriesOf(real);
      const all = listed.filter(({ name }) => options.denies?.(join(real, name), project) !== true);
      const found = isAll ? all : withoutIgnored(all, real, project);
      const hidden = all.length - found.length;
      const entries = found.slice(0, limit).map((entry) => describe(real, entry));
      const truncated = !complete || found.length > limit;
      if (truncated && options.whole && asked === undefined) {
        return tooLarge(`${shown} has more than ${MAX_NAMES} entries`, 'Set a limit.');
      }
      const lines = entries.map(({ line }) => line);
      if (truncated) {
        const count = complete ? `${found.length}` : `more than ${MAX_NAMES}`;
        lines.push(
          `(${entries.length} of ${count} entries shown; raise limit or use rye_file_system_glob)`,
        );
      }
      if (hidden > 0) lines.push(`(${hidden} that git ignores hidden; set include_ignored)`);
      return textOutput(lines.length === 0 ? `(${shown} is empty)` : lines.join('\n'), {
        path: shown,
        entries: entries.map(({ entry }) => entry),
        count: found.length,
        truncated,
      });
    },
  });
}

function withoutIgnored(all: readonly Dirent[], folder: string, project: string): Dirent[] {
  const names = new Set(all.map(({ name }) => name));
  const rules = GitIgnore.of(folder, project).inside(folder, names);
  return all.filter((entry) => !rules.ignores(join(folder, entry.name), entry.isDirectory()));
}

/** Resolves the path of a folder that may be read. */
export async function confineFolder(path: string, rules: PathRules): Promise<ConfinedPath> {
  const confined = await confine(path, 'read', rules);
  if (confined.stats === undefined) throw await missing(confined);
  if (confined.stats.isDirectory()) return confined;
  throw new RyeError('invalid_input', `${JSON.stringify(confined.shown)} is a file, not a folder`, {
    hint: 'Read it with rye_file_system_read.',
  });
}

function entriesOf(folder: string): { found: Dirent[]; complete: boolean } {
  const found: Dirent[] = [];
  let complete = true;
  const opened = opendirSync(folder);
  try {
    for (let entry = opened.readSync(); entry; entry = opened.readSync()) {
      complete = found.length < MAX_NAMES;
      if (!complete) break;
      found.push(entry);
    }
  } finally {
    opened.closeSync();
  }
  return { found: found.toSorted((a, b) => (a.name < b.name ? -1 : 1)), complete };
}

function describe(folder: string, found: Dirent): { entry: JsonObject; line: string } {
  const { name } = found;
  const shown = printable(name);
  // nothing but its name is shown of a folder
  if (found.isDirectory()) return { entry: { name, type: 'folder' }, line: `${shown}/` };
  const real = join(folder, name);
  const stats = ifReadable(() => lstatSync(real));
  if (stats?.isDirectory() === true) {
    return { entry: { name, type: 'folder' }, line: `${shown}/` };
  }
  if (stats?.isFile() === true) {
    return { entry: { name, type: 'file', bytes: stats.size }, line: `${shown}\t${stats.size}` };
  }
  if (stats?.isSymbolicLink() === true) {
    const target = ifReadable(() => readlinkSync(real)) ?? '?';
    return { entry: { name, type: 'link' }, line: `${shown} -> ${printable(target)}` };
  }
  return { entry: { name, type: 'other' }, line: shown };
}

function ifReadable<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch {
    return undefined;
  }
}

/** Returns a file name on one line: quotes names with control characters. */
export function printable(name: string): string {
  return /\p{Cc}/u.test(name) ? JSON.stringify(name) : name;
}
