import { type Dirent, lstatSync, readdirSync } from 'node:fs';
import { basename, dirname, extname, join, sep } from 'node:path';
import { type ErrorCode, RyeError, systemCodeOf } from '../core/errors.ts';
import { assertItemId, itemIdProblem, type SignableType, SPACES, type Space } from '../core/ids.ts';
import { LruMap } from '../core/lru.ts';
import { didYouMean } from '../core/text.ts';
import { resourceError } from '../disk/reasons.ts';
import { decode, denied, readInside, realPathOf } from './read-inside-fs.ts';

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

/** Folders of package managers and interpreters inside tool folders. */
const NOT_ITEMS = new Set(['node_modules', '__pycache__']);

/** The path of an item's file, not yet read. */
export interface ItemPath {
  readonly type: SignableType;
  readonly id: string;
  readonly space: Space;
  readonly path: string;
  /** With its dot. */
  readonly extension: string;
}

/** An item's file. `bytes` were read once from the checked descriptor; `text` is their UTF-8 text. */
export interface FoundFile extends ItemPath {
  readonly bytes: Uint8Array;
  readonly text: string;
  /** Items with the same id in later spaces, which are not used. */
  readonly shadows: readonly { readonly space: Space; readonly path: string }[];
}

/** One row of a listing; `shadowedBy` is the space whose item of the same id is used instead. */
export interface ListedItem extends ItemPath {
  readonly shadowedBy: Space | null;
}

export interface Spaces {
  /** The space of the project's folder: the user's, if both are one folder. */
  readonly own: 'project' | 'user';
  /** True if the project is the clone of rye that runs: its `.ai` has the shipped items and the project's own. */
  readonly isClone: boolean;
  /** True for a path in the system space. */
  isShipped(path: string): boolean;
  /** Returns the space's `.ai` folder; undefined for a project that is the user's folder. */
  root(space: Space): string | undefined;
  /**
   * Reads the file of an id from the first space that has it; undefined if none has. Throws `invalid_item_id`,
   * `duplicate_item`, `path_denied`, `item_too_large` or the type's `…_malformed` (not UTF-8, NUL).
   */
  find(type: SignableType, id: string, options?: FindOptions): FoundFile | undefined;
  /** Lists all items of a type, sorted by id and then space; walks the folder of each space once, up to the wanted one. */
  list(type: SignableType, options?: ListOptions): readonly ListedItem[];
  /** Returns the path of an id's file in one space without reading it; undefined if there is none. */
  locate(type: SignableType, id: string, space: Space): string | undefined;
  /** Lists files of one space that look like items of a type but whose name is not a valid id. */
  misnamed(type: SignableType, space: Space): readonly MisnamedFile[];
}

/** A file that is not an item because of its name. */
export interface MisnamedFile {
  readonly type: SignableType;
  readonly path: string;
  readonly reason: string;
}

export interface FindOptions {
  readonly space?: Space;
  /** Selects a file if one space has the id twice. */
  readonly path?: string;
}

export interface ListOptions {
  readonly space?: Space;
  /** A folder of the type to skip, such as `agent/threads`. */
  readonly without?: string;
}

export interface SpacePaths {
  /** Folders that contain `.ai`. */
  readonly projectPath: string;
  readonly userSpacePath: string;
  readonly systemPath: string;
  /** The files that rye ships, by their path below the system space's `.ai`. */
  readonly manifest?: Readonly<Record<string, unknown>>;
}

/**
 * Opens the three spaces; reads only their real paths. `folder` is the folder of items in each space, which differs for
 * other programs. A project that is the user's folder is the user space only. In a clone of rye, project and system space
 * are one folder: the system space has the files of the manifest, the project all others.
 */
export function openSpaces(paths: SpacePaths, folder = '.ai'): Spaces {
  return new DiskSpaces(paths, folder);
}

/** Returns the folder of a type below `.ai`. */
export function itemFolder(type: SignableType): string {
  return LAYOUT[type].folder;
}

/** Returns the error for an unknown id, with similar ids in the hint. */
export function itemNotFound(type: SignableType, id: string, knownIds: Iterable<string>): RyeError {
  const server = type === 'tool' ? /^mcp\/([^/]+)\//.exec(id)?.[1] : undefined;
  return new RyeError('item_not_found', `unknown ${type} ${id}`, {
    hint:
      (server === undefined
        ? undefined
        : `See the tools of a server with: rye mcp test ${server}`) ??
      didYouMean(id, knownIds) ??
      (type === 'config' ? 'Run: rye config path' : `Run: rye list ${type}`),
    details: { type, id },
  });
}

