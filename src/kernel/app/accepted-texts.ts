import { existsSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { messageOf } from '../core/errors.ts';
import { diffOf } from '../core/line-diff.ts';
import { makeFolders } from '../disk/folders.ts';
import { readRegular } from '../disk/regular-file.ts';
import { writeWhole } from '../disk/whole-file.ts';
import { skillListPath } from '../items/skill-files-fs.ts';
import type { GuardChange, Pin, PowerFile } from '../trust/lock.ts';
import type { GuardDiff } from './api/items.ts';

/** Longer files are accepted without a diff. */
const MAX_BYTES = 256 * 1024;
const MAX_LINES = 200;
const SIGNS = { add: '+', remove: '-', same: ' ', gap: '…' } as const;

/** Keeps the texts of pinned files in a folder of the user space, by their hashes, for a later diff. */
export function keepTexts(
  folder: string,
  files: readonly PowerFile[],
  onNotice: (text: string) => void,
): void {
  try {
    const wanted = new Set(files.flatMap(({ sha256 }) => sha256 ?? []));
    makeFolders(folder, 0o700);
    for (const file of files) {
      const path = join(folder, file.sha256 ?? '');
      const text = file.sha256 === null || existsSync(path) ? undefined : textOf(file);
      if (text !== undefined) writeWhole(path, text, { mode: 0o600, follow: false, sync: 'none' });
    }
    for (const name of readdirSync(folder)) {
      if (!wanted.has(name)) rmSync(join(folder, name), { force: true });
    }
  } catch (error) {
    onNotice(`the texts of accepted files are not kept: ${messageOf(error)}`);
  }
}

/** Returns what each change would put into force: the lines that differ from the accepted text, as far as it is kept. */
export function diffsOf(
  folder: string,
  changes: readonly GuardChange[],
  { files, pins }: { readonly files: readonly PowerFile[]; readonly pins: readonly Pin[] },
): readonly GuardDiff[] {
  return changes.flatMap(({ type, id }): readonly GuardDiff[] => {
    if (type === null || id === null) return [];
    const isIt = (one: { readonly type: string; readonly id: string }): boolean =>
      one.type === type && one.id === id;
    const kept = join(folder, pins.find(isIt)?.sha256 ?? 'none');
    const file = files.find(isIt);
    const before = existsSync(kept) ? readRegular(kept).toString('utf8') : '';
    const lines = diffOf(before, (file && textOf(file)) ?? '');
    const shown = lines.map(({ kind, text }) => `${SIGNS[kind]}${text}`);
    const more = shown.length - MAX_LINES;
    return [
      {
        type,
        id,
        lines: more > 0 ? [...shown.slice(0, MAX_LINES), `… ${more} more lines`] : shown,
      },
    ];
  });
}

/** The text that a pin covers; undefined for one that is too long or cannot be read. */
function textOf({ type, path }: PowerFile): string | undefined {
  try {
    const list = skillListPath(dirname(path));
    const bytes = readRegular(type === 'skill' && existsSync(list) ? list : path);
    return bytes.length > MAX_BYTES ? undefined : bytes.toString('utf8');
  } catch {
    return undefined;
  }
}
