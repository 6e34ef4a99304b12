import type { FileHandle } from 'node:fs/promises';
import { normalize } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import { MAX_COPY_BYTES } from '../../core/file-change.ts';
import { compact, type JsonObject } from '../../core/json.ts';
import { alone, exclusively, openForRead, versionOf, writeText } from '../files.ts';
import { type FileBefore, hashOf, keepBefore, sha256 } from '../kept-files.ts';
import { confine } from '../paths.ts';
import {
  builtinTool,
  CHANGING_TRAITS,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, PATH_PROPERTY, rulesOf } from './options.ts';

/** Returns the path that a call changes in one spelling, so that calls on the same file run one by one. */
export function writtenPaths({ path }: JsonObject): readonly string[] {
  return typeof path === 'string' && path !== '' ? [normalize(path)] : [];
}

/**
 * `rye/file-system/write` writes a whole file. `data`: `path`, `bytes`, `status` (`created`, `updated` or `unchanged`).
 */
export function createWriteTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/file-system/write',
    description: 'Writes a whole text file, making missing folders. Existing content is replaced.',
    properties: {
      path: PATH_PROPERTY,
      content: { type: 'string', description: 'The whole new content.' },
    },
    required: ['path', 'content'],
    traits: { ...CHANGING_TRAITS, idempotent: true },
    writes: writtenPaths,
    run: ({ path, content }, context) => write(path, content, context, options),
  });
}

async function write(
  wanted: string,
  content: string,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const rules = rulesOf(options, context);
  const { real } = await confine(wanted, 'write', rules);
  const onlyOne = async (change: () => Promise<ToolOutput>): Promise<ToolOutput> =>
    await exclusively(real, async () => await alone(real, context.projectPath, change));
  return await onlyOne(async () => {
    // resolved again: a call that waited here must see the result of the earlier one
    const path = await confine(wanted, 'write', rules);
    if (path.stats?.isDirectory() === true) {
      throw new RyeError('invalid_input', `${JSON.stringify(path.shown)} is a folder`, {
        hint: 'Give the path of a file in it.',
      });
    }
    const bytes = Buffer.byteLength(content);
    const existing = path.stats === undefined ? undefined : await openForRead(path);
    let before: Awaited<ReturnType<typeof look>> | undefined;
    try {
      before = existing && (await look(existing));
    } finally {
      await existing?.close();
    }
    if (before?.bytes?.equals(Buffer.from(content)) === true) {
      const same = { path: path.shown, bytes, status: 'unchanged' };
      const told = textOutput(`No change needed: ${path.shown} already has this content.`, same);
      return { ...told, prior: before.bytes };
    }
    if (context.signal.aborted) throw new RyeError('cancelled', 'the write was cancelled');
    await keepBefore(options.keep, context, { path, before, content });
    await writeText({ path, content, expected: before?.version, mode: before?.state.mode });
    options.memory?.recordChange(path.real, sha256(content));
    const [verb, status] = before ? ['Updated', 'updated'] : ['Created', 'created'];
    const data = { path: path.shown, bytes, status };
    const prior = before === undefined ? { prior: null } : compact({ prior: before.bytes });
    return { ...textOutput(`${verb} ${path.shown} (${bytes} bytes).`, data), ...prior };
  });
}

/** Reads what an undo of the write needs. */
async function look(
  handle: FileHandle,
): Promise<FileBefore & { readonly bytes?: Buffer; readonly version: string }> {
  const stats = await handle.stat();
  const version = versionOf(stats);
  const mode = stats.mode & 0o7777;
  if (stats.size > MAX_COPY_BYTES) {
    const hash = await hashOf(handle);
    return { version, state: { sha256: hash, bytes: stats.size, mode } };
  }
  const bytes = await handle.readFile();
  return { version, bytes, state: { sha256: sha256(bytes), bytes: bytes.length, mode } };
}