/** The items of the system space by their folder, as this process first listed them. */
const shipped = new LruMap<string, readonly ItemPath[]>(16);

class DiskSpaces implements Spaces {
  readonly own: 'project' | 'user';
  readonly isClone: boolean;
  readonly #roots: ReadonlyMap<Space, string>;
  readonly #manifest: Readonly<Record<string, unknown>>;

  constructor(
    { projectPath, userSpacePath, systemPath, manifest = {} }: SpacePaths,
    folder: string,
  ) {
    const project = join(projectPath, folder);
    const user = join(userSpacePath, folder);
    const system = join(systemPath, folder);
    const [realProject, realUser, realSystem] = [project, user, system].map(
      (root) => realPathOf(root) ?? root,
    );
    this.own = realProject === realUser ? 'user' : 'project';
    this.isClone = realProject === realSystem;
    this.#manifest = manifest;
    this.#roots = new Map<Space, string>([
      ...(this.own === 'project' ? [['project', project] as const] : []),
      ['user', user],
      // one text for one folder, so that paths of both can be compared
      ['system', this.isClone ? project : system],
    ]);
  }

  isShipped(path: string): boolean {
    const root = `${this.#roots.get('system') ?? ''}${sep}`;
    if (!path.startsWith(root)) return false;
    return !this.isClone || Object.hasOwn(this.#manifest, nameBelow(root.slice(0, -1), path));
  }

  /** True unless the file is in the folder of a clone of rye, in the other of its two spaces. */
  #isIn(space: Space, path: string): boolean {
    return !this.isClone || space === 'user' || this.isShipped(path) === (space === 'system');
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
    const folder = () => `${realPathOf(root) ?? root}${sep}${LAYOUT[type].folder}`;
    const bytes = readInside(first, folder);
    return { ...first, bytes, text: decode(bytes, first, LAYOUT[first.type].malformed), shadows };
  }

  list(type: SignableType, options: ListOptions = {}): readonly ListedItem[] {
    const firstSpace = new Map<string, Space>();
    const listed: ListedItem[] = [];
    // only a space before it can shadow an item
    const last = options.space === undefined ? undefined : SPACES.indexOf(options.space) + 1;
    for (const space of SPACES.slice(0, last)) {
      for (const item of this.#walk(type, space, options.without)) {
        const winner = firstSpace.get(item.id) ?? space;
        firstSpace.set(item.id, winner);
        listed.push({ ...item, shadowedBy: winner === space ? null : winner });
      }
    }
    const selected =
      options.space === undefined ? listed : listed.filter(({ space }) => space === options.space);
    return selected.toSorted(
      (a, b) =>
        compareText(a.id, b.id) ||
        SPACES.indexOf(a.space) - SPACES.indexOf(b.space) ||
        compareText(a.path, b.path),
    );
  }

  locate(type: SignableType, id: string, space: Space): string | undefined {
    return this.#candidates(type, id, space)[0]?.path;
  }

  misnamed(type: SignableType, space: Space): readonly MisnamedFile[] {
    const root = this.#roots.get(space);
    if (root === undefined) return [];
    const top = join(root, LAYOUT[type].folder);
    return readTree(top, undefined).flatMap((dirent) => {
      const path = `${dirent.parentPath}${sep}${dirent.name}`;
      const reason = this.#isIn(space, path) ? misnaming(type, nameBelow(top, path)) : undefined;
      return reason === undefined ? [] : [{ type, path, reason }];
    });
  }

  /** Returns the files of an id in one space; costs a few `lstat` calls, regardless of the folder's size. */
  #candidates(type: SignableType, id: string, space: Space): ItemPath[] {
    const root = this.#roots.get(space);
    const { folder, extensions, entry } = LAYOUT[type];
    if (root === undefined || isReserved(type, id)) return [];
    const isPlain = PLAIN_ID.test(id);
    return extensions
      .map((extension) => {
        const name = entry === undefined ? `${id}${extension}` : `${id}${sep}${entry}`;
        const path = isPlain ? `${root}${sep}${folder}${sep}${name}` : join(root, folder, name);
        return { type, id, space, extension, path };
      })
      .filter(({ path }) => this.#isIn(space, path) && isThere(path));
  }

  #walk(type: SignableType, space: Space, without: string | undefined): readonly ItemPath[] {
    const root = this.#roots.get(space);
    if (root === undefined) return [];
    const top = join(root, LAYOUT[type].folder);
    // an installed release gets no new items: a file that its manifest does not list is refused
    const files =
      space === 'system' && without === undefined
        ? shipped.getOrMake(top, () => this.#files(type, space, top, undefined))
        : this.#files(type, space, top, without);
    return this.isClone ? files.filter(({ path }) => this.#isIn(space, path)) : files;
  }

  #files(
    type: SignableType,
    space: Space,
    top: string,
    without: string | undefined,
  ): readonly ItemPath[] {
    const items: ItemPath[] = [];
    const skipped = without === undefined ? undefined : join(top, without);
    for (const dirent of readTree(top, skipped)) {
      const path = `${dirent.parentPath}${sep}${dirent.name}`;
      const id = idOf(type, nameBelow(top, path));
      if (id === undefined) continue;
      items.push({ type, id, space, path, extension: extname(path) });
    }
    return items;
  }
}

