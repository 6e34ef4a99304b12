import { execFile } from 'node:child_process';
import { readFile, realpath, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { RyeError } from '../core/errors.ts';
import { absoluteSearchPath } from '../core/text.ts';
import { walkFiles } from '../tools/paths.ts';

const BINARY_PROBE_BYTES = 8192;
const MAX_LISTING_BYTES = 256 * 1024 * 1024;

export interface ScanOptions {
  readonly gitignore: boolean;
  readonly maxBytes: number;
}

/** One file of a scan; without text where it is binary or too large. */
export interface ScannedFile {
  readonly path: string;
  readonly text: string | undefined;
}

/** Reads the regular files below a folder, or one file, one after the other. */
export async function* readScanned(
  folder: string,
  { gitignore, maxBytes }: ScanOptions,
): AsyncGenerator<ScannedFile, void> {
  for await (const path of filesBelow(folder, gitignore)) {
    const text = await readText(path, maxBytes);
    if (text !== null) yield { path, text };
  }
}

async function* filesBelow(folder: string, gitignore: boolean): AsyncGenerator<string, void> {
  const stats = await stat(folder).catch(() => undefined);
  if (!stats) throw new RyeError('file_not_found', `there is no file or folder ${folder}`);
  if (stats.isFile()) {
    yield folder;
    return;
  }
  const tracked = gitignore ? await gitFiles(folder) : undefined;
  if (tracked) {
    for (const name of tracked) yield join(folder, name);
    return;
  }
  const root = await realpath(folder);
  const walk = walkFiles({ root, project: root, signal: new AbortController().signal });
  for await (const { relative } of walk) yield join(folder, relative);
}

/** Files that git does not ignore; undefined outside of a repository, and without git. */
async function gitFiles(folder: string): Promise<readonly string[] | undefined> {
  // the configuration of a repository may name a program for git to run
  const harmless = ['-c', 'core.fsmonitor=false'];
  const listing = ['ls-files', '-z', '--cached', '--others', '--exclude-standard'];
  try {
    const { stdout } = await promisify(execFile)('git', ['-C', folder, ...harmless, ...listing], {
      maxBuffer: MAX_LISTING_BYTES,
      env: { ...process.env, PATH: absoluteSearchPath(process.env['PATH'] ?? '') },
    });
    return [...new Set(stdout.split('\0').filter((name) => name !== ''))].toSorted();
  } catch {
    return undefined;
  }
}

/** null: it is gone or no regular file. */
async function readText(path: string, maxBytes: number): Promise<string | null | undefined> {
  const stats = await stat(path).catch(() => undefined);
  if (!stats?.isFile()) return null;
  if (stats.size > maxBytes) return undefined;
  const bytes = await readFile(path).catch(() => undefined);
  if (!bytes) return null;
  return bytes.subarray(0, BINARY_PROBE_BYTES).includes(0) ? undefined : bytes.toString('utf8');
}
