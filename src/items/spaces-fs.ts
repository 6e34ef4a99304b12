import {
  closeSync,
  constants,
  type Dirent,
  fstatSync,
  lstatSync,
  openSync,
  readdirSync,
  readSync,
  realpathSync,
  type Stats,
} from 'node:fs';
import { basename, dirname, extname, join, relative, sep } from 'node:path';
import { type ErrorCode, RyeError, systemCodeOf } from '../core/errors.ts';
import { assertItemId, itemIdProblem, type SignableType, SPACES, type Space } from '../core/ids.ts';
import { didYouMean } from '../core/text.ts';

const MAX_ITEM_BYTES = 4 * 1024 * 1024;

interface TypeLayout {
  /** Folder below `.ai`. */
  readonly folder: string;
  readonly extensions: readonly string[];
  /** Every item is a folder that holds this file. */
  readonly entry?: string;
  readonly malformed: ErrorCode;
}

const LAYOUT: Readonly<Record<SignableType, TypeLayout>> = {
  directive: { folder: 'directives', extensions: ['.md'], malformed: 'directive_malformed' },
  tool: {
    folder: 'tools',
    extensions: [
      '.js',
      '.mjs',
      '.cjs',
      '.ts',
      '.py',
      '.sh',
      '.bash',
      '.rb',
      '.pl',
      '.yaml',
      '.yml',
      '.json',
      '.toml',
    ],
    malformed: 'tool_malformed',
  },
  knowledge: {
    folder: 'knowledge',
    extensions: ['.md', '.yaml', '.yml'],
    malformed: 'knowledge_malformed',
  },
  rule: { folder: 'rules', extensions: ['.md'], malformed: 'rule_malformed' },
  skill: { folder: 'skills', extensions: ['.md'], entry: 'SKILL.md', malformed: 'skill_malformed' },
  config: { folder: 'config', extensions: ['.yaml', '.yml'], malformed: 'config_invalid' },
};

/** Folders that package managers and interpreters leave inside of tool folders. */
const NOT_ITEMS = new Set(['node_modules', '__pycache__']);

/** A file that stands for an item, not read yet. */
export interface ItemPath {
  readonly type: SignableType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  /** With its dot. */
  readonly extension: string;
}

/** An item's file. `bytes` were read once, from the descriptor that was checked; `text` is their UTF-8. */
export interface FoundFile extends ItemPath {
  readonly bytes: Uint8Array;
  readonly text: string;
  /** The same id in spaces that come later, and so are not used. */
  readonly shadows: readonly { readonly space: Space; readonly path: string }[];
}

/** One row of a listing; `shadowedBy` is the space whose item of the same id is used instead. */
export interface ListedItem extends ItemPath {
  readonly shadowedBy: Space | null;
}

export interface Spaces {
  /** The space's `.ai` folder; undefined where the space is the same folder as an earlier one. */
  root(space: Space): string | undefined;
  /**
   * The file of an id, from the first space that has one; undefined when none has. Throws `invalid_item_id`,
   * `duplicate_item`, `path_denied`, `item_too_large` or the type's `…_malformed` (not UTF-8, NUL).
   */
  find(type: SignableType, id: string, options?: FindOptions): FoundFile | undefined;
  /** All items of a type, by id and then space; one directory walk for each space. */
  list(type: SignableType, options?: ListOptions): readonly ListedItem[];
}

export interface FindOptions {
  readonly space?: Space;
  /** The very file, where one space may hold the id twice. */
  readonly path?: string;
}

export interface ListOptions {
  readonly space?: Space;
  /** A folder of the type, such as `agent/threads`, that is not walked. */
  readonly without?: string;
}

export interface SpacePaths {
  /** Folders that contain `.ai`. */
  readonly projectPath: string;
  readonly userSpacePath: string;
  readonly systemPath: string;
}

/**
 * Opens the three spaces; reads nothing but their real paths. `folder` holds the items in each of them: other programs
 * keep theirs elsewhere.
 */
export function openSpaces(paths: SpacePaths, folder = '.ai'): Spaces {
  return new DiskSpaces(paths, folder);
}

/** The folder of a type below `.ai`. */
export function itemFolder(type: SignableType): string {
  return LAYOUT[type].folder;
}

/** The error for an id that no space has, with near names. */
export function itemNotFound(type: SignableType, id: string, knownIds: Iterable<string>): RyeError {
  return new RyeError('item_not_found', `there is no ${type} ${id}`, {
    hint:
      didYouMean(id, knownIds) ??
      (type === 'config' ? 'Run: rye config path' : `Run: rye list ${type}`),
    details: { type, id },
  });
}

