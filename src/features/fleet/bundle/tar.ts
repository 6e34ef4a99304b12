import { RyeError } from '../../../kernel/core/errors.ts';

/** A file of a bundle. */
export interface BundleFile {
  /** Path below `.ai`, with `/` between its parts. */
  readonly path: string;
  readonly bytes: Uint8Array;
  readonly isExecutable: boolean;
}

const MAX_FILES = 10_000;

const BLOCK = 512;
const END = Buffer.alloc(2 * BLOCK);
const NAME_BYTES = 100;
const PREFIX_BYTES = 155;
const CHECKSUM_AT = 148;
const MODE = { plain: 0o644, executable: 0o755 };

/**
 * Writes files as a tar (ustar), in the order of the bytes of their paths, without times and owners: the same files give the
 * same bytes. Throws `invalid_input` for a path that the reader refuses.
 */
export function writeTar(files: readonly BundleFile[]): Buffer {
  assertPaths(files.map(({ path }) => path));
  const sorted = files.toSorted((one, other) => compareBytes(one.path, other.path));
  return Buffer.concat([
    ...sorted.flatMap((file) => [headerOf(file), file.bytes, paddingOf(file.bytes.length)]),
    END,
  ]);
}

/**
 * Reads a tar that {@link writeTar} wrote. Throws `invalid_input` for all else: another form of a header, a link or a device,
 * a path that leaves the folder or that another one could replace, a wrong order, and bytes after the end.
 */
export function readTar(tar: Uint8Array): readonly BundleFile[] {
  const bytes = Buffer.from(tar.buffer, tar.byteOffset, tar.byteLength);
  const files: BundleFile[] = [];
  let at = 0;
  while (bytes.length - at > END.length) {
    const file = fileAt(bytes, at);
    files.push(file);
    if (files.length > MAX_FILES) throw malformed(`it has more than ${MAX_FILES} files`);
    at += BLOCK + file.bytes.length + paddingOf(file.bytes.length).length;
  }
  if (!bytes.subarray(at).equals(END)) throw malformed('its end is not that of a tar');
  for (const [index, { path }] of files.entries()) {
    const before = files[index - 1]?.path;
    if (before !== undefined && compareBytes(before, path) >= 0)
      throw malformed(`${JSON.stringify(path)} is not in its place`);
  }
  assertPaths(files.map(({ path }) => path));
  return files;
}

function fileAt(bytes: Buffer, at: number): BundleFile {
  const header = bytes.subarray(at, at + BLOCK);
  const path = pathIn(header);
  const size = octal(header, 124, 12);
  const start = at + BLOCK;
  const end = start + size;
  const padding = paddingOf(size);
  if (end + padding.length + END.length > bytes.length) throw malformed(`${path} is cut`);
  const isExecutable = octal(header, 100, 8) === MODE.executable;
  const file = { path, bytes: bytes.subarray(start, end), isExecutable };
  // one comparison refuses links, devices, owners, times, wrong checksums and every other spelling of a number
  if (!header.equals(headerOf(file))) throw malformed(`the header of ${JSON.stringify(path)}`);
  if (!bytes.subarray(end, end + padding.length).equals(padding))
    throw malformed(`the padding of ${JSON.stringify(path)}`);
  return file;
}

function pathIn(header: Buffer): string {
  const name = textAt(header, 0, NAME_BYTES);
  const prefix = textAt(header, 345, PREFIX_BYTES);
  return prefix === '' ? name : `${prefix}/${name}`;
}

function textAt(header: Buffer, at: number, length: number): string {
  const field = header.subarray(at, at + length);
  const end = field.indexOf(0);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(
      field.subarray(0, end === -1 ? length : end),
    );
  } catch {
    throw malformed('a name is not UTF-8');
  }
}

function octal(header: Buffer, at: number, length: number): number {
  const text = header.toString('latin1', at, at + length - 1);
  if (!/^[0-7]+$/.test(text)) throw malformed('a number is not octal');
  return Number.parseInt(text, 8);
}

