import { execFileSync } from 'node:child_process';
import { mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import {
  type BundleFile,
  readTar,
  tarSize,
  writeTar,
} from '../../src/features/fleet/bundle/tar.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { runs } from '../helpers/runs.ts';

function file(name: string, text = name, isExecutable = false): BundleFile {
  return { path: name, bytes: Buffer.from(text), isExecutable };
}

function plain(files: readonly BundleFile[]) {
  return files.map(({ bytes, ...rest }) => ({
    ...rest,
    bytes: Buffer.from(bytes).toString('hex'),
  }));
}

const part = fc.stringMatching(/^[a-z0-9_é][a-z0-9._é-]{0,60}$/);
const paths = fc.uniqueArray(
  fc.array(part, { minLength: 1, maxLength: 4 }).map((parts) => parts.join('/')),
  { maxLength: 12 },
);
const someFiles = paths.chain((names) =>
  fc.tuple(
    ...names.map((name, index) =>
      fc.record({
        // a file is not also a folder
        path: fc.constant(`${index}-${name}`),
        bytes: fc.uint8Array({ maxLength: 1100 }),
        isExecutable: fc.boolean(),
      }),
    ),
  ),
);

const sorted = (files: readonly BundleFile[]): readonly BundleFile[] =>
  files.toSorted((one, other) => Buffer.compare(Buffer.from(one.path), Buffer.from(other.path)));

describe('a tar', () => {
  it('has the files that were written, and the same bytes in every order of them', () => {
    fc.assert(
      fc.property(someFiles, fc.nat(), (files, seed) => {
        const tar = writeTar(files);
        expect(plain(readTar(tar))).toEqual(plain(sorted(files)));
        expect(tar.length).toBe(tarSize(files));
        const turned = [
          ...files.slice(seed % (files.length + 1)),
          ...files.slice(0, seed % (files.length + 1)),
        ];
        expect(writeTar(turned).equals(tar)).toBe(true);
      }),
      runs(200),
    );
  });

  it('is refused, or has other content, after any change of a byte', () => {
    fc.assert(
      fc.property(someFiles, fc.nat(), fc.integer({ min: 1, max: 255 }), (files, at, by) => {
        const tar = writeTar(files);
        const before = plain(readTar(tar));
        const index = at % tar.length;
        tar[index] = ((tar[index] ?? 0) + by) % 256;
        let after: unknown;
        try {
          after = plain(readTar(tar));
        } catch (error) {
          expect(error).toMatchObject({ code: 'invalid_input' });
          return;
        }
        expect(after).not.toEqual(before);
      }),
      runs(400),
    );
  });

  it('is one that the program tar lists and extracts', () => {
    const folder = mkdtempSync(path.join(tmpdir(), 'rye-tar-'));
    onTestFinished(() => removeFolder(folder));
    const long = `${'folder/'.repeat(14)}${'n'.repeat(90)}.md`;
    const files = [file('tools/run.sh', 'echo', true), file('directives/é.md'), file(long)];
    writeFileSync(path.join(folder, 'b.tar'), writeTar(files));
    execFileSync('tar', ['-xf', 'b.tar'], { cwd: folder });
    for (const { path: name, bytes } of files)
      expect(readFileSync(path.join(folder, name)).equals(bytes)).toBe(true);
    const listed = execFileSync('tar', ['-tvf', 'b.tar'], { cwd: folder, encoding: 'utf8' });
    expect(listed).toMatch(/^-rwxr-xr-x .*tools\/run\.sh$/m);
    expect(listed).toContain('1970-01-01');
  });

  it.each([
    ['/etc/passwd'],
    ['../x'],
    ['a/../b'],
    ['a//b'],
    ['./a'],
    ['a/'],
    [''],
    ['a\\b'],
    ['a\nb'],
    ['\u{d800}'],
    ['x'.repeat(101)],
    [`${'folder/'.repeat(40)}x`],
  ])('is not written with the path %j', (name) => {
    expect(() => writeTar([file(name)])).toThrow(
      expect.objectContaining({ code: 'invalid_input' }) as Error,
    );
  });

  it.each([
    ['the same path twice', ['a.md', 'a.md']],
    ['paths that differ by case', ['a/Read.md', 'a/read.md']],
    ['paths that differ by their Unicode form', ['\u{e9}.md', 'e\u{301}.md']],
    ['a file that is a folder too', ['a', 'a/b']],
    ['a file that is a folder in another case', ['A', 'a/b']],
  ])('is not written with %s', (_what, names) => {
    expect(() => writeTar(names.map((name) => file(name)))).toThrow(
      expect.objectContaining({ code: 'invalid_input' }) as Error,
    );
  });

  it('is not written with more than 10,000 files', () => {
    const many = Array.from({ length: 10_001 }, (_, index) => file(`f${index}`, ''));
    expect(() => writeTar(many)).toThrow('more than 10000 files');
    expect(readTar(writeTar(many.slice(1)))).toHaveLength(10_000);
  });
});

/** A header field is replaced and its checksum repaired, as another program would write it. */
function withField(tar: Buffer, at: number, bytes: string): Buffer {
  const changed = Buffer.from(tar);
  changed.write(bytes, at, 'latin1');
  changed.write(' '.repeat(8), 148, 'latin1');
  const sum = changed.subarray(0, 512).reduce((total, byte) => total + byte, 0);
  changed.write(`${sum.toString(8).padStart(6, '0')}\u{0} `, 148, 'latin1');
  return changed;
}

describe('the reader of a tar', () => {
  const tar = writeTar([file('a/one.md', 'text'), file('a/two.md')]);

  it.each([
    ['a link', 156, '2'],
    ['a hard link', 156, '1'],
    ['a device', 156, '3'],
    ['a folder', 156, '5'],
    ['a header of PAX', 156, 'x'],
    ['a name that goes up', 0, '../one.md\u{0}'],
    ['an absolute name', 0, '/a/one.md\u{0}'],
    ['the name of another file', 0, 'a/two.md'],
    ['a name in the wrong place', 0, 'b/one.md'],
    ['another mode', 100, '0000777\u{0}'],
    ['setuid', 100, '0004755\u{0}'],
    ['an owner', 108, '0000001\u{0}'],
    ['a time', 136, '00000000001\u{0}'],
    ['a size with spaces', 124, '          4\u{0}'],
    ['a size that is too large', 124, '77777777777\u{0}'],
    ['a size that skips a header', 124, '00000002000\u{0}'],
    [
      'a negative size',
      124,
      '\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{ff}\u{fc}',
    ],
    ['the name of a user', 265, 'root'],
    ['another magic', 257, 'ustar  \u{0}'],
    ['bytes after the name', 60, 'hidden'],
  ])('refuses %s', (_what, at, bytes) => {
    expect(() => readTar(withField(tar, at, bytes))).toThrow(
      expect.objectContaining({ code: 'invalid_input' }) as Error,
    );
  });

  it('refuses a wrong checksum, padding, bytes after the end, and a cut', () => {
    const checksum = Buffer.from(tar);
    checksum.write('0000000', 148, 'latin1');
    const padding = Buffer.from(tar);
    padding[512 + 4] = 1;
    const cuts = [0, 1, 511, 512, 513, 1024, tar.length - 512, tar.length - 1];
    const bad = [
      checksum,
      padding,
      Buffer.concat([tar, Buffer.alloc(512)]),
      Buffer.concat([tar, Buffer.from('x')]),
      Buffer.concat([tar, tar]),
      ...cuts.map((end) => tar.subarray(0, end)),
    ];
    for (const one of bad)
      expect(() => readTar(one)).toThrow(
        expect.objectContaining({ code: 'invalid_input' }) as Error,
      );
    expect(readTar(tar)).toHaveLength(2);
  });
});
