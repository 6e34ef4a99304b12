import { randomBytes } from 'node:crypto';
import { chmodSync, lstatSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { RyeError } from '../../../kernel/core/errors.ts';
import { makeFolders } from '../../../kernel/disk/folders.ts';
import { moveFolder, UNFINISHED_FILE, writeWhole } from '../../../kernel/disk/whole-file.ts';
import type { BundleFile } from './tar.ts';

const FOLDER = '.ai';
/** Folders and files below `.ai` that a thread itself writes. */
const WRITTEN: ReadonlySet<string> = new Set(['state', 'knowledge/agent/threads', '.gitignore']);
const MODE = { plain: 0o644, executable: 0o755 };

/**
 * Writes the files of a verified bundle below `.ai` of a folder that has no other items. The folder gets all files at once; of
 * several processes one writes. If it has them already, each is compared and a damaged one is replaced. Throws `path_denied`
 * for a link, and `already_exists` for items that are not in the bundle.
 */
export function materialize(files: readonly BundleFile[], folder: string): void {
  makeFolders(folder);
  const target = join(folder, FOLDER);
  if (lstatSync(target, { throwIfNoEntry: false }) === undefined && writeAll(files, target)) return;
  assertOnly(files, target);
  for (const file of files) {
    const path = join(target, file.path);
    assertNoLink(target, file.path);
    if (!holds(path, file)) write(path, file, 'all');
  }
}

/** Returns false if another process was faster. */
function writeAll(files: readonly BundleFile[], target: string): boolean {
  const temporary = `${target}-${randomBytes(8).toString('hex')}.tmp`;
  try {
    makeFolders(temporary, 0o700);
    for (const file of files) write(join(temporary, file.path), file, 'content');
    chmodSync(temporary, MODE.executable);
    return moveFolder(temporary, target);
  } finally {
    rmSync(temporary, { recursive: true, force: true });
  }
}

function write(path: string, { bytes, isExecutable }: BundleFile, sync: 'all' | 'content'): void {
  makeFolders(dirname(path));
  const mode = isExecutable ? MODE.executable : MODE.plain;
  writeWhole(path, bytes, { follow: false, mode, sync });
}

function holds(path: string, { bytes, isExecutable }: BundleFile): boolean {
  const stats = lstatSync(path, { throwIfNoEntry: false });
  return (
    stats?.isFile() === true &&
    stats.size === bytes.length &&
    ((stats.mode & 0o111) !== 0) === isExecutable &&
    readFileSync(path).equals(bytes)
  );
}

/** Refuses a file that a thread could load, and that is not in the bundle. */
function assertOnly(files: readonly BundleFile[], target: string): void {
  assertNoLink(dirname(target), FOLDER);
  const known = new Set(files.map(({ path }) => path));
  const other = filesBelow(target).find((path) => !known.has(path));
  if (other === undefined) return;
  throw new RyeError('already_exists', `${join(target, other)} is not in the bundle`, {
    hint: 'Use another folder for each bundle, or remove that folder.',
    location: { path: join(target, other) },
  });
}

/**
 * Paths of all entries that are no folders, except what threads write, and what a process that was killed, or that writes the
 * same bundle now, has not finished: nothing loads that. Follows no link.
 */
function filesBelow(target: string, below = ''): readonly string[] {
  return readdirSync(join(target, below), { withFileTypes: true }).flatMap((entry) => {
    const path = below === '' ? entry.name : `${below}/${entry.name}`;
    if (WRITTEN.has(path)) return [];
    if (entry.isDirectory()) return filesBelow(target, path);
    return entry.isFile() && UNFINISHED_FILE.test(entry.name) ? [] : [path];
  });
}

function assertNoLink(root: string, path: string): void {
  let current = root;
  for (const part of relative(root, join(root, path)).split(sep)) {
    current = join(current, part);
    if (lstatSync(current, { throwIfNoEntry: false })?.isSymbolicLink() !== true) continue;
    throw new RyeError('path_denied', `${current} is a symbolic link`, {
      hint: 'Remove the link; rye makes its own files and folders.',
      location: { path: current },
    });
  }
}
