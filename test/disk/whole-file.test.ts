import {
  fsyncSync,
  linkSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { makeFolders, makeFoldersBy } from '../../src/kernel/disk/folders.ts';
import {
  appendWhole,
  createWhole,
  stageFile,
  writeOutput,
  writeWhole,
  writeWholeBy,
} from '../../src/kernel/disk/whole-file.ts';
import { removeFolder } from '../helpers/remove-folder.ts';

let folder: string;

beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'rye-disk-'));
  onTestFinished(() => removeFolder(folder));
});

const modeOf = (path: string): number => statSync(path).mode & 0o7777;

describe('writeWhole', () => {
  it('keeps the permissions of a file that exists', () => {
    const path = join(folder, 'secret');
    writeFileSync(path, 'old', { mode: 0o640 });
    writeWhole(path, 'new');
    expect([readFileSync(path, 'utf8'), modeOf(path)]).toEqual(['new', 0o640]);
  });

  it('gives the asked permissions to a new file and to one that was open to others', () => {
    const path = join(folder, 'key');
    writeWhole(path, 'one', { mode: 0o600 });
    expect(modeOf(path)).toBe(0o600);
    writeFileSync(join(folder, 'wide'), 'old', { mode: 0o644 });
    writeWhole(join(folder, 'wide'), 'two', { mode: 0o600 });
    expect(modeOf(join(folder, 'wide'))).toBe(0o600);
  });

  it('leaves to the umask what a new file without asked permissions gets', () => {
    const before = process.umask(0o027);
    onTestFinished(() => void process.umask(before));
    writeWhole(join(folder, 'new'), 'text');
    expect(modeOf(join(folder, 'new'))).toBe(0o640);
  });

  it('writes the file that a link names, and replaces the link when told not to follow', () => {
    const path = join(folder, 'link');
    mkdirSync(join(folder, 'else'));
    writeFileSync(join(folder, 'else', 'file'), 'old');
    symlinkSync(join('else', 'file'), path);
    writeWhole(path, 'new');
    expect(lstatSync(path).isSymbolicLink()).toBe(true);
    expect(readFileSync(join(folder, 'else', 'file'), 'utf8')).toBe('new');
    writeWhole(path, 'own', { follow: false });
    expect(lstatSync(path).isSymbolicLink()).toBe(false);
    expect(readFileSync(join(folder, 'else', 'file'), 'utf8')).toBe('new');
  });

  it('leaves the old content to other hard links of the file', () => {
    writeFileSync(join(folder, 'one'), 'old');
    linkSync(join(folder, 'one'), join(folder, 'two'));
    writeWhole(join(folder, 'one'), 'new');
    expect(readFileSync(join(folder, 'two'), 'utf8')).toBe('old');
  });

  it('names the file and the cause when it cannot write', () => {
    expect(() => writeWhole(join(folder, 'none', 'file'), 'x')).toThrow(
      expect.objectContaining({
        code: 'state_unwritable',
        message: `cannot write ${join(folder, 'none', 'file')}: its folder is missing (ENOENT)`,
      }),
    );
    expect(() => writeWhole(folder, 'x')).toThrow(/it is a folder \(EISDIR\)/);
    expect(() => writeWhole('/dev/null', 'x')).toThrow(/it is not a regular file/);
    expect(readdirSync(folder)).toEqual([]);
  });
});

describe('stageFile', () => {
  it('shows nothing under the name before commit, and leaves nothing after discard', () => {
    const path = join(folder, 'file');
    writeFileSync(path, 'old');
    const staged = stageFile(path);
    staged.write('new');
    expect(readFileSync(path, 'utf8')).toBe('old');
    staged.discard();
    staged.discard();
    expect(readdirSync(folder)).toEqual(['file']);
  });

  it('refuses to commit when the file holds another number of bytes than were written', () => {
    const path = join(folder, 'file');
    writeFileSync(path, 'old');
    const staged = stageFile(path);
    staged.write('whole');
    const temporary = readdirSync(folder).find((name) => name.startsWith('.rye-')) ?? '';
    writeFileSync(join(folder, temporary), 'cut');
    expect(() => staged.commit()).toThrow('the disk holds 3 of 5 bytes');
    expect(readdirSync(folder)).toEqual(['file']);
    expect(readFileSync(path, 'utf8')).toBe('old');
  });
});

describe('createWhole', () => {
  it('never replaces a file, and removes its temporary name', () => {
    const path = join(folder, 'file');
    expect(createWhole(path, 'first', { mode: 0o600 })).toBe(true);
    expect(createWhole(path, 'second')).toBe(false);
    expect(readFileSync(path, 'utf8')).toBe('first');
    expect([readdirSync(folder), modeOf(path), statSync(path).nlink]).toEqual([['file'], 0o600, 1]);
  });
});

describe('writeOutput', () => {
  it('hands the bytes to a device, and replaces a file whole', () => {
    writeOutput('/dev/null', 'x');
    expect(lstatSync('/dev/null').isCharacterDevice()).toBe(true);
    expect(() => writeOutput('/dev/full', 'x')).toThrow(
      expect.objectContaining({
        code: 'storage_failed',
        message: 'cannot write /dev/full: the disk is full (ENOSPC)',
      }),
    );
    writeOutput(join(folder, 'file'), 'text');
    expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('text');
  });
});

describe('appendWhole', () => {
  it('adds to what is there', () => {
    const path = join(folder, 'file');
    writeFileSync(path, 'one\n');
    appendWhole(path, 'two\n');
    expect(readFileSync(path, 'utf8')).toBe('one\ntwo\n');
  });
});

describe('makeFolders', () => {
  it('makes what is missing with the asked permissions, and minds nothing that exists', () => {
    makeFolders(join(folder, 'a', 'b', 'c'), 0o700);
    makeFolders(join(folder, 'a', 'b', 'c'), 0o700);
    expect(modeOf(join(folder, 'a', 'b'))).toBe(0o700);
    writeFileSync(join(folder, 'file'), '');
    expect(() => makeFolders(join(folder, 'file', 'x'))).toThrow(/not a folder \(ENOTDIR\)/);
  });
});

describe('syncs that leave the main thread', () => {
  /** Syncs later, and records what is in the folder then. */
  const recorder = () => {
    const seen: (readonly string[])[] = [];
    const syncer = async (fd: number): Promise<void> => {
      await Promise.resolve();
      seen.push(readdirSync(folder));
      fsyncSync(fd);
    };
    return { seen, syncer };
  };

  it('a file has its name only after its content is synced, then its folder is', async () => {
    const { seen, syncer } = recorder();
    await writeWholeBy(syncer, join(folder, 'file'), 'text');
    expect(seen).toEqual([[expect.stringMatching(/^\.rye-.*\.tmp$/)], ['file']]);
    expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('text');
  });

  it('a file that the disk does not keep leaves the old one and nothing else', async () => {
    writeFileSync(join(folder, 'file'), 'old');
    const broken = () => Promise.reject(Object.assign(new Error('broken'), { code: 'EIO' }));
    const written = writeWholeBy(broken, join(folder, 'file'), 'new');
    await expect(written).rejects.toThrow(/EIO/);
    expect(readdirSync(folder)).toEqual(['file']);
    expect(readFileSync(join(folder, 'file'), 'utf8')).toBe('old');
  });

  it('each folder that is made is synced into its parent', async () => {
    const { seen, syncer } = recorder();
    await makeFoldersBy(syncer, join(folder, 'a', 'b'));
    await makeFoldersBy(syncer, join(folder, 'a', 'b'));
    expect(seen).toHaveLength(2);
  });
});
