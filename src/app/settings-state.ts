import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { systemCodeOf } from '../core/errors.ts';

/** Files and folders that are looked at; more than that are not compared. */
const MAX_FILES = 1000;
/** A file may change again without a new time of change within this many milliseconds. */
const YOUNG_MS = 100;

interface Places {
  readonly projectPath: string;
  readonly userSpacePath: string;
}

/**
 * Returns a text that differs after any change of the files that an opened rye reads once: configuration, keys, their
 * signatures and the user's `.env`. Undefined if it can't prove that, as for files that changed just now or are links.
 */
export function settingsState(
  { projectPath, userSpacePath }: Places,
  nowMs: number,
): string | undefined {
  const roots = [projectPath, userSpacePath].flatMap((space) =>
    ['config', 'signatures', '.env'].map((name) => join(space, '.ai', name)),
  );
  const lines: string[] = [];
  const look = (path: string): boolean => {
    const stats = statsOf(path);
    if (stats === undefined) {
      lines.push(`${path} -`);
      return true;
    }
    const { ino, size, mode, mtimeNs, ctimeNs } = stats;
    const isYoung = Number(ctimeNs / 1_000_000n) > nowMs - YOUNG_MS;
    if (lines.length >= MAX_FILES || isYoung || stats.isSymbolicLink()) return false;
    lines.push(`${path} ${ino} ${size} ${mode} ${mtimeNs} ${ctimeNs}`);
    if (!stats.isDirectory()) return true;
    return readdirSync(path).every((name) => look(join(path, name)));
  };
  return roots.every(look) ? lines.join('\n') : undefined;
}

function statsOf(path: string) {
  try {
    return lstatSync(path, { bigint: true });
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
