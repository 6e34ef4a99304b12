import { existsSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, describe, expect, it } from 'vitest';
import { type MergeOutcome, mergeChanges } from '../../src/features/worktrees/merge.ts';
import type { CollectedFile } from '../../src/features/worktrees/worktrees.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';
import type { FileChange } from '../../src/kernel/core/file-change.ts';
import { RestoredFiles } from '../../src/kernel/tools/restored-files.ts';

interface Version {
  readonly text: string;
  readonly mode?: '100644' | '100755';
}

/** A file as the commit and the worktree have it; absent: it does not exist there. */
interface Changed {
  readonly path: string;
  readonly base?: Version;
  readonly theirs?: Version;
}

const folders: string[] = [];

afterEach(() => {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true });
});

class Folder {
  readonly path = mkdtempSync(join(tmpdir(), 'rye-merge-'));
  readonly kept: FileChange[] = [];

  constructor() {
    folders.push(this.path);
  }

  put(path: string, text: string): void {
    writeFileSync(join(this.path, path), text);
  }

  text(path: string): string | null {
    const file = join(this.path, path);
    return existsSync(file) ? readFileSync(file, 'utf8') : null;
  }

  mode(path: string): number {
    return statSync(join(this.path, path)).mode & 0o777;
  }

  /** Merges; `before` runs after each change is recorded and before it is made. */
  async merge(
    changed: readonly Changed[],
    before: (change: FileChange, index: number) => void = () => undefined,
  ): Promise<MergeOutcome> {
    const blobs = new Map<string, string>();
    const side = (path: string, name: string, version?: Version): CollectedFile['before'] => {
      if (!version) return { mode: '000000', blob: '0' };
      blobs.set(`${name}:${path}`, version.text);
      return { mode: version.mode ?? '100644', blob: `${name}:${path}` };
    };
    const contentOf = async (_path: string, id: string) =>
      await Promise.resolve(Buffer.from(blobs.get(id) ?? ''));
    return await mergeChanges({
      contentOf,
      files: changed.map(({ path, base, theirs }) => ({
        path,
        change: base ? (theirs ? 'modified' : 'deleted') : 'added',
        before: side(path, 'base', base),
        after: side(path, 'theirs', theirs),
      })),
      target: {
        path: this.path,
        files: new RestoredFiles({ projectPath: this.path, allow: [], threadId: 't' }),
      },
      keep: async (change) => {
        this.kept.push(change);
        before(change, this.kept.length - 1);
        await Promise.resolve();
      },
      env: process.env,
    });
  }
}

const FILES: readonly Changed[] = [
  { path: 'a.txt', base: { text: 'a\n' }, theirs: { text: 'A\n' } },
  { path: 'new/deep/n.txt', theirs: { text: 'new\n' } },
  { path: 'old.txt', base: { text: 'old\n' } },
  { path: 'run.sh', base: { text: 'r\n' }, theirs: { text: 'r\n', mode: '100755' } },
  { path: 'z.txt', base: { text: 'one\n' }, theirs: { text: 'ONE\n' } },
];

function project(): Folder {
  const folder = new Folder();
  for (const { path, base } of FILES) if (base) folder.put(path, base.text);
  return folder;
}

describe('a merge of a worktree', () => {
  it('merges every file, also one whose permissions alone differ', async () => {
    const folder = project();
    expect(await folder.merge(FILES)).toEqual({ conflicts: [], merged: [] });
    expect(FILES.map(({ path }) => folder.text(path))).toEqual(
      FILES.map(({ theirs }) => theirs?.text ?? null),
    );
    expect(folder.mode('run.sh') & 0o111).toBe(0o111);
  });

  it('takes back what it merged if a later file begins to conflict meanwhile', async () => {
    const folder = project();
    const modes = folder.mode('run.sh');
    const outcome = await folder.merge(FILES, ({ path }) => {
      if (path === 'z.txt') folder.put('z.txt', 'person\n');
    });
    expect(outcome).toEqual({
      conflicts: [{ path: 'z.txt', reason: 'the same lines were changed' }],
      merged: [],
    });
    expect(folder.text('a.txt')).toBe('a\n');
    expect(folder.text('old.txt')).toBe('old\n');
    expect(existsSync(join(folder.path, 'new'))).toBe(false);
    expect(folder.mode('run.sh')).toBe(modes);
    expect(folder.text('z.txt')).toBe('person\n');
    // an undo follows the record: the last change of a file ends with what is there
    const last = folder.kept.findLast(({ path }) => path === 'a.txt');
    expect(last).toMatchObject({ merged: true, after: { bytes: 2 } });
    expect(last?.before?.sha256).not.toBe(last?.after?.sha256);
  });

  it('takes back files of one new folder, and the folder with the last of them', async () => {
    const folder = project();
    const [last] = FILES.slice(-1);
    const added = ['new/a.txt', 'new/b.txt'].map((path) => ({ path, theirs: { text: path } }));
    const outcome = await folder.merge([...added, ...(last ? [last] : [])], ({ path }) => {
      if (path === 'z.txt') folder.put('z.txt', 'person\n');
    });
    expect(outcome).toMatchObject({ conflicts: [{ path: 'z.txt' }], merged: [] });
    expect(existsSync(join(folder.path, 'new'))).toBe(false);
  });

  it('names a merged file that a person changed before it was taken back', async () => {
    const folder = project();
    const outcome = await folder.merge(FILES, ({ path }) => {
      if (path !== 'z.txt') return;
      folder.put('z.txt', 'person\n');
      folder.put('a.txt', 'A\nand more\n');
    });
    // the next attempt finds the person's text in a.txt too
    expect(outcome.conflicts.map(({ path }) => path)).toEqual(['a.txt', 'z.txt']);
    expect(outcome.merged).toEqual(['a.txt']);
    expect(folder.text('a.txt')).toBe('A\nand more\n');
    expect(folder.text('old.txt')).toBe('old\n');
  });

  it('reports a conflict, and keeps nothing, if a file changes at every attempt', async () => {
    const folder = project();
    const outcome = await folder.merge(FILES, ({ path }, index) => {
      if (path === 'z.txt') folder.put('z.txt', `one\n\n\n\nperson ${index}\n`);
    });
    expect(outcome).toMatchObject({ conflicts: [{ path: 'z.txt' }], merged: [] });
    expect(folder.text('a.txt')).toBe('a\n');
  });

  it('takes back what it merged before it fails', async () => {
    const folder = project();
    const failing = folder.merge(FILES, ({ path }) => {
      if (path === 'z.txt') throw new RyeError('storage_failed', 'disk full');
    });
    await expect(failing).rejects.toMatchObject({ code: 'storage_failed', message: 'disk full' });
    expect(folder.text('a.txt')).toBe('a\n');
    expect(folder.text('old.txt')).toBe('old\n');
  });

  it('names the merged files in its failure if nothing can be recorded any more', async () => {
    const folder = project();
    let isBroken = false;
    const failing = folder.merge(FILES, ({ path }) => {
      isBroken ||= path === 'old.txt';
      if (isBroken) throw new RyeError('storage_failed', 'disk full');
    });
    await expect(failing).rejects.toMatchObject({
      code: 'storage_failed',
      message: 'disk full; these files are merged: a.txt, new/deep/n.txt',
    });
  });

  it('reports a file that both sides added as added', async () => {
    const folder = project();
    folder.put('n.txt', 'mine\n');
    expect(await folder.merge([{ path: 'n.txt', theirs: { text: 'theirs\n' } }])).toEqual({
      conflicts: [{ path: 'n.txt', reason: 'it was added on both sides' }],
      merged: [],
    });
  });
});
