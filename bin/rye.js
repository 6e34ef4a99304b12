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

/** Whether no command but `threads list` can be meant, which is also what `ps` and `threads` do with nothing but options. */
function listsThreads([group, ...others]) {
  if (group === 'ps') return others.every((other) => other.startsWith('-'));
  if (group !== 'threads') return false;
  return others[0] === 'list' || others.every((other) => other.startsWith('-'));
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

/** The folder for compiled code, of this user alone; undefined: there is none. `RYE_CODE_CACHE` is a folder, or `off`. */
function codeFolder() {
  const { RYE_CODE_CACHE: named, XDG_CACHE_HOME: caches, HOME: home } = process.env;
  const folder =
    named ?? (caches?.startsWith('/') ? `${caches}/rye/code` : `${home ?? ''}/.cache/rye/code`);
  return folder.startsWith('/') && process.getuid !== undefined ? folder : undefined;
}

function isOwn({ uid, mode }) {
  return uid === process.getuid() && (mode & OTHERS_WRITE) === 0;
}

/**
 * The file with the code that V8 compiled for this text. V8 compares no more than the length of a text, so the name has its
 * hash. Undefined where nothing may be kept.
 */
function codeFile(name, source) {
  const folder = codeFolder();
  if (folder === undefined) return undefined;
  const hash = require('node:crypto').createHash('sha256').update(source).digest('hex');
  const kind = KINDS[first] ?? 'other';
  return `${folder}/${name}-${kind}-${process.version}-${process.arch}-${hash.slice(0, 32)}`;
}

/** What is kept of an earlier run; undefined unless this user alone can have written it. */
function keptCode(file) {
  const fs = require('node:fs');
  let descriptor;
  try {
    if (!isOwn(fs.lstatSync(require('node:path').dirname(file)))) return undefined;
    descriptor = fs.openSync(file, fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW);
    const stats = fs.fstatSync(descriptor);
    return stats.isFile() && isOwn(stats) ? fs.readFileSync(descriptor) : undefined;
  } catch {
    return undefined;
  } finally {
    if (descriptor !== undefined) fs.closeSync(descriptor);
  }
}

/** Keeps the code of a command that ended well, with the functions that it called. The file appears whole. */
function keepCode(script, file) {
  if (process.exitCode) return;
  const fs = require('node:fs');
  const folder = require('node:path').dirname(file);
  try {
    fs.mkdirSync(folder, { recursive: true, mode: 0o700 });
    const stats = fs.lstatSync(folder);
    if (!stats.isDirectory() || !isOwn(stats)) return;
    const temporary = `${file}.${process.pid}`;
    fs.writeFileSync(temporary, script.createCachedData(), { mode: 0o600, flag: 'wx' });
    fs.renameSync(temporary, file);
    for (const name of fs.readdirSync(folder)) {
      const old = `${folder}/${name}`;
      if (fs.lstatSync(old).mtimeMs < Date.now() - OLD_MS) fs.unlinkSync(old);
    }
  } catch {
    // the next command compiles again
  }
}

/** The function around a file of the program: compiled by V8, or by an earlier run, which saves most of a start. */
function compiled(name, filename) {
  let source;
  try {
    source = require('node:fs').readFileSync(filename);
  } catch {
    return undefined;
  }
  const { Script } = require('node:vm');
  const file = codeFile(name, source);
  const cachedData = file === undefined ? undefined : keptCode(file);
  const script = new Script(source.latin1Slice(), { filename, cachedData });
  const isKept = cachedData !== undefined && !script.cachedDataRejected;
  if (file !== undefined && !isKept) process.once('exit', () => keepCode(script, file));
  return script.runInThisContext();
}

/** Evaluates a file of the program. `takePart` gives it the modules that are in another file. */
function evaluate(name, takePart) {
  const filename = require('node:path').join(__dirname, '..', 'dist', 'cli', `${name}.cjs`);
  const wrapper = compiled(name, filename);
  if (wrapper === undefined) return undefined;
  const part = { exports: {} };
  wrapper(part.exports, require, part, filename, importModule, takePart);
  return part.exports;
}

/** The modules that only some commands need. They use the program's own modules. */
function takeRest(name, shared) {
  const part = evaluate(name, (module) => shared[module]());
  if (part === undefined) {
    throw new Error('rye was replaced while this command ran, start the command again');
  }
  return part.modules;
}

async function run() {
  if (listsThreads(process.argv.slice(2))) {
    const listing = load('../dist/cli/listing.cjs');
    // it returns if the threads are in a store that only the whole program can open
    if (listing !== undefined) await listing.start();
  }
  // the modules run instead where this is undefined
  const program = evaluate('program', takeRest);
  if (program !== undefined) return await program.start();
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
