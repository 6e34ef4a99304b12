#!/usr/bin/env node
// CommonJS, as the package.json beside it says: Node's loader of ES modules costs more than all that happens here, and
// what a package prints about itself needs none of it. JSON is asked for with `require`, because the first use of
// `node:fs` makes Node load a good part of its library.
const [first, ...rest] = process.argv.slice(2);
const word = rest.length === 0 ? first : undefined;
const DEFAULT_COLUMNS = 80;

function load(file) {
  try {
    return require(file);
  } catch (error) {
    if (error.code === 'MODULE_NOT_FOUND') return undefined;
    throw error;
  }
}

/** Like the program itself: quiet when the reader has gone, a failure when the text cannot be written. */
function print(text) {
  process.stdout.on('error', ({ code, message }) => {
    if (code === 'EPIPE') return;
    process.stderr.write(`rye: cannot write to standard output: ${message} [storage_failed]\n`);
    process.exitCode = 1;
  });
  process.stdout.write(text);
}

/** The help of the whole program, where it looks as the build has written it down. */
function writtenHelp() {
  const { columns } = process.stdout;
  return columns > 0 && columns !== DEFAULT_COLUMNS ? undefined : load('../dist/cli/help.json');
}

/** For the compiled program: V8 forgets who imports for a script that it did not compile itself. */
const importModule = (name) => import(name);

/** Commands that call much the same functions share what V8 compiled for them. */
const KINDS = {
  ...Object.fromEntries(['run', 'ask', 'chat', 'execute', 'resume'].map((name) => [name, 'run'])),
  ...Object.fromEntries(['__run-thread', '__run-leg'].map((name) => [name, 'thread'])),
  threads: 'threads',
  search: 'search',
};
const OTHERS_WRITE = 0o022;
const OLD_MS = 30 * 86_400_000;

/** The folder for what commands keep, of this user alone; undefined: there is none. `RYE_CODE_CACHE` is a folder, or `off`. */
function keptFolder() {
  const { RYE_CODE_CACHE: named, XDG_CACHE_HOME: caches, HOME: home } = process.env;
  const folder =
    named ?? (caches?.startsWith('/') ? `${caches}/rye/code` : `${home ?? ''}/.cache/rye/code`);
  return folder.startsWith('/') && process.getuid !== undefined ? folder : undefined;
}

function isOwn({ uid, mode }) {
  return uid === process.getuid() && (mode & OTHERS_WRITE) === 0;
}

/** What an earlier command kept under a name; undefined unless this user alone can have written it. */
function readKept(name) {
  const folder = keptFolder();
  if (folder === undefined) return undefined;
  const fs = require('node:fs');
  let descriptor;
  try {
    if (!isOwn(fs.lstatSync(folder))) return undefined;
    const flags = fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW;
    descriptor = fs.openSync(`${folder}/${name}`, flags);
    const stats = fs.fstatSync(descriptor);
    return stats.isFile() && isOwn(stats) ? fs.readFileSync(descriptor) : undefined;
  } catch {
    return undefined;
  } finally {
    if (descriptor !== undefined) fs.closeSync(descriptor);
  }
}

/** Keeps bytes under a name. The file appears whole; old ones go. */
function writeKept(name, bytes) {
  const folder = keptFolder();
  if (folder === undefined) return;
  const fs = require('node:fs');
  try {
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    const stats = fs.lstatSync(folder);
    if (!stats.isDirectory() || !isOwn(stats)) return;
    const temporary = `${folder}/${name}.${process.pid}`;
    fs.writeFileSync(temporary, bytes(), { mode: 0o600, flag: 'wx' });
    fs.renameSync(temporary, `${folder}/${name}`);
    for (const other of fs.readdirSync(folder)) {
      const old = `${folder}/${other}`;
      if (fs.lstatSync(old).mtimeMs < Date.now() - OLD_MS) fs.unlinkSync(old);
    }
  } catch {
    // the next command does the work again
  }
}

