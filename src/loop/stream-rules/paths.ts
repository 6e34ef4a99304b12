import { posix } from 'node:path';

const MAX_PATH_LENGTH = 4096;

/** A path that a tool call names, in the forms that globs are tried on. */
export interface CallPath {
  readonly candidates: readonly string[];
  /** For people and models: relative to the project, and never an absolute path. */
  readonly shown: string;
}

/** Whether the member of that name holds paths: `path`, `paths`, `file`, `file_path`, `notebookPath`. */
export function isPathKey(key: string): boolean {
  return /(?:paths?|^files?|filename|file_name)$/i.test(key);
}

/** Whether the member of that name holds text that goes away, which no rule is about. */
export function isReplacedText(key: string): boolean {
  return /^old[_A-Z-]|^old$|^search$/.test(key);
}

/** Normalises a path as a model wrote it: `/` between segments, relative to the project where it lies inside. */
export function callPath(written: string, projectPath: string): CallPath {
  const plain = posix.normalize(written.slice(0, MAX_PATH_LENGTH).replaceAll('\\', '/'));
  const project = projectPath.replaceAll('\\', '/').replace(/\/$/, '');
  const isAbsolute = plain.startsWith('/') || /^[A-Za-z]:\//.test(plain);
  const inside = plain.startsWith(`${project}/`) ? plain.slice(project.length + 1) : undefined;
  const relative = inside ?? plain;
  const absolute = isAbsolute ? plain : `${project}/${plain}`;
  return {
    candidates: [...new Set([relative, plain, absolute])],
    shown: isAbsolute && inside === undefined ? posix.basename(plain) : relative,
  };
}
