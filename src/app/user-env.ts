import { closeSync, constants, fstatSync, openSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { systemCodeOf } from '../core/errors.ts';
import type { OpenRyeOptions } from './rye.ts';

const MAX_BYTES = 65_536;
const GROUP_AND_WORLD = 0o077;

/**
 * The environment with `~/.ai/.env` below it: `NAME=value` lines, `#` comments, optional quotes. Anything but a
 * regular file is ignored, with a notice; a file that others can read is used, with a notice.
 */
export function withUserEnv({
  env,
  userSpacePath,
  onNotice,
}: OpenRyeOptions): OpenRyeOptions['env'] {
  const path = join(userSpacePath, '.ai', '.env');
  let descriptor: number;
  try {
    // without O_NONBLOCK a FIFO would hang every command
    descriptor = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    if (systemCodeOf(error) !== 'ENOENT') onNotice?.(`${path} cannot be read and is ignored`);
    return env;
  }
  try {
    const stats = fstatSync(descriptor);
    if (!stats.isFile() || stats.size > MAX_BYTES) {
      onNotice?.(`${path} is ignored: it is not a regular file of at most 64 KiB`);
      return env;
    }
    if (process.platform !== 'win32' && (stats.mode & GROUP_AND_WORLD) !== 0)
      onNotice?.(`${path} holds keys, and others can reach it. Run: chmod 600 ${path}`);
    return { ...Object.fromEntries(entriesOf(readFileSync(descriptor, 'utf8'))), ...env };
  } finally {
    closeSync(descriptor);
  }
}

function entriesOf(text: string): [string, string][] {
  return text.split(/\r?\n/).flatMap((line): [string, string][] => {
    const match = /^\s*(?:export\s+)?([A-Za-z_]\w*)\s*=\s*(.*?)\s*$/.exec(line);
    if (!match) return [];
    const [, name = '', value = ''] = match;
    return [[name, value.replace(/^(["'])(.*)\1$/, '$2')]];
  });
}
