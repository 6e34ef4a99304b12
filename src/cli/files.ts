import { readFile, stat } from 'node:fs/promises';
import path from 'node:path';
import { messageOf, RyeError, systemCodeOf } from '../core/errors.ts';
import type { Io } from './io.ts';

/** Reads a file that the command line names, as bytes; `where` says what named it. */
export async function readNamedFile(file: string, where: string, io: Io): Promise<Buffer> {
  const absolute = path.resolve(io.cwd, file);
  try {
    return await readFile(absolute);
  } catch (error) {
    const isMissing = systemCodeOf(error) === 'ENOENT';
    throw new RyeError(
      isMissing ? 'file_not_found' : 'invalid_input',
      isMissing ? `${where}: there is no file ${file}` : `${where}: ${messageOf(error)}`,
      { hint: `Paths are relative to ${io.cwd}.`, details: { path: absolute } },
    );
  }
}

/** Text of a file, or of standard input where the name is `-`. */
export async function readTextSource(source: string, where: string, io: Io): Promise<string> {
  if (source === '-') return io.readStdin();
  return (await readNamedFile(source, where, io)).toString('utf8');
}

/** Refuses a result file that can't be made, before money is spent on the result. */
export async function assertWritableTarget(option: string, file: string, io: Io): Promise<string> {
  const absolute = path.resolve(io.cwd, file);
  const folder = await stat(path.dirname(absolute)).catch(() => undefined);
  const target = await stat(absolute).catch(() => undefined);
  if (folder?.isDirectory() === true && target?.isDirectory() !== true) return absolute;
  throw new RyeError('invalid_input', `${option}: ${file} cannot be written`, {
    hint: target === undefined ? 'Make its folder first.' : 'It is a folder: name a file in it.',
  });
}
