import { posix } from 'node:path';
import { isJsonObject, type JsonValue } from '../../../kernel/core/json.ts';

const MAX_PATH_LENGTH = 4096;

/** A path that a tool call names, in the forms that globs are tried on. */
export interface CallPath {
  readonly candidates: readonly string[];
  /** For people and models: relative to the project, and never an absolute path. */
  readonly shown: string;
  /** The place on the disk; absent for an address such as `https://host/a`. */
  readonly absolute?: string;
}

/** True if the member of that name holds paths: `path`, `paths`, `file`, `file_path`, `notebookPath`. */
export function isPathKey(key: string): boolean {
  return /(?:paths?|^files?|filename|file_name)$/i.test(key);
}

/** Normalizes a path that a model wrote: `/` between segments, relative to the project if it is inside. */
export function callPath(written: string, projectPath: string): CallPath {
  const given = written.slice(0, MAX_PATH_LENGTH).replaceAll('\\', '/');
  const plain = posix.normalize(given);
  const project = projectPath.replaceAll('\\', '/').replace(/\/$/, '');
  const isAbsolute = plain.startsWith('/') || /^[A-Za-z]:\//.test(plain);
  const inside = plain.startsWith(`${project}/`) ? plain.slice(project.length + 1) : undefined;
  const relative = inside ?? plain;
  if (/^[A-Za-z][\w+.-]+:\/\//.test(given)) {
    return { candidates: [given, plain], shown: posix.basename(plain) };
  }
  const absolute = isAbsolute ? plain : `${project}/${plain}`;
  return {
    candidates: [...new Set([relative, plain, absolute])],
    shown: isAbsolute && inside === undefined ? posix.basename(plain) : relative,
    absolute: posix.normalize(absolute),
  };
}

/** Returns the paths that the arguments of a call name. */
export function pathsIn(input: JsonValue | undefined, projectPath: string): readonly CallPath[] {
  const paths: CallPath[] = [];
  const visit = (value: JsonValue | undefined, key: string): void => {
    if (typeof value === 'string') {
      if (isPathKey(key)) paths.push(callPath(value, projectPath));
    } else if (Array.isArray(value)) for (const one of value) visit(one, key);
    else if (isJsonObject(value)) {
      for (const [name, member] of Object.entries(value)) visit(member, name);
    }
  };
  visit(input, '');
  return paths;
}
