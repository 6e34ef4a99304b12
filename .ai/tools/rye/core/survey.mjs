// Counts what is in a folder of the project. Hidden names at the top of the folder, `.git`, `node_modules` and rye's
// state stay out, symbolic links are not followed, and folders that the top .gitignore names plainly (`dist/`) are
// only counted as skipped.
import { closeSync, existsSync, openSync, readdirSync, readFileSync, readSync, realpathSync, statSync } from 'node:fs';
import { join, relative, resolve, sep } from 'node:path';

const __version__ = '1.0.0';
const __tool_description__ =
  'Count files, lines and bytes of a folder, by extension, with the largest files and the file to read first.';
const __traits__ = { reads_only: true, idempotent: true, network: false, timeout_seconds: 300, risk: 'safe' };
const CONFIG_SCHEMA = {
  type: 'object',
  properties: {
    path: { type: 'string', description: 'Folder, relative to the project. Default: the project.' },
    except: { type: 'string', description: 'A file, relative to the project, that is not counted.' },
  },
  additionalProperties: false,
};

const LARGEST = 10;
const LEAD_BYTES = 1024 * 1024;
const SKIPPED = new Set(['.git', 'node_modules']);

const { path = '.', except = '' } = JSON.parse(readFileSync(0, 'utf8'));
const project = realpathSync(process.cwd());
const root = folderInProject(path);
const ignored = new Map(gitignoredFolders().map((name) => [name, 0]));
const counted = [...walk(root, true)].flatMap(count);
const text = counted.filter(({ binary }) => binary === false);
const lead = text.find(isReadme) ?? text.find(isReadable);
if (lead === undefined) fail(`there is no text file in ${JSON.stringify(path)}, so there is nothing to report`);

process.stdout.write(
  JSON.stringify({
    path: relative(project, root).split(sep).join('/') || '.',
    files: counted.length,
    text_files: text.length,
    binary_files: counted.filter(({ binary }) => binary === true).length,
    unreadable_files: counted.filter(({ unreadable }) => unreadable).length,
    lines: sum(text, 'lines'),
    bytes: sum(counted, 'bytes'),
    by_extension: byExtension(),
    largest: largest(),
    left_out: [...ignored].filter(([, files]) => files > 0).map(([folder, files]) => ({ folder, files })),
    lead: lead.path,
  }),
);

function folderInProject(name) {
  const named = resolve(project, name);
  if (!existsSync(named)) fail(`there is no folder ${JSON.stringify(name)}`);
  const real = realpathSync(named);
  const inside = relative(project, real);
  if (inside === '..' || inside.startsWith(`..${sep}`)) fail(`${JSON.stringify(name)} leads outside the project`);
  if (!statSync(real).isDirectory()) fail(`${JSON.stringify(name)} is not a folder`);
  return real;
}

function gitignoredFolders() {
  try {
    const lines = readFileSync(join(root, '.gitignore'), 'utf8').split('\n');
    return lines.map((line) => line.trim()).flatMap((line) => /^\/?([\w-][\w.-]*)\/$/.exec(line)?.[1] ?? []);
  } catch {
    return [];
  }
}

// Regular files below a folder, sorted by name, as absolute paths.
function* walk(folder, isTop) {
  const entries = readdirSync(folder, { withFileTypes: true }).toSorted((a, b) => (a.name < b.name ? -1 : 1));
  for (const entry of entries) {
    const real = join(folder, entry.name);
    if (isTop && entry.name.startsWith('.')) continue;
    if (entry.isFile()) yield real;
    else if (entry.isDirectory() && !SKIPPED.has(entry.name) && !isState(real)) yield* walk(real, false);
  }
}

function isState(real) {
  return /(?:^|[\\/])\.ai[\\/](?:state|config[\\/]keys)$/i.test(relative(project, real));
}

// One file with its lines, or nothing if it is skipped. Lines are line feeds, as `wc -l` counts them; a file with
// a NUL byte is binary and has none.
function count(real) {
  const [top] = relative(root, real).split(sep);
  if (ignored.has(top)) {
    ignored.set(top, ignored.get(top) + 1);
    return [];
  }
  const shown = relative(project, real).split(sep).join('/');
  if (shown === except) return [];
  try {
    return [{ path: shown, real, ...measure(real) }];
  } catch {
    return [{ path: shown, real, bytes: 0, lines: 0, unreadable: true }];
  }
}

function measure(real) {
  const chunk = Buffer.alloc(64 * 1024);
  const file = openSync(real, 'r');
  let bytes = 0;
  let lines = 0;
  let binary = false;
  try {
    for (let size = readSync(file, chunk); size > 0; size = readSync(file, chunk)) {
      const part = chunk.subarray(0, size);
      bytes += size;
      binary ||= part.includes(0);
      for (let at = part.indexOf(10); at !== -1; at = part.indexOf(10, at + 1)) lines += 1;
    }
  } finally {
    closeSync(file);
  }
  return { bytes, lines: binary ? 0 : lines, binary };
}

function isReadme(file) {
  return /^readme(?:\.\w+)?$/i.test(relative(root, file.real)) && isReadable(file);
}

// Whether the read tool will show it: UTF-8, not too long, not empty.
function isReadable({ real, bytes }) {
  if (bytes === 0 || bytes > LEAD_BYTES) return false;
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(readFileSync(real));
    return true;
  } catch {
    return false;
  }
}

function byExtension() {
  const rows = new Map();
  for (const { path: name, bytes, lines } of counted) {
    const extension = /[^/](\.[^./]+)$/.exec(name)?.[1].toLowerCase() ?? '(none)';
    const row = rows.get(extension) ?? { extension, files: 0, lines: 0, bytes: 0 };
    rows.set(extension, { extension, files: row.files + 1, lines: row.lines + lines, bytes: row.bytes + bytes });
  }
  return [...rows.values()].toSorted((a, b) => b.lines - a.lines || b.files - a.files || (a.extension < b.extension ? -1 : 1));
}

function largest() {
  return counted
    .toSorted((a, b) => b.bytes - a.bytes || (a.path < b.path ? -1 : 1))
    .slice(0, LARGEST)
    .map(({ path: name, bytes, lines }) => ({ path: name, bytes, lines }));
}

function sum(files, member) {
  return files.reduce((total, file) => total + file[member], 0);
}

function fail(message) {
  process.stderr.write(`${message}\n`);
  process.exit(1);
}