class DiskSpaces implements Spaces {
  readonly #roots: ReadonlyMap<Space, string>;

  constructor({ projectPath, userSpacePath, systemPath }: SpacePaths, folder: string) {
    const bySpace = { project: projectPath, user: userSpacePath, system: systemPath };
    const roots = new Map<Space, string>();
    const seen = new Set<string>();
    for (const space of SPACES) {
      const root = join(bySpace[space], folder);
      const real = realPathOf(root) ?? root;
      // in the home directory, project and user space are one: its items count once, as the project's
      if (seen.has(real)) continue;
      seen.add(real);
      roots.set(space, root);
    }
    this.#roots = roots;
  }

  root(space: Space): string | undefined {
    return this.#roots.get(space);
  }

  find(type: SignableType, id: string, options: FindOptions = {}): FoundFile | undefined {
    assertItemId(id, type);
    const spaces = options.space === undefined ? SPACES : [options.space];
    let first: ItemPath | undefined;
    const shadows: { space: Space; path: string }[] = [];
    for (const space of spaces) {
      const candidates = this.#candidates(type, id, space);
      const [candidate, other] = candidates;
      if (candidate === undefined) continue;
      if (first !== undefined) {
        shadows.push({ space, path: candidate.path });
        continue;
      }
      if (other !== undefined) throw duplicate(candidate, other);
      first = candidate;
    }
    if (first === undefined) return undefined;
    const root = this.#roots.get(first.space) ?? '';
    const bytes = readInside(first, join(realPathOf(root) ?? root, LAYOUT[type].folder));
    return { ...first, bytes, text: decode(bytes, first), shadows };
  }

  list(type: SignableType, options: ListOptions = {}): readonly ListedItem[] {
    const firstSpace = new Map<string, Space>();
    const listed: ListedItem[] = [];
    for (const space of SPACES) {
      for (const item of this.#walk(type, space, options.without)) {
        const winner = firstSpace.get(item.id) ?? space;
        firstSpace.set(item.id, winner);
        listed.push({ ...item, shadowedBy: winner === space ? null : winner });
      }
    }
    const wanted =
      options.space === undefined ? listed : listed.filter(({ space }) => space === options.space);
    return wanted.toSorted(
      (a, b) =>
        compareText(a.id, b.id) ||
        SPACES.indexOf(a.space) - SPACES.indexOf(b.space) ||
        compareText(a.path, b.path),
    );
  }

  /** Files that stand for the id in one space; a few `lstat`s, whatever the size of the folder. */
  #candidates(type: SignableType, id: string, space: Space): ItemPath[] {
    const root = this.#roots.get(space);
    const { folder, extensions, entry } = LAYOUT[type];
    if (root === undefined || isReserved(type, id)) return [];
    return extensions
      .map((extension) => ({
        type,
        id,
        space,
        extension,
        path:
          entry === undefined
            ? join(root, folder, `${id}${extension}`)
            : join(root, folder, id, entry),
      }))
      .filter(({ path }) => isThere(path));
  }

  #walk(type: SignableType, space: Space, without: string | undefined): ItemPath[] {
    const root = this.#roots.get(space);
    if (root === undefined) return [];
    const { folder } = LAYOUT[type];
    const top = join(root, folder);
    const items: ItemPath[] = [];
    const skipped = without === undefined ? undefined : join(top, without);
    for (const dirent of readTree(top, skipped)) {
      const path = join(dirent.parentPath, dirent.name);
      const id = idOf(type, relative(top, path).split(sep).join('/'));
      if (id === undefined) continue;
      items.push({ type, id, space, path, extension: extname(path) });
    }
    return items;
  }
}

/** The id that a file below its type's folder stands for, if it stands for any. */
function idOf(type: SignableType, path: string): string | undefined {
  const { extensions, entry } = LAYOUT[type];
  const extension = extname(path);
  if (!extensions.includes(extension)) return undefined;
  if (entry !== undefined && basename(path) !== entry) return undefined;
  const id = entry === undefined ? path.slice(0, -extension.length) : dirname(path);
  if (itemIdProblem(id) !== undefined || isReserved(type, id)) return undefined;
  return id.split('/').some((segment) => NOT_ITEMS.has(segment)) ? undefined : id;
}

/** Keys live below `.ai/config` but are no configuration. */
function isReserved(type: SignableType, id: string): boolean {
  return type === 'config' && id.startsWith('keys/');
}

