import { resolve } from 'node:path';
import { RyeError } from '../core/errors.ts';
import type { FileState } from '../core/file-change.ts';
import {
  exclusively,
  openForRead,
  removeEmptyFolder,
  removeFile,
  versionOf,
  writeText,
} from './files.ts';
import { hashOf, missingFolders } from './kept-files.ts';
import { type ConfinedPath, confine, denied, type PathRules } from './paths.ts';

/** The content that a file goes back to; null: there was no file. */
export type EarlierContent = { readonly bytes: Uint8Array; readonly mode?: number } | null;

/** The files of a project as an undo of a thread may reach them: under the rules of the thread's own file tools. */
export class RestoredFiles {
  readonly #rules: PathRules;

  constructor(rules: PathRules) {
    this.#rules = rules;
  }

  /** Returns what is at a path; null if nothing is. Throws `path_denied` for a path that must not be restored. */
  async look(path: string): Promise<FileState | null> {
    return (await this.#found(path)).state;
  }

  async read(path: string): Promise<Uint8Array> {
    const handle = await openForRead(await this.#confined(path));
    try {
      return await handle.readFile();
    } finally {
      await handle.close();
    }
  }

  /** Gives a path its earlier content. Throws `file_changed` if it no longer is what {@link look} returned. */
  async restore(path: string, seen: FileState | null, earlier: EarlierContent): Promise<void> {
    await exclusively(resolve(this.#rules.projectPath, path), async () => {
      const { confined, state, version } = await this.#found(path);
      if (state?.sha256 !== seen?.sha256) {
        throw new RyeError('file_changed', `${path} was changed during the undo`, {
          hint: 'Run the undo again.',
          location: { path },
        });
      }
      if (earlier === null) {
        if (version !== undefined) await removeFile(confined, version);
        return;
      }
      const { bytes, mode = state?.mode } = earlier;
      await writeText({ path: confined, content: bytes, expected: version, mode });
    });
  }

  /** Returns the folders that a write of a path will make, the outermost first. */
  async missingFolders(path: string): Promise<readonly string[]> {
    return await missingFolders(await this.#confined(path));
  }

  /** Removes a folder if it is empty; returns true if it did. */
  async removeFolder(path: string): Promise<boolean> {
    const confined = await this.#confined(path);
    return confined.stats?.isDirectory() === true && (await removeEmptyFolder(confined));
  }

  async #found(path: string): Promise<{
    readonly confined: ConfinedPath;
    readonly state: FileState | null;
    readonly version: string | undefined;
  }> {
    const confined = await this.#confined(path);
    if (confined.stats === undefined) return { confined, state: null, version: undefined };
    if (confined.stats.isDirectory()) throw denied(path, 'a folder has taken its place');
    const handle = await openForRead(confined);
    try {
      const stats = await handle.stat();
      const sha256 = await hashOf(handle);
      const state = { sha256, bytes: stats.size, mode: stats.mode & 0o7777 };
      return { confined, state, version: versionOf(stats) };
    } finally {
      await handle.close();
    }
  }

  async #confined(path: string): Promise<ConfinedPath> {
    const confined = await this.#resolved(path);
    // the thread's tools recorded the path without links
    if (confined.real === resolve(confined.project, path)) return confined;
    throw denied(path, 'a symbolic link has taken the place of a part of it');
  }

  async #resolved(path: string): Promise<ConfinedPath> {
    try {
      return await confine(path, 'write', this.#rules);
    } catch (error) {
      if (!(error instanceof RyeError) || error.code !== 'file_not_found') throw error;
      throw denied(path, 'a file has taken the place of a folder on the way to it');
    }
  }
}