function headerOf({ path, bytes, isExecutable }: BundleFile): Buffer {
  const { name, prefix } = splitPath(path);
  const header = Buffer.alloc(BLOCK);
  header.write(name, 0, 'utf8');
  header.write(octalText(isExecutable ? MODE.executable : MODE.plain, 8), 100, 'latin1');
  header.write(octalText(0, 8), 108, 'latin1');
  header.write(octalText(0, 8), 116, 'latin1');
  header.write(octalText(bytes.length, 12), 124, 'latin1');
  header.write(octalText(0, 12), 136, 'latin1');
  header.write(' '.repeat(8), CHECKSUM_AT, 'latin1');
  header.write('0', 156, 'latin1');
  header.write('ustar\u{0}00', 257, 'latin1');
  header.write(octalText(0, 8), 329, 'latin1');
  header.write(octalText(0, 8), 337, 'latin1');
  header.write(prefix, 345, 'utf8');
  const sum = header.reduce((total, byte) => total + byte, 0);
  header.write(`${octalText(sum, 7)} `, CHECKSUM_AT, 'latin1');
  return header;
}

/** Returns the length of the tar of these files, in bytes. */
export function tarSize(files: readonly BundleFile[]): number {
  const sizes = files.map(({ bytes }) => BLOCK + bytes.length + paddingOf(bytes.length).length);
  return sizes.reduce((sum, size) => sum + size, END.length);
}

/** Digits and a NUL, `length` bytes together. */
function octalText(value: number, length: number): string {
  return `${value.toString(8).padStart(length - 1, '0')}\u{0}`;
}

function paddingOf(size: number): Buffer {
  return Buffer.alloc((BLOCK - (size % BLOCK)) % BLOCK);
}

/** Splits a path at the first slash that leaves a short enough name. */
function splitPath(path: string): { readonly name: string; readonly prefix: string } {
  if (Buffer.byteLength(path) <= NAME_BYTES) return { name: path, prefix: '' };
  for (let at = path.indexOf('/'); at > 0; at = path.indexOf('/', at + 1)) {
    const [prefix, name] = [path.slice(0, at), path.slice(at + 1)];
    if (Buffer.byteLength(prefix) > PREFIX_BYTES) break;
    if (Buffer.byteLength(name) <= NAME_BYTES) return { name, prefix };
  }
  throw new RyeError('invalid_input', `the path ${path} is too long for a bundle`, {
    hint: 'Shorten it: a tar has 100 bytes for a name and 155 for its folders.',
    location: { path },
  });
}

const BAD_PART = /^\.{0,2}$|[\\\p{Cc}\p{Cs}]/u;

/** Refuses paths that could leave the folder, and two that are one file in some file systems. */
function assertPaths(paths: readonly string[]): void {
  if (paths.length > MAX_FILES) throw malformed(`it has more than ${MAX_FILES} files`);
  const known = new Map<string, string>();
  for (const path of paths) {
    if (path.split('/').some((part) => BAD_PART.test(part)))
      throw malformed(`the path ${JSON.stringify(path)}`);
    const other = known.get(folded(path));
    if (other !== undefined)
      throw malformed(`${JSON.stringify(other)} and ${JSON.stringify(path)} may be one file`);
    known.set(folded(path), path);
  }
  for (const path of paths) {
    const parts = folded(path).split('/');
    for (let count = 1; count < parts.length; count += 1) {
      const folder = known.get(parts.slice(0, count).join('/'));
      if (folder !== undefined)
        throw malformed(
          `${JSON.stringify(folder)} is a file and the folder of ${JSON.stringify(path)}`,
        );
    }
  }
}

/** Returns the name that a file system without case, or with another Unicode form, may give a path. */
function folded(path: string): string {
  return path.normalize('NFKC').toUpperCase().toLowerCase().normalize('NFKC');
}

/** Compares by UTF-8 bytes, which is not the order of UTF-16. */
function compareBytes(one: string, other: string): number {
  return Buffer.compare(Buffer.from(one), Buffer.from(other));
}

function malformed(what: string): RyeError {
  return new RyeError('invalid_input', `the bundle is refused: ${what}`, {
    hint: 'Rename the file, or make the bundle again.',
  });
}
