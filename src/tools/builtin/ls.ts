import type { Dirent } from 'node:fs';
import { lstat, opendir, readlink } from 'node:fs/promises';
import { join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { missing } from '../files.ts';
import { confine } from '../paths.ts';
import {
  guarded,
  integerArgument,
  objectSchema,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textArgument,
  textOutput,
} from '../tool.ts';
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
  const path = await confine(textArgument(input, 'path', '.'), 'read', rulesOf(options, context));
  if (path.stats === undefined) throw await missing(path);
  if (!path.stats.isDirectory()) {
    throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a file, not a folder`, {
      hint: 'Read it with rye_file_system_read.',
    });
  }
  const { found, complete } = await entriesOf(path.real);
  const limit = integerArgument(input, 'limit', DEFAULT_LIMIT);
  const entries = await Promise.all(
    found.slice(0, limit).map((entry) => describe(path.real, entry)),
  );
  const truncated = !complete || found.length > limit;
  const lines = entries.map(({ line }) => line);
  if (truncated) {
    const count = complete ? `${found.length}` : `more than ${MAX_NAMES}`;
    lines.push(
      `(${entries.length} of ${count} entries shown; raise limit or use rye_file_system_glob)`,
    );
  }
  return textOutput(lines.length === 0 ? `(${path.shown} is empty)` : lines.join('\n'), {
    path: path.shown,
    entries: entries.map(({ entry }) => entry),
    count: found.length,
    truncated,
  });
}

async function entriesOf(folder: string): Promise<{ found: Dirent[]; complete: boolean }> {
  const found: Dirent[] = [];
  let complete = true;
  for await (const entry of await opendir(folder)) {
    complete = found.length < MAX_NAMES;
    if (!complete) break;
    found.push(entry);
  }
  return { found: found.toSorted((a, b) => (a.name < b.name ? -1 : 1)), complete };
}

async function describe(
  folder: string,
  found: Dirent,
): Promise<{ entry: JsonObject; line: string }> {
  const { name } = found;
  const shown = printable(name);
  // all that is shown of a folder came with its name
  if (found.isDirectory()) return { entry: { name, type: 'folder' }, line: `${shown}/` };
  const real = join(folder, name);
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