function isThere(path: string): boolean {
  try {
    const stats = lstatSync(path, { throwIfNoEntry: false });
    return stats !== undefined && !stats.isDirectory();
  } catch (error) {
    if (systemCodeOf(error) === 'ENOTDIR') return false;
    throw denied(path, `it cannot be reached (${systemCodeOf(error) ?? 'unknown error'})`);
  }
}

function readTree(top: string, skipped: string | undefined): readonly Dirent[] {
  const files: Dirent[] = [];
  const folders = [top];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const dirent of readFolder(folder)) {
      if (!dirent.isDirectory()) files.push(dirent);
      else if (join(folder, dirent.name) !== skipped) folders.push(join(folder, dirent.name));
    }
  }
  return files;
}

function readFolder(folder: string): readonly Dirent[] {
  try {
    return readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    const code = systemCodeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw denied(folder, `it cannot be listed (${code ?? 'unknown error'})`);
  }
}

/**
 * Reads a file that must really lie below `folder`. The descriptor is opened first and then compared with what
 * the real path names, so that a link swapped in between is noticed.
 */
function readInside({ path, type, id }: ItemPath, folder: string): Uint8Array {
  const linked = lstatSync(path, { throwIfNoEntry: false });
  if (linked !== undefined && !linked.isSymbolicLink()) assertRegular(linked, path);
  let descriptor: number;
  try {
    // without O_NONBLOCK a FIFO would hang the program
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw denied(path, `it cannot be opened (${systemCodeOf(error) ?? 'unknown error'})`);
  }
  try {
    const stats = fstatSync(descriptor);
    assertRegular(stats, path);
    const real = realPathOf(path);
    const named = real === undefined ? undefined : lstatSync(real, { throwIfNoEntry: false });
    if (real === undefined || named?.ino !== stats.ino || named.dev !== stats.dev) {
      throw denied(path, 'it changed while it was read');
    }
    if (!real.startsWith(folder + sep)) {
      throw denied(path, `it is a symbolic link out of ${folder}`);
    }
    return readAll(descriptor, { path, type, id });
  } finally {
    closeSync(descriptor);
  }
}

function readAll(
  descriptor: number,
  { path, type, id }: Pick<ItemPath, 'path' | 'type' | 'id'>,
): Uint8Array {
  const { size } = fstatSync(descriptor);
  // one byte more than it should have tells a file that grows
  const buffer = Buffer.allocUnsafe(Math.min(size, MAX_ITEM_BYTES) + 1);
  let length = 0;
  while (length < buffer.length) {
    const count = readSync(descriptor, buffer, length, buffer.length - length, null);
    if (count === 0) return buffer.subarray(0, length);
    length += count;
  }
  if (length > MAX_ITEM_BYTES) {
    throw new RyeError('item_too_large', `${type} ${id} is larger than 4 MiB`, {
      location: { path },
      hint: 'Keep data out of items; put it into a file that a tool reads.',
    });
  }
  throw denied(path, 'it changed while it was read');
}

const UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

function decode(bytes: Uint8Array, { path, type, id }: ItemPath): string {
  const nul = bytes.indexOf(0);
  if (nul === -1) {
    try {
      return UTF8.decode(bytes);
    } catch {
      // told below, together with NUL
    }
  }
  throw new RyeError(LAYOUT[type].malformed, `${type} ${id} is not UTF-8 text`, {
    location: nul === -1 ? { path } : { path, line: lineOf(bytes, nul) },
    hint: 'Items are text files; save it as UTF-8.',
  });
}

function lineOf(bytes: Uint8Array, offset: number): number {
  let line = 1;
  for (const byte of bytes.subarray(0, offset)) if (byte === 0x0a) line += 1;
  return line;
}

function assertRegular(stats: Stats, path: string): void {
  if (!stats.isFile()) throw denied(path, 'it is not a regular file');
}

function denied(path: string, why: string): RyeError {
  return new RyeError('path_denied', `${path} is refused: ${why}`, {
    hint: 'Items are regular files inside of their space.',
    details: { path },
  });
}

function duplicate(one: ItemPath, other: ItemPath): RyeError {
  return new RyeError(
    'duplicate_item',
    `two files stand for ${one.type} ${one.id}: ${one.path} and ${other.path}`,
    {
      hint: 'Rename or remove one of them.',
      details: { type: one.type, id: one.id, paths: [one.path, other.path] },
    },
  );
}

function realPathOf(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}

function compareText(left: string, right: string): number {
  if (left === right) return 0;
  return left < right ? -1 : 1;
}