/**
 * The name of this build: the hash that the program begins with, and when its file was written, for one that was changed by hand.
 * V8 compares no more than the length of a text with what it compiled.
 */
function buildName(source, filename) {
  const hash = source.slice(2, 34);
  return `${hash}-${Math.trunc(require('node:fs').statSync(filename).mtimeMs)}`;
}

/** The program and its name: compiled by V8, or by an earlier command, which saves most of a start. */
function loadProgram() {
  const filename = require('node:path').join(__dirname, '..', 'dist', 'cli', 'program.cjs');
  let source;
  try {
    // one byte a character: another copy of it would cost as much memory again
    source = require('node:fs').readFileSync(filename, 'latin1');
  } catch {
    return undefined;
  }
  const { Script } = require('node:vm');
  const build = buildName(source, filename);
  const file = `program-${KINDS[first] ?? 'other'}-${process.version}-${process.arch}-${build}`;
  const cachedData = readKept(file);
  const script = new Script(source, { filename, cachedData });
  if (cachedData === undefined || script.cachedDataRejected) {
    // with the functions that the command called, if it ended well
    process.once('exit', () => {
      if (!process.exitCode) writeKept(file, () => script.createCachedData());
    });
  }
  const program = { exports: {} };
  script.runInThisContext()(program.exports, require, program, filename, importModule);
  return { program: program.exports, build };
}

async function run() {
  // the modules run instead where there is none
  const loaded = loadProgram();
  if (loaded !== undefined) {
    const name = `meanings-${loaded.build}`;
    loaded.program.keepMeanings({
      read: () => readKept(name)?.toString(),
      write: (text) => {
        if (!process.exitCode) writeKept(name, () => text);
      },
    });
    return await loaded.program.start();
  }
  const { existsSync } = require('node:fs');
  const path = require('node:path');
  if (existsSync(path.join(__dirname, '..', 'dist', 'cli', 'main.js'))) {
    const { start } = await import('../dist/cli/main.js');
    await start();
    return;
  }
  process.stderr.write(
    'rye: the program is not built yet [internal]\nhint: Run `npm ci && npm run build` in its folder first.\n',
  );
  process.exitCode = 1;
}

/** Whether Node has SQLite, or better-sqlite3 is installed for a Node that has none. Loads nothing with a Node that has. */
function isNodeFit([major, minor]) {
  if (major > 23 || (major === 23 && minor >= 4) || (major === 22 && minor >= 13)) return true;
  if (major < 20 || (major === 20 && minor < 10)) return false;
  try {
    const path = require('node:path');
    const folder = path.dirname(require.resolve('better-sqlite3/package.json'));
    if (require('node:fs').existsSync(path.join(folder, 'build/Release/better_sqlite3.node')))
      return true;
    const Database = require('better-sqlite3');
    new Database(':memory:').close();
    return true;
  } catch {
    // a clone that is not built has no packages either, and is told to install them
    return !require('node:fs').existsSync(`${__dirname}/../dist/cli/main.js`);
  }
}

/** Ends the command with one sentence, or one document. */
function refuse(message) {
  const document = { success: false, error: { code: 'usage', message }, warnings: [] };
  if (process.argv.includes('--json')) process.stdout.write(`${JSON.stringify(document)}\n`);
  else process.stderr.write(`rye: ${message} [usage]\n`);
  process.exitCode = 2;
}

const isVersion = word === '--version' || word === '-V';
const isHelp = word === '--help' || word === '-h';
const known = isVersion
  ? `${require('../package.json').version}\n`
  : isHelp
    ? writtenHelp()
    : undefined;
if (known !== undefined) print(known);
else if (process.platform === 'win32')
  refuse('rye does not run on Windows; use it in WSL 2, the Windows Subsystem for Linux');
else if (!isNodeFit(process.versions.node.split('.').map(Number)))
  refuse(`rye needs Node 22.13 or later; this is ${process.versions.node}`);
else void run();