/** An id that a path has as it is. Joining paths is a large part of finding the files of a thread. */
const PLAIN_ID = /^\w[\w-]*(?:[/.][\w-]+)*$/;

/** Returns the name of a file below a folder, with slashes. */
function nameBelow(folder: string, path: string): string {
  return path
    .slice(folder.length + 1)
    .split(sep)
    .join('/');
}

/** Returns the id of a file below its type's folder; undefined if it is not an item. */
function idOf(type: SignableType, path: string): string | undefined {
  const { extensions, entry } = LAYOUT[type];
  const extension = extname(path);
  if (!extensions.includes(extension)) return undefined;
  if (entry !== undefined && basename(path) !== entry) return undefined;
  const id = entry === undefined ? path.slice(0, -extension.length) : dirname(path);
  if (itemIdProblem(id) !== undefined || isReserved(type, id)) return undefined;
  return id.split('/').some((segment) => NOT_ITEMS.has(segment)) ? undefined : id;
}

/** Explains why a file with an extension of its type has no valid id; undefined for hidden files and foreign folders. */
function misnaming(type: SignableType, path: string): string | undefined {
  const { extensions, entry } = LAYOUT[type];
  const extension = extname(path);
  const isForeign = path.split('/').some((part) => part.startsWith('.') || NOT_ITEMS.has(part));
  if (isForeign || !extensions.includes(extension)) return undefined;
  if (entry !== undefined && basename(path) !== entry) return undefined;
  return itemIdProblem(entry === undefined ? path.slice(0, -extension.length) : dirname(path));
}

/** Keys are below `.ai/config` but are not configuration. */
function isReserved(type: SignableType, id: string): boolean {
  return type === 'config' && id.startsWith('keys/');
}

function isThere(path: string): boolean {
  try {
    const stats = lstatSync(path, { throwIfNoEntry: false });
    return stats !== undefined && !stats.isDirectory();
  } catch (error) {
    if (systemCodeOf(error) === 'ENOTDIR') return false;
    throw (
      resourceError(path, error) ??
      denied(path, `it cannot be reached (${systemCodeOf(error) ?? 'unknown error'})`)
    );
  }
}

function readTree(top: string, skipped: string | undefined): readonly Dirent[] {
  const files: Dirent[] = [];
  const folders = [top];
  for (let folder = folders.pop(); folder !== undefined; folder = folders.pop()) {
    for (const dirent of readFolder(folder)) {
      if (!dirent.isDirectory()) files.push(dirent);
      else {
        const below = `${folder}${sep}${dirent.name}`;
        if (below !== skipped) folders.push(below);
      }
    }
  }
  return files;
}

function readFolder(folder: string): readonly Dirent[] {
  try {
    // most folders are missing in most projects; much cheaper than a failing listing
    if (lstatSync(folder, { throwIfNoEntry: false }) === undefined) return [];
    return readdirSync(folder, { withFileTypes: true });
  } catch (error) {
    const code = systemCodeOf(error);
    if (code === 'ENOENT' || code === 'ENOTDIR') return [];
    throw (
      resourceError(folder, error) ??
      denied(folder, `it cannot be listed (${code ?? 'unknown error'})`)
    );
  }
}

function duplicate(one: ItemPath, other: ItemPath): RyeError {
  return new RyeError(
    'duplicate_item',
    `duplicate ${one.type} ${one.id}: ${one.path} and ${other.path}`,
    {
      hint: 'Rename or remove one of them.',
      details: { type: one.type, id: one.id, paths: [one.path, other.path] },
    },
  );
}

function compareText(left: string, right: string): number {
  if (left === right) return 0;
  return left < right ? -1 : 1;
}
