import { createHash } from 'node:crypto';
import type { FileHandle } from 'node:fs/promises';
import { normalize } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject } from '../../core/json.ts';
import { alone, exclusively, openForRead, versionOf, writeText } from '../files.ts';
import { confine } from '../paths.ts';
import {
  guarded,
  objectSchema,
  type Tool,
  type ToolContext,
  type ToolOutput,
  type ToolTraits,
  textArgument,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

export const CHANGE_TRAITS: ToolTraits = {
  reads_only: false,
  idempotent: false,
  network: false,
  sequential: false,
  timeout_seconds: 60,
};

/** The path that a call changes, in one spelling, so that calls on the same file run one by one. */
export function writtenPaths(input: JsonObject): readonly string[] {
  const path = textArgument(input, 'path');
  return path === '' ? [] : [normalize(path)];
}

/**
 * `rye/file-system/write`: a whole file. `data`: `path`, `bytes`, `status` (`created`, `updated` or `unchanged`).
 */
export function createWriteTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/file-system/write',
    description: 'Writes a whole text file, making missing folders. Existing content is replaced.',
    inputSchema: objectSchema(
      { path: PATH_PROPERTY, content: { type: 'string', description: 'The whole new content.' } },
      ['path', 'content'],
    ),
    traits: { ...CHANGE_TRAITS, idempotent: true },
    writes: writtenPaths,
    execute: (input, context) => guarded(() => write(input, context, options)),
  };
}

async function write(
  input: JsonObject,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const rules = rulesOf(options, context);
  const content = textArgument(input, 'content');
  const first = await confine(textArgument(input, 'path'), 'write', rules);
  const onlyOne = async (change: () => Promise<ToolOutput>): Promise<ToolOutput> =>
    await exclusively(first.real, async () => await alone(first.real, context.projectPath, change));
  return await onlyOne(async () => {
    // Looked at again: a call that waited here sees what the one before it made.
    const path = await confine(textArgument(input, 'path'), 'write', rules);
    if (path.stats?.isDirectory() === true) {
      throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a folder`, {
        hint: 'Give the path of a file in it.',
      });
    }
    const bytes = Buffer.byteLength(content);
    const existing = path.stats === undefined ? undefined : await openForRead(path);
    let before:
      | { readonly version: string; readonly mode: number; readonly same: boolean }
      | undefined;
    try {
      before = existing === undefined ? undefined : await compare(existing, content);
    } finally {
      await existing?.close();
    }
    if (before?.same === true) {
      return textOutput(`No change needed: ${path.shown} already has this content.`, {
        path: path.shown,
        bytes,
        status: 'unchanged',
      });
    }
    if (context.signal.aborted) throw new RyeError('cancelled', 'the write was cancelled');
    await writeText({ path, content, expected: before?.version, mode: before?.mode });
    options.memory?.recordChange(path.real, createHash('sha256').update(content).digest('hex'));
    const status = before === undefined ? 'created' : 'updated';
    const verb = before === undefined ? 'Created' : 'Updated';
    return textOutput(`${verb} ${path.shown} (${bytes} bytes).`, {
      path: path.shown,
      bytes,
      status,
    });
  });
}

/** Compares without reading a file of another size. */
async function compare(handle: FileHandle, content: string) {
  const stats = await handle.stat();
  const bytes = Buffer.from(content, 'utf8');
  const same = stats.size === bytes.length && (await handle.readFile()).equals(bytes);
  return { version: versionOf(stats), mode: stats.mode & 0o7777, same };
}
