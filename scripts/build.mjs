// Builds dist/: ES modules for the command line and the library, the faster forms of startup/, and type declarations.
import { spawnSync } from 'node:child_process';
import { mkdirSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import { bundleListing, bundleProgram } from '../startup/bundles.mjs';
import { noSecondYaml, plainHeaders } from '../startup/plugins.mjs';
import { commonjsNames } from './commonjs-names.mjs';
import { definitions } from './define.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));

// only for modules that need it: creating a `require` costs more than loading a small module
const COMMONJS_NAMES = /\brequire\b|\b__(?:file|dir)name\b/;
const COMMONJS_PRELUDE = `import { createRequire as ryeCreateRequire } from 'node:module';
import { fileURLToPath as ryeFileURLToPath } from 'node:url';
const require = ryeCreateRequire(import.meta.url);
const __filename = ryeFileURLToPath(import.meta.url);
const __dirname = ryeFileURLToPath(new URL('.', import.meta.url));
`;

/** Bundles the command line and the library into `outdir`, without the start-up tricks that `without` names. */
export async function bundle(outdir, { without = [], plugins = [], define: changes = {} } = {}) {
  const define = { ...(await definitions()), ...changes };
  const options = { absWorkingDir: root, define, plugins };
  const cli = path.join(outdir, 'cli');
  if (!without.includes('listing')) await bundleListing(path.join(cli, 'listing.cjs'), options);
  if (!without.includes('program')) {
    await bundleProgram(cli, { ...options, warmUp: !without.includes('warm-up') });
  }
  const { outputFiles } = await build({
    absWorkingDir: root,
    entryPoints: {
      'cli/main': 'src/cli/main.ts',
      index: 'src/index.ts',
      'testing/index': 'src/testing/index.ts',
      'testing/conformance/index': 'src/testing/conformance/index.ts',
      sandbox: '@anthropic-ai/sandbox-runtime',
    },
    outdir,
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    external: ['vitest'],
    plugins: [...plugins, noSecondYaml, plainHeaders, commonjsNames],
    define,
    legalComments: 'none',
    logLevel: 'warning',
    write: false,
  });
  for (const { path: file, text } of outputFiles) {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, COMMONJS_NAMES.test(text) ? COMMONJS_PRELUDE + text : text);
  }
  if (!without.includes('help')) await writeHelp(outdir);
}

/** Writes the output of `--help` at 80 columns, so that bin/rye.js can print it without a parser. */
async function writeHelp(outdir) {
  const { main } = await import(pathToFileURL(path.join(outdir, 'cli', 'main.js')).href);
  let text = '';
  const stdout = { columns: 80, write: (part) => (text += part) };
  if ((await main(['--help'], { stdout })) !== 0) throw new Error('cannot print the help');
  writeFileSync(path.join(outdir, 'cli', 'help.json'), JSON.stringify(text));
}

/** Writes the .d.ts files of the library; throws on a type error. */
function declareTypes(outdir) {
  const tsc = path.join(root, 'node_modules', 'typescript', 'bin', 'tsc');
  const args = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', outdir];
  const { status } = spawnSync(process.execPath, [tsc, ...args], { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new Error('the types do not check');
}

async function buildDist() {
  const { values } = parseArgs({
    options: {
      outdir: { type: 'string', default: path.join(root, 'dist') },
      types: { type: 'boolean', default: true },
    },
    allowNegative: true,
  });
  // in a folder beside it, so that a failed build keeps the last good one
  const staging = `${values.outdir}.building`;
  rmSync(staging, { recursive: true, force: true });
  try {
    await bundle(staging);
    if (values.types) declareTypes(staging);
    rmSync(values.outdir, { recursive: true, force: true });
    renameSync(staging, values.outdir);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildDist();
