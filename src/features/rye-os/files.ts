import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { extname, join, relative, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../../kernel/core/errors.ts';
import type { SignableType } from '../../kernel/core/ids.ts';

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

const CONTEXT = 3;

/** One file of a patch; `before` undefined: it is new, `after` undefined: it is deleted. */
export interface Change {
  readonly path: string;
  readonly before: string | undefined;
  readonly after: string | undefined;
}

/** A unified diff that `git apply` takes: one hunk for each file, from its first changed line to its last. */
export function unifiedDiff(changes: readonly Change[]): string {
  return changes.map(fileDiff).join('');
}

function fileDiff({ path, before, after }: Change): string {
  const old = linesOf(before);
  const now = linesOf(after);
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head += 1;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old.at(-1 - tail) === now.at(-1 - tail)
  )
    tail += 1;
  const from = Math.max(0, head - CONTEXT);
  const kept = Math.max(0, tail - CONTEXT);
  const removed = old.slice(head, old.length - tail);
  const added = now.slice(head, now.length - tail);
  const lines = [
    ...old.slice(from, head).map((line) => ` ${line}`),
    ...removed.map((line) => `-${line}`),
    ...added.map((line) => `+${line}`),
    ...old.slice(old.length - tail, old.length - kept).map((line) => ` ${line}`),
  ];
  const mode =
    before === undefined
      ? 'new file mode 100644\n'
      : after === undefined
        ? 'deleted file mode 100644\n'
        : '';
  const range = (count: number): string => `${count === 0 ? 0 : from + 1},${count}`;
  return [
    `diff --git a/${path} b/${path}\n${mode}`,
    `--- ${before === undefined ? '/dev/null' : `a/${path}`}\n`,
    `+++ ${after === undefined ? '/dev/null' : `b/${path}`}\n`,
    `@@ -${range(old.length - kept - from)} +${range(now.length - kept - from)} @@\n`,
    ...lines.map((line) =>
      line.endsWith('\n') ? line : `${line}\n\\ No newline at end of file\n`,
    ),
  ].join('');
}

/** Lines with their ends, so that a missing last one is a difference. */
function linesOf(text: string | undefined): readonly string[] {
  return text === undefined || text === '' ? [] : (text.match(/[^\n]*\n|[^\n]+$/g) ?? []);
}
