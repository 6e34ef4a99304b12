import { constants } from 'node:fs';
import { open } from 'node:fs/promises';
import type { RE2JS } from 're2js';
import { readLines, startsBinary } from '../lines.ts';
import { shownPath } from '../paths.ts';
import { walkFiles } from '../walk.ts';

/** Matching lines that one call collects and counts. */
export const MAX_MATCHES = 10_000;
/** How much of a line is searched. */
const MAX_LINE_BYTES = 1024 * 1024;
/** How much of a line is shown. */
const SHOWN_CHARACTERS = 500;

export interface GrepQuery {
  /** Real path of the folder or file. */
  readonly root: string;
  /** Real path of the project. */
  readonly project: string;
  readonly isFile: boolean;
  readonly pattern: string;
  readonly ignoreCase: boolean;
  readonly expression: RE2JS;
  /** Whether a file is searched, by its path below the root. */
  readonly accepts: (relativePath: string) => boolean;
  readonly signal: AbortSignal;
}

/** One matching line; the path as shown to the model. */
export type GrepMatch = {
  readonly path: string;
  readonly line: number;
  readonly text: string;
};

/** The built-in engine: the same dialect and order as ripgrep's, one file at a time, linear in the text. */
export async function searchFiles(query: GrepQuery): Promise<readonly GrepMatch[]> {
  const matches: GrepMatch[] = [];
  for await (const file of candidates(query)) {
    if (query.signal.aborted || matches.length >= MAX_MATCHES) break;
    await searchFile(file, query, matches);
  }
  return matches;
}

async function* candidates(query: GrepQuery): AsyncGenerator<string, void> {
  if (query.isFile) {
    if (query.accepts(query.root.slice(query.root.lastIndexOf('/') + 1))) yield query.root;
    return;
  }
  for await (const file of walkFiles(query)) {
    if (query.accepts(file.relative)) yield file.real;
  }
}

async function searchFile(real: string, query: GrepQuery, matches: GrepMatch[]): Promise<void> {
  const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;
  const handle = await open(real, flags).catch(() => undefined);
  if (handle === undefined) return;
  try {
    if (!(await handle.stat()).isFile() || (await startsBinary(handle))) return;
    const path = shownPath(real, query.project);
    for await (const { number, bytes } of readLines(handle, {
      from: 1,
      maxLineBytes: MAX_LINE_BYTES,
    })) {
      // A NUL byte makes the rest of the file binary.
      if (query.signal.aborted || matches.length >= MAX_MATCHES || bytes.includes(0)) return;
      const text = bytes.toString('utf8').replace(/\r$/, '');
      if (query.expression.test(text)) matches.push({ path, line: number, text: shownLine(text) });
    }
  } catch {
    // An unreadable file is no match, as in grep -s.
  } finally {
    await handle.close();
  }
}

export function shownLine(text: string): string {
  return text.length <= SHOWN_CHARACTERS ? text : `${text.slice(0, SHOWN_CHARACTERS)}…`;
}
