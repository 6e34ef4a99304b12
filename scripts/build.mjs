// Builds dist/: ES modules for the command line and the library, the faster forms of startup/, and type declarations.
import { spawnSync } from 'node:child_process';
import {
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  renameSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'esbuild';
import { bundleProgram } from '../startup/bundles.mjs';
import { noSecondYaml, plainHeaders } from '../startup/plugins.mjs';
import { commonjsNames } from './commonjs-names.mjs';
import { definitions } from './define.mjs';
import { thirdPartyNotices } from './third-party.mjs';

const root = fileURLToPath(new URL('..', import.meta.url));
/** The package whose data src/kernel/providers/prices.json holds; a tree that was installed before it came builds without its notice. */
const PRICE_SOURCE = ['node_modules/@pydantic/genai-prices/package.json'].filter((file) =>
  existsSync(path.join(root, file)),
);

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
  if (!without.includes('program')) await bundleProgram(cli, { ...options, without });
  const { outputFiles, metafile } = await build({
    absWorkingDir: root,
    entryPoints: {
      'cli/main': 'src/faces/cli/main.ts',
      index: 'src/index.ts',
      'testing/index': 'testing/index.ts',
      'testing/conformance/index': 'testing/conformance/index.ts',
      sandbox: '@anthropic-ai/sandbox-runtime',
    },
    outdir,
    chunkNames: 'chunks/[name]-[hash]',
    bundle: true,
    splitting: true,
    format: 'esm',
    platform: 'node',
    target: 'node20',
    external: ['vitest', '@dbos-inc/dbos-sdk', 'pg'],
    plugins: [...plugins, noSecondYaml, plainHeaders, commonjsNames],
    define,
    legalComments: 'none',
    logLevel: 'warning',
    write: false,
    metafile: true,
  });
  for (const { path: file, text } of outputFiles) {
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, COMMONJS_NAMES.test(text) ? COMMONJS_PRELUDE + text : text);
  }
  if (!without.includes('help')) await writeHelp(outdir);
  copyHelperPrograms(outdir);
  const notices = thirdPartyNotices(root, [...Object.keys(metafile.inputs), ...PRICE_SOURCE]);
  writeFileSync(path.join(outdir, 'THIRD_PARTY_NOTICES.md'), notices);
}

/** Copies the programs that the sandbox starts, which it finds beside its code. */
function copyHelperPrograms(outdir) {
  const vendor = path.join(root, 'node_modules', '@anthropic-ai', 'sandbox-runtime', 'vendor');
  for (const part of ['seccomp', 'java-proxy-agent']) {
    cpSync(path.join(vendor, part), path.join(outdir, 'vendor', part), {
      recursive: true,
      filter: (source) => !source.endsWith('.ts'),
    });
  }
}

/** Writes the output of `--help` at 80 columns, so that bin/rye.js can print it without a parser. */
async function writeHelp(outdir) {
  const { main } = await import(pathToFileURL(path.join(outdir, 'cli', 'main.js')).href);
  let text = '';
  const stdout = { columns: 80, write: (part) => (text += part) };
  if ((await main(['--help'], { stdout, stderr: stdout })) !== 0)
    throw new Error('cannot print the help');
  writeFileSync(path.join(outdir, 'cli', 'help.json'), JSON.stringify(text));
}

/** Writes the .d.ts files of the library; throws on a type error. */
function declareTypes(outdir) {
  const args = ['-p', 'tsconfig.build.json', '--emitDeclarationOnly', '--outDir', outdir];
  runPackage('@typescript/native/bin/tsc', args, 'the types do not check');
  copyTypesOfZod(outdir);
}

/** Copies the types that the library's own are inferred with: zod is not installed beside rye. */
function copyTypesOfZod(outdir) {
  const zod = path.join(root, 'node_modules', 'zod');
  for (const part of ['index.d.ts', 'v4']) {
    cpSync(path.join(zod, part), path.join(outdir, 'vendor', 'zod', part), {
      recursive: true,
      filter: (source) => path.extname(source) === '' || source.endsWith('.d.ts'),
    });
  }
  const schemas = path.join(outdir, 'src', 'kernel', 'schemas');
  for (const name of readdirSync(schemas)) {
    const file = path.join(schemas, name);
    const text = readFileSync(file, 'utf8').replace(
      " from 'zod';",
      " from '../../../vendor/zod/index.js';",
    );
    writeFileSync(file, text);
  }
}

function runPackage(program, args, problem) {
  const file = path.join(root, 'node_modules', program);
  const { status } = spawnSync(process.execPath, [file, ...args], { cwd: root, stdio: 'inherit' });
  if (status !== 0) throw new Error(problem);
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
    if (values.types) {
      declareTypes(staging);
      const args = ['scripts/man-pages.ts', path.join(staging, 'man')];
      runPackage('tsx/dist/cli.mjs', args, 'cannot write the man pages');
    }
    rmSync(values.outdir, { recursive: true, force: true });
    renameSync(staging, values.outdir);
  } finally {
    rmSync(staging, { recursive: true, force: true });
  }
}

if (process.argv[1] === fileURLToPath(import.meta.url)) await buildDist();
