import { lstat, opendir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { integer, objectSchema, text } from '../arguments.ts';
import { missing } from '../files.ts';
import { guarded } from '../guard.ts';
import { confine } from '../paths.ts';
import type { Tool, ToolContext, ToolOutput } from '../tool.ts';
import { textOutput } from '../tool.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

const DEFAULT_LIMIT = 1000;
/** Names that are looked at in one folder. */
const MAX_NAMES = 50_000;

/**
 * `rye/file-system/ls`: one folder. `data`: `path`, `entries` (`name`, `type` of `file`, `folder`, `link` or
 * `other`, `bytes` of files), `count` (all of the folder), `truncated`.
 */
export function createLsTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/ls',
    description:
      'Lists a folder: names sorted, folders with a trailing slash, files with their size.',
    inputSchema: objectSchema(
      {
        path: { ...PATH_PROPERTY, description: 'Folder to list. Default: the project.' },
        limit: {
          type: 'integer',
          minimum: 1,
          maximum: 10_000,
          description: `Default ${DEFAULT_LIMIT}.`,
        },
      },
      [],
    ),
    traits: {
      reads_only: true,
      idempotent: true,
      network: false,
      sequential: false,
      timeout_seconds: 60,
    },
    execute: (input, context) => guarded(() => list(input, context, options)),
  };
}

async function list(
  input: JsonObject,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const path = await confine(text(input, 'path', '.'), 'read', rulesOf(options, context));
  if (path.stats === undefined) throw await missing(path);
  if (!path.stats.isDirectory()) {
    throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a file, not a folder`, {
      hint: 'Read it with rye_file_system_read.',
    });
  }
  const { names, complete } = await namesOf(path.real);
  const limit = integer(input, 'limit', DEFAULT_LIMIT);
  const entries = await Promise.all(names.slice(0, limit).map((name) => describe(path.real, name)));
  const truncated = !complete || names.length > limit;
  const lines = entries.map(({ line }) => line);
  if (truncated) {
    const count = complete ? `${names.length}` : `more than ${MAX_NAMES}`;
    lines.push(
      `(${entries.length} of ${count} entries shown; raise limit or use rye_file_system_glob)`,
    );
  }
  return textOutput(lines.length === 0 ? `(${path.shown} is empty)` : lines.join('\n'), {
    path: path.shown,
    entries: entries.map(({ entry }) => entry),
    count: names.length,
    truncated,
  });
}

async function namesOf(folder: string): Promise<{ names: string[]; complete: boolean }> {
  const names: string[] = [];
  let complete = true;
  for await (const entry of await opendir(folder)) {
    complete = names.length < MAX_NAMES;
    if (!complete) break;
    names.push(entry.name);
  }
  return { names: names.toSorted(), complete };
}

async function describe(
  folder: string,
  name: string,
): Promise<{ entry: JsonObject; line: string }> {
  const real = join(folder, name);
  const shown = printable(name);
  const stats = await lstat(real).catch(() => undefined);
  if (stats?.isDirectory() === true) {
    return { entry: { name, type: 'folder' }, line: `${shown}/` };
  }
  if (stats?.isFile() === true) {
    return { entry: { name, type: 'file', bytes: stats.size }, line: `${shown}\t${stats.size}` };
  }
  if (stats?.isSymbolicLink() === true) {
    const target = await readlink(real).catch(() => '?');
    return { entry: { name, type: 'link' }, line: `${shown} -> ${printable(target)}` };
  }
  return { entry: { name, type: 'other' }, line: shown };
}

/** A file name on one line: names with control characters are quoted. */
export function printable(name: string): string {
  // oxlint's control-character rule is about accidents; here they are what is looked for.
  return /\p{Cc}/u.test(name) ? JSON.stringify(name) : name;
}
