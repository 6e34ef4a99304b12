import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../../core/errors.ts';
import type { SignableType } from '../../core/ids.ts';

/** An item's file below a tree of Rye OS. */
export interface TreeFile {
  readonly type: SignableType;
  readonly id: string;
  readonly extension: string;
  /** Relative to the tree, with forward slashes. */
  readonly path: string;
  /** The `.ai` folder that it is in, relative to the tree. */
  readonly root: string;
  readonly text: string;
}

const TYPES: readonly (readonly [
  folder: string,
  type: SignableType,
  extensions: readonly string[],
])[] = [
  ['directives', 'directive', ['.md']],
  [
    'tools',
    'tool',
    ['.py', '.yaml', '.yml', '.json', '.js', '.ts', '.mjs', '.cjs', '.sh', '.bash'],
  ],
  ['knowledge', 'knowledge', ['.md']],
  ['config', 'config', ['.yaml', '.yml']],
];
const SKIPPED = new Set([
  'node_modules',
  '.git',
  '.venv',
  '__pycache__',
  'state',
  'cache',
  'bundles',
]);
const MAX_DEPTH = 12;
const MAX_FILES = 20_000;
const MAX_BYTES = 2 * 1024 * 1024;

/** The item files of every `.ai` folder below `dir`, sorted by path. Nothing is written, and no link is followed. */
export function readTree(dir: string): readonly TreeFile[] {
  const roots: string[] = [];
  collectRoots(dir, 0, roots);
  const files = roots.flatMap((root) =>
    TYPES.flatMap(([folder, type, extensions]) =>
      filesBelow(join(root, folder), 0).flatMap((full): TreeFile[] => {
        const extension = extname(full).toLowerCase();
        const text = extensions.includes(extension) ? textOf(full) : undefined;
        if (text === undefined) return [];
        const id = slashed(relative(join(root, folder), full)).slice(0, -extension.length);
        const isExport = type === 'knowledge' && /^agent\/(?:threads|graphs)\//.test(id);
        const isKey = type === 'config' && id.startsWith('keys/');
        if (isExport || isKey) return [];
        return [
          {
            type,
            id,
            extension,
            path: slashed(relative(dir, full)),
            root: slashed(relative(dir, root)),
            text,
          },
        ];
      }),
    ),
  );
  if (files.length > 0) return files.toSorted((a, b) => (a.path < b.path ? -1 : 1));
  throw new RyeError('file_not_found', `${dir} has no items of Rye OS`, {
    hint: 'Name a folder that contains .ai, or one above it.',
  });
}

function collectRoots(folder: string, depth: number, roots: string[]): void {
  for (const entry of entriesOf(folder, depth === 0)) {
    if (!entry.isDirectory() || SKIPPED.has(entry.name)) continue;
    const full = join(folder, entry.name);
    if (entry.name === '.ai') roots.push(full);
    else if (depth < MAX_DEPTH) collectRoots(full, depth + 1, roots);
  }
  if (depth === 0 && folder.endsWith(`${sep}.ai`)) roots.push(folder);
}

function filesBelow(folder: string, depth: number): readonly string[] {
  if (depth > MAX_DEPTH) return [];
  return entriesOf(folder, false).flatMap((entry) => {
    const full = join(folder, entry.name);
    if (entry.isDirectory()) return SKIPPED.has(entry.name) ? [] : filesBelow(full, depth + 1);
    return entry.isFile() ? [full] : [];
  });
}

function entriesOf(folder: string, mustExist: boolean) {
  try {
    return readdirSync(folder, { withFileTypes: true }).slice(0, MAX_FILES);
  } catch (error) {
    if (!mustExist) return [];
    throw new RyeError(
      'file_not_found',
      `${folder} cannot be read (${systemCodeOf(error) ?? 'unknown error'})`,
    );
  }
}

function textOf(path: string): string | undefined {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return stats?.isFile() === true && stats.size <= MAX_BYTES
    ? readFileSync(path, 'utf8').replaceAll('\r\n', '\n')
    : undefined;
}

function slashed(path: string): string {
  return path.split(sep).join('/');
}
