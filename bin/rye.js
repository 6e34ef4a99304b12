#!/usr/bin/env node
// CommonJS, as the package.json beside it says: Node's loader of ES modules costs more than all that happens here, and
// what a package prints about itself needs none of it. JSON is asked for with `require`, because the first use of
// `node:fs` makes Node load a good part of its library.
const [first, ...rest] = process.argv.slice(2);
const word = rest.length === 0 ? first : undefined;
const DEFAULT_COLUMNS = 80;
const OLDEST_NODE = 20;

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

/** Whether no command but `threads list` can be meant, which is also what `threads` does with nothing but options. */
function listsThreads([group, ...others]) {
  if (group !== 'threads') return false;
  return others[0] === 'list' || others.every((other) => other.startsWith('-'));
}

/** For the compiled program: V8 forgets who imports for a script that it did not compile itself. */
const importModule = (name) => import(name);

/**
 * The function around a file of the program, as V8 compiled it when it was built, which saves most of its start. Undefined
 * under another Node than that and, unless it is needed, where a flag of V8 makes it worthless.
 */
function compiled(filename, isNeeded) {
  const { Script } = require('node:vm');
  const { readFileSync } = require('node:fs');
  const cache = filename.replace(/\.cjs$/, `-${process.version}-${process.arch}.cache`);
  let source;
  let cachedData;
  try {
    cachedData = readFileSync(cache);
    source = readFileSync(filename, 'latin1');
  } catch {
    return undefined;
  }
  const script = new Script(source, { filename, cachedData });
  return script.cachedDataRejected && !isNeeded ? undefined : script.runInThisContext();
}

/** Evaluates a file of the program. `takePart` gives it the modules that are in another file. */
function evaluate(name, takePart, isNeeded = false) {
  const filename = require('node:path').join(__dirname, '..', 'dist', 'cli', `${name}.cjs`);
  const wrapper = compiled(filename, isNeeded);
  if (wrapper === undefined) return undefined;
  const part = { exports: {} };
  wrapper(part.exports, require, part, filename, importModule, takePart);
  return part.exports;
}

/** The modules that only some commands need. They use the program's own modules. */
function takeRest(name, shared) {
  const part = evaluate(name, (module) => shared[module](), true);
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

const isVersion = word === '--version' || word === '-V';
const isHelp = word === '--help' || word === '-h';
const known = isVersion
  ? `${require('../package.json').version}\n`
  : isHelp
    ? writtenHelp()
    : undefined;
if (Number.parseInt(process.versions.node, 10) < OLDEST_NODE) {
  process.stderr.write(
    `rye: Node ${process.version} is too old: use Node 22.13 or later [usage]\n`,
  );
  process.exitCode = 2;
} else if (process.platform === 'win32' && known === undefined) {
  process.stderr.write(
    'rye: rye does not run on Windows; use it in WSL 2, the Windows Subsystem for Linux [usage]\n',
  );
  process.exitCode = 2;
} else if (known === undefined) void run();
else print(known);
