import { lstatSync, readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { type SignableType, SPACES, type Space } from '../core/ids.ts';
import { isJsonObject, isRecord, type JsonObject, parseJson } from '../core/json.ts';
import { type KeyLookup, sha256Hex } from '../trust/keys.ts';
import {
  checkDocument,
  isSignedAs,
  type Signing,
  signDocument,
  type Verdict,
} from '../trust/signature.ts';
import { itemSubject } from './binding.ts';
import type { FindOptions, FoundFile, ListedItem, ListOptions, Spaces } from './spaces-fs.ts';

/** The file in a skill's folder that holds the signature over all other files. */
const LIST = '.rye-files.json';
/** Files of interpreters, version control and file managers, which do not belong to a skill. */
const NOT_FILES: ReadonlySet<string> = new Set(['__pycache__', '.git', '.DS_Store']);
const MAX_FILES = 1000;
const MAX_BYTES = 64 * 1024 * 1024;
const MAX_LIST_BYTES = 1024 * 1024;

/** One file of a skill, its path relative to the skill's folder with `/` between segments. */
export interface SkillFile {
  readonly path: string;
  readonly bytes: Uint8Array;
}

/**
 * Reads every regular file of a skill's folder, sorted by path; ignores symbolic links. Throws `item_too_large` for more
 * than 1000 files or 64 MiB.
 */
export function readSkillFiles(folder: string): readonly SkillFile[] {
  const files: SkillFile[] = [];
  let bytes = 0;
  for (const path of skillPaths(folder)) {
    const file = { path, bytes: readFileSync(join(folder, path)) };
    bytes += file.bytes.length;
    if (bytes > MAX_BYTES) throw tooLarge(folder, `more than ${MAX_BYTES} bytes`);
    files.push(file);
  }
  return files;
}

/** Returns the paths of {@link readSkillFiles} without reading the files. */
export function skillPaths(folder: string): readonly string[] {
  const found: string[] = [];
  const walk = (below: string): void => {
    for (const entry of readdirSync(join(folder, below), { withFileTypes: true })) {
      const path = below === '' ? entry.name : `${below}/${entry.name}`;
      if (NOT_FILES.has(entry.name) || path === LIST) continue;
      if (entry.isDirectory()) walk(path);
      else if (entry.isFile()) found.push(path);
      if (found.length > MAX_FILES) throw tooLarge(folder, `more than ${MAX_FILES} files`);
    }
  };
  walk('');
  return found.toSorted();
}

function tooLarge(folder: string, what: string): RyeError {
  return new RyeError('item_too_large', `the skill has ${what}`, {
    location: { path: folder },
    hint: 'Move files that the instructions do not need out of the skill.',
  });
}

/**
 * Returns the signed list of a skill's files as text for {@link skillListPath}; undefined if the existing list has the
 * same content and key.
 */
export function signedSkillList(
  folder: string,
  id: string,
  by: Omit<Signing, 'subject'>,
): string | undefined {
  const files = Object.fromEntries(
    readSkillFiles(folder).map(({ path, bytes }) => [path, sha256Hex(bytes)]),
  );
  const document: JsonObject = { skill: id, files };
  const { _signature, ...before } = readList(folder) ?? {};
  const isSame = JSON.stringify(before) === JSON.stringify(document);
  const signing = { ...by, subject: listSubject(id) };
  if (isSame && isSignedAs({ ...document, _signature }, signing)) return undefined;
  return `${JSON.stringify(signDocument(document, signing), null, 1)}\n`;
}

/** The list is signed under the id of the skill. */
function listSubject(id: string): ReturnType<typeof itemSubject> {
  return itemSubject({ type: 'skill', id, extension: '.json' });
}

/** Returns the path of a skill's list. */
export function skillListPath(folder: string): string {
  return join(folder, LIST);
}

/** The signed list of one skill, read once. */
export interface SkillList {
  /** Compares a file with the list; a file that the list does not contain is unsigned. */
  check(file: SkillFile): Verdict;
  /** Signed paths. */
  readonly paths: readonly string[];
}

/** Reads the list of a skill; undefined if it has none. A list of another skill counts as `item_moved`. */
export function openSkillList(folder: string, id: string, keys: KeyLookup): SkillList | undefined {
  const document = readList(folder);
  if (document === undefined) return undefined;
  const verdict = checkList(document, id, keys);
  const hashes = isRecord(document['files']) ? document['files'] : {};
  return {
    paths: Object.keys(hashes),
    check: ({ path, bytes }) => {
      if (!verdict.ok) return verdict;
      const expected = Object.hasOwn(hashes, path) ? hashes[path] : undefined;
      if (expected === sha256Hex(bytes)) return verdict;
      return expected === undefined
        ? { ok: false, code: 'unsigned', detail: `${path} is not in its signed list` }
        : { ok: false, code: 'content_modified', detail: path };
    },
  };
}

function checkList(document: JsonObject, id: string, keys: KeyLookup): Verdict {
  const verdict = checkDocument(document, { keys, subject: listSubject(id) });
  if (!verdict.ok || verdict.by !== 'key' || verdict.version !== 1) return verdict;
  const { keyId } = verdict;
  const { skill } = document;
  if (skill === id) return { ok: false, code: 'signature_outdated', keyId };
  const signedAs = typeof skill === 'string' ? { signedAs: { kind: 'skill', id: skill } } : {};
  return { ok: false, code: 'item_moved', keyId, ...signedAs };
}

function readList(folder: string): JsonObject | undefined {
  const path = skillListPath(folder);
  try {
    const stats = lstatSync(path);
    // an unusable list signs nothing
    if (!stats.isFile() || stats.size > MAX_LIST_BYTES) return {};
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT' || systemCodeOf(error) === 'ENOTDIR') return undefined;
    throw error;
  }
  const value = parseJson(readFileSync(path, 'utf8'));
  return isJsonObject(value) ? value : {};
}

/** Returns shadowed skills with this id without reading them, because one may be broken. */
function shadowsIn(
  places: readonly { readonly space: Space; readonly each: Spaces }[],
  id: string,
): FoundFile['shadows'] {
  return places.flatMap(({ space, each }) =>
    each
      .list('skill', { space })
      .filter((item) => item.id === id)
      .map(({ path }) => ({ space, path })),
  );
}

/**
 * Adds the skills of another program to the spaces. Within each space rye's own skills come first, so a project's skill
 * always shadows a user's.
 */
export function withForeignSkills(own: Spaces, foreign: Spaces): Spaces {
  const find = (
    type: SignableType,
    id: string,
    options: FindOptions = {},
  ): FoundFile | undefined => {
    if (type !== 'skill') return own.find(type, id, options);
    const spaces = options.space === undefined ? SPACES : [options.space];
    const places = spaces.flatMap((space) => [own, foreign].map((each) => ({ space, each })));
    for (const [index, { space, each }] of places.entries()) {
      const found = each.find(type, id, { space });
      const isWanted = options.path === undefined || found?.path === options.path;
      if (found && isWanted) return { ...found, shadows: shadowsIn(places.slice(index + 1), id) };
    }
    return undefined;
  };
  const list = (type: SignableType, options: ListOptions = {}): readonly ListedItem[] => {
    if (type !== 'skill') return own.list(type, options);
    const { space, ...rest } = options;
    const all = SPACES.flatMap((each) => [
      ...own.list(type, { ...rest, space: each }),
      ...foreign.list(type, { ...rest, space: each }),
    ]);
    const winners = new Map<string, Space>();
    const listed = all.map((item): ListedItem => {
      const winner = winners.get(item.id);
      if (winner === undefined) winners.set(item.id, item.space);
      return { ...item, shadowedBy: winner ?? null };
    });
    return listed
      .filter((item) => space === undefined || item.space === space)
      .toSorted((a, b) => (a.id === b.id ? 0 : a.id < b.id ? -1 : 1));
  };
  return {
    own: own.own,
    isClone: own.isClone,
    isShipped: (path) => own.isShipped(path),
    root: (space) => own.root(space),
    find,
    list,
    locate: (type, id, space) =>
      own.locate(type, id, space) ??
      (type === 'skill' ? foreign.locate(type, id, space) : undefined),
    misnamed: (type, space) => own.misnamed(type, space),
  };
}
