import { existsSync } from 'node:fs';
import { join } from 'node:path';
import type { OpenRyeOptions } from './api/rye.ts';
import { systemSpacePath } from './system.ts';
import { realPath } from './user-space.ts';

const FILES = ['store.yaml', 'store.yml'];

/**
 * True if the project, the user or the command line has a setting of the store. Two looks at the disk, without a parser: a
 * command without such a setting opens the project's own store and loads nothing else.
 */
export function namesStore({
  projectPath,
  userSpacePath,
  configOverrides = [],
}: Pick<OpenRyeOptions, 'projectPath' | 'userSpacePath' | 'configOverrides'>): boolean {
  // in a clone of rye the file ships with rye, and names no store
  const isClone = realPath(projectPath) === realPath(systemSpacePath());
  const spaces = isClone ? [userSpacePath] : [projectPath, userSpacePath];
  const folders = spaces.map((space) => join(space, '.ai', 'config'));
  return (
    configOverrides.some((text) => text.startsWith('store.')) ||
    folders.some((folder) => FILES.some((name) => existsSync(join(folder, name))))
  );
}
