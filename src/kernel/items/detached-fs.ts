import { existsSync, readdirSync, rmSync } from 'node:fs';
import { basename, dirname, join } from 'node:path';
import { systemCodeOf } from '../core/errors.ts';
import type { Space } from '../core/ids.ts';
import { writeInside } from '../disk/inside.ts';
import { readStatement } from '../trust/key-store-fs.ts';
import { contentHashOf } from '../trust/signature.ts';
import type { SignatureStyle } from '../trust/signature-line.ts';
import { type ItemPath, itemFolder } from './spaces-fs.ts';

/** The folder below `.ai` with signatures beside their files. */
const FOLDER = 'signatures';
const HASH_LENGTH = 16;

/** Place of an item and the `.ai` folders of the spaces. */
interface Roots {
  root(space: Space): string | undefined;
}

type Place = Pick<ItemPath, 'type' | 'id' | 'extension' | 'space'>;

/**
 * Returns the signature file that fits the text, else another one of the item, which shows that the text was changed;
 * undefined without any. The name contains the hash of the text: two people who edit the same item write two files, so
 * that version control has nothing to merge.
 */
export function readDetached(
  item: Place & { readonly text: string },
  style: SignatureStyle,
  roots: Roots,
): string | undefined {
  const base = basePath(item, roots);
  if (base === undefined || !existsSync(dirname(base))) return undefined;
  const hash = contentHashOf(item.text, style);
  const exact = hash === undefined ? undefined : readStatement(pathOf(base, hash));
  if (exact !== undefined) return exact.trim();
  const other = siblings(base).at(-1);
  return other === undefined ? undefined : readStatement(other)?.trim();
}

/** Returns the path of the signature file that fits the text; undefined if there is none. */
export function detachedPath(
  item: Place & { readonly text: string },
  style: SignatureStyle,
  roots: Roots,
): string | undefined {
  const base = basePath(item, roots);
  const hash = contentHashOf(item.text, style);
  const path = base === undefined || hash === undefined ? undefined : pathOf(base, hash);
  return path !== undefined && existsSync(path) ? path : undefined;
}

/** Writes the signature of a text and removes the signatures of earlier texts. */
export function writeDetached(item: Place, signature: string, hash: string, roots: Roots): void {
  const base = basePath(item, roots);
  if (base === undefined) return;
  const path = pathOf(base, hash);
  const root = roots.root(item.space);
  if (root !== undefined) writeInside(dirname(root), path, `${signature}\n`);
  removeDetached(item, roots, path);
}

/** Removes the signature files of an item, except one to keep; returns the number of removed files. */
export function removeDetached(item: Place, roots: Roots, keep?: string): number {
  const base = basePath(item, roots);
  const stale = base === undefined ? [] : siblings(base).filter((path) => path !== keep);
  for (const path of stale) rmSync(path, { force: true });
  return stale.length;
}

function basePath({ type, id, extension, space }: Place, roots: Roots): string | undefined {
  const root = roots.root(space);
  return root === undefined ? undefined : join(root, FOLDER, itemFolder(type), `${id}${extension}`);
}

function pathOf(base: string, hash: string): string {
  return `${base}.${hash.slice(0, HASH_LENGTH)}.sig`;
}

function siblings(base: string): readonly string[] {
  const prefix = `${basename(base)}.`;
  try {
    return readdirSync(dirname(base))
      .filter((name) => name.startsWith(prefix) && SUFFIX.test(name.slice(prefix.length)))
      .toSorted()
      .map((name) => join(dirname(base), name));
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT' || systemCodeOf(error) === 'ENOTDIR') return [];
    throw error;
  }
}

const SUFFIX = /^[0-9a-f]{16}\.sig$/;
