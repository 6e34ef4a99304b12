import { delimiter, isAbsolute } from 'node:path';

/** A PATH without relative entries: programs are looked for from inside of projects, which must not bring their own. */
export function absoluteSearchPath(path: string): string {
  return path
    .split(delimiter)
    .filter((folder) => isAbsolute(folder))
    .join(delimiter);
}
