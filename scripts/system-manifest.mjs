// Hashes of everything in the system space, for the build and the test runner to bake into the program.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join, relative, sep } from 'node:path';

/** State, exports, keys, signatures and the lock of a project. */
const OWN =
  /^(?:state\/|reports\/|knowledge\/agent\/threads\/|config\/keys\/|signatures\/|lock\.json$|\.)/;

/**
 * SHA-256 hex of every regular file below `<spaceDir>/.ai`, by its path relative to that folder with `/` between
 * segments, sorted. Skips symbolic links, which are refused at run time, and what rye writes when it runs in its clone.
 */
export function systemManifest(spaceDir) {
  const root = join(spaceDir, '.ai');
  const paths = readdirSync(root, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => relative(root, join(entry.parentPath ?? entry.path, entry.name)))
    .map((path) => path.split(sep).join('/'))
    .filter((path) => !OWN.test(path))
    .toSorted();
  return Object.fromEntries(
    paths.map((path) => [
      path,
      createHash('sha256')
        .update(readFileSync(join(root, path)))
        .digest('hex'),
    ]),
  );
}
