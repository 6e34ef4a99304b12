// Builds dist/: one bundle per command, split so that a command loads only what it runs, and type declarations.
import { spawnSync } from 'node:child_process';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import { bundleStubs } from './bundle-stubs.mjs';
import { commonjsNames } from './commonjs-names.mjs';
import { definitions } from './define.mjs';
import { bundleListing } from './listing-bundle.mjs';
import { plainHeaders } from './plain-headers-plugin.mjs';
import { bundleProgram } from './program-bundle.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

// what bundled CommonJS dependencies take for granted; making a `require` costs more than loading a small module
const COMMONJS_NAMES = /\brequire\b|\b__(?:file|dir)name\b/;
const COMMONJS_PRELUDE = `import { createRequire as ryeCreateRequire } from 'node:module';
import { fileURLToPath as ryeFileURLToPath } from 'node:url';
const require = ryeCreateRequire(import.meta.url);
const __filename = ryeFileURLToPath(import.meta.url);
const __dirname = ryeFileURLToPath(new URL('.', import.meta.url));
`;

/** Bundles the program and the library into `outdir`. */
async function bundle(outdir) {
  const define = await definitions();
  const cli = path.join(outdir, 'cli');
  await bundleListing(path.join(cli, 'listing.cjs'), { absWorkingDir: root, define });
  await bundleProgram(cli, { absWorkingDir: root, define });
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: { 'cli/main': 'src/cli/main.ts', index: 'src/index.ts' },
    outdir,
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    // what is found relative to their own folders: a native binding, helper programs
    external: ['better-sqlite3', '@anthropic-ai/sandbox-runtime'],
    plugins: [bundleStubs, plainHeaders, commonjsNames],
    define,
    legalComments: 'none',
    logLevel: 'warning',
    write: false,
  });
  for (const { path: file, text } of outputFiles) {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, COMMONJS_NAMES.test(text) ? COMMONJS_PRELUDE + text : text);
  }
}

/** Writes down what `--help` prints where 80 columns are wide, so that bin/rye.js needs no parser to print it. */
async function writeHelp(outdir) {
  const { main } = await import(pathToFileURL(path.join(outdir, 'cli', 'main.js')).href);
  let text = '';
  const stdout = { columns: 80, write: (part) => (text += part) };
  if ((await main(['--help'], { stdout })) !== 0) throw new Error('the help cannot be printed');
  writeFileSync(path.join(outdir, 'cli', 'help.json'), JSON.stringify(text));
}

/** Writes the .d.ts files of the library; fails on a type error. */
function declareTypes(outdir) {
  const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const args = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', outdir];
  const { status } = spawnSync(process.execPath, [tsc, ...args], { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new Error('the types do not check');
}

const { values } = parseArgs({
  options: {
    outdir: { type: 'string', default: path.join(root, 'dist') },
    types: { type: 'boolean', default: true },
  },
  allowNegative: true,
});
// built aside, so that a build that fails leaves the last one as it was
const staging = `${values.outdir}.building`;
rmSync(staging, { recursive: true, force: true });
try {
  await bundle(staging);
  await writeHelp(staging);
  if (values.types) declareTypes(staging);
  rmSync(values.outdir, { recursive: true, force: true });
  renameSync(staging, values.outdir);
} finally {
  rmSync(staging, { recursive: true, force: true });
}
