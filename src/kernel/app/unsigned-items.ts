import { relative, sep } from 'node:path';
import { ITEM_TYPES, type SignableType } from '../core/ids.ts';
import { verifyOne } from '../items/signing-fs.ts';
import { tryGit } from '../tools/git.ts';
import type { UnsignedItem } from './api/items.ts';
import type { Workspace } from './workspace.ts';

/** Threads sign their exports themselves. */
const EXPORTS = 'agent/threads';

/** Returns the items of the project's folder whose signature does not count, with the lines changed since the last commit. */
export async function unsignedItems(
  workspace: Workspace,
  types: readonly SignableType[] = [...ITEM_TYPES, 'config'],
): Promise<readonly UnsignedItem[]> {
  const { spaces, verification } = workspace;
  const unsigned = types.flatMap((type) =>
    spaces
      .list(type, { space: spaces.own, ...(type === 'knowledge' ? { without: EXPORTS } : {}) })
      .map((item) => verifyOne(item, verification))
      .filter(({ ok }) => !ok),
  );
  if (unsigned.length === 0) return [];
  const changes = await changedLines(workspace.options);
  return unsigned.map((item) => {
    const lines = changes.get(relative(workspace.options.projectPath, item.path));
    return lines === undefined ? item : { ...item, changes: lines };
  });
}

/** Counts the lines that changed since the last commit, by path below the project; empty without git. */
async function changedLines({
  projectPath: cwd,
  env,
}: Workspace['options']): Promise<ReadonlyMap<string, NonNullable<UnsignedItem['changes']>>> {
  const safe = ['--numstat', '-z', '--relative', '--no-renames', '--no-ext-diff', '--no-textconv'];
  const found = await tryGit(['diff', ...safe, 'HEAD', '--', '.ai'], { cwd, env }).catch(
    () => undefined, // there is no git
  );
  const rows = found?.code === 0 ? found.stdout.toString('utf8').split('\0') : [];
  return new Map(
    rows.flatMap((row) => {
      const [, added, removed, path] = /^(\d+)\t(\d+)\t(.+)$/s.exec(row) ?? [];
      if (path === undefined) return [];
      const lines = { added: Number(added), removed: Number(removed) };
      return [[path.split('/').join(sep), lines] as const];
    }),
  );
}
