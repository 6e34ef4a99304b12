import { readlinkSync, realpathSync } from 'node:fs';
import { basename, dirname, isAbsolute, relative, resolve, sep } from 'node:path';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { makeFolders } from './folders.ts';
import { readRegular } from './regular-file.ts';
import { createWhole, type WholeFileOptions, writeWhole } from './whole-file.ts';

type Options = Omit<WholeFileOptions, 'follow'>;

/**
 * Replaces or creates a file of a folder, and makes the folders on the way. Throws `path_denied` if a link leads out of the
 * folder: a project from another person must not choose what a command changes elsewhere.
 */
export function writeInside(
  root: string,
  path: string,
  content: string | Uint8Array,
  options: Options = {},
): void {
  const real = placeInside(root, path);
  makeFolders(dirname(real));
  writeWhole(real, content, { ...options, follow: false });
}

/** Like {@link writeInside}, for a file that must not exist yet; returns false if it exists. */
export function createInside(root: string, path: string, content: string | Uint8Array): boolean {
  const real = placeInside(root, path);
  makeFolders(dirname(real));
  return createWhole(real, content);
}

/** Returns the real place of a file of a folder, which need not exist. Throws `path_denied` if it is outside. */
export function placeInside(root: string, path: string): string {
  const folder = realPlace(root);
  const real = realPlace(path);
  const rest = relative(folder, real);
  if (rest !== '..' && !rest.startsWith(`..${sep}`) && !isAbsolute(rest)) return real;
  throw new RyeError('path_denied', `${path} leads out of ${root}, to ${real}`, {
    hint: 'Remove the link, or replace it by a folder or a file.',
    location: { path },
    details: { path, real },
  });
}

/**
 * Reads a text of a folder before it is changed; undefined if it does not exist. Throws `path_denied` if it is outside, or
 * a pipe or a device.
 */
export function readTextInside(root: string, path: string): string | undefined {
  const real = placeInside(root, path);
  try {
    return readRegular(real).toString('utf8');
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

/** Links that a system follows at most. */
const MAX_LINKS = 40;

/** Returns the real path of a file, or of the place where it would be made, also at the end of a link that leads to nothing. */
export function realPlace(path: string, links = 0): string {
  try {
    return realpathSync(path);
  } catch (error) {
    const parent = dirname(path);
    if (systemCodeOf(error) !== 'ENOENT' || parent === path || links > MAX_LINKS) throw error;
    const folder = realPlace(parent, links);
    const link = linkTarget(path);
    if (link === undefined) return resolve(folder, basename(path));
    return realPlace(resolve(folder, link), links + 1);
  }
}

function linkTarget(path: string): string | undefined {
  try {
    return readlinkSync(path);
  } catch {
    return undefined;
  }
}
