// The two CommonJS files that start faster than the modules of dist/: `program.cjs`, the whole command line with the code
// that V8 compiled for it, and `listing.cjs`, `rye threads list` alone. Neither needs Node's loader of ES modules.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { commonjsNames } from '../scripts/commonjs-names.mjs';
import { noSecondYaml, plainHeaders } from './plugins.mjs';

const SANDBOX = '@anthropic-ai/sandbox-runtime';
const MODULE_URL = "const ryeModuleUrl = require('node:url').pathToFileURL(__filename).href;";
const WARM_UP = fileURLToPath(new URL('warm-up.mjs', import.meta.url));

/** Turns `import()` of a Node built-in into `require`, which needs no loader. */
const builtinModules = {
  name: 'builtin-modules',
  setup(esbuild) {
    esbuild.onResolve({ filter: /^node:/ }, ({ path: name, kind }) =>
      kind === 'dynamic-import' ? { path: name, namespace: 'builtin-modules' } : undefined,
    );
    esbuild.onLoad({ filter: /./, namespace: 'builtin-modules' }, ({ path: name }) => ({
      contents: `module.exports = require(${JSON.stringify(name)});`,
    }));
  },
};

async function bundleCommonJs(outfile, { plugins, ...options }) {
  await build({
    entryPoints: ['src/cli/main.ts'],
    outfile,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    plugins: [...plugins, builtinModules, noSecondYaml],
    // names stay, for stack traces
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none',
    logLevel: 'warning',
    ...options,
  });
}

/** The modules that `threads list` imports on demand. */
const NEEDED = /\/(?:app\/(?:store-setting|thread-list)|commands\/threads)\.ts$/;

/** Replaces every other module that is imported on demand by one that throws. */
const onlyListing = {
  name: 'only-listing',
  setup(esbuild) {
    esbuild.onResolve({ filter: /^\./ }, ({ kind, path: name }) =>
      kind === 'dynamic-import' && !NEEDED.test(name)
        ? { path: 'excluded', namespace: 'excluded' }
        : undefined,
    );
    esbuild.onLoad({ filter: /./, namespace: 'excluded' }, () => ({
      contents: `throw Object.assign(new Error('this bundle can only list threads'), { code: 'RYE_NOT_BUNDLED' });`,
    }));
  },
};

/** Writes `rye threads list` as one file. `bin/rye.js` uses it only for command lines that run no other command. */
export async function bundleListing(outfile, { define, plugins = [], ...options }) {
  await bundleCommonJs(outfile, {
    ...options,
    define: { ...define, 'import.meta.url': 'ryeModuleUrl' },
    banner: { js: MODULE_URL },
    plugins: [...plugins, onlyListing],
  });
}

/**
 * Writes `<outdir>/program.cjs` and `<outdir>/program-<version>-<arch>.cache`, the code that this Node compiled for it.
 * Under any other Node, `bin/rye.js` runs the modules of dist/.
 */
export async function bundleProgram(outdir, { define, warmUp = true, plugins = [], ...options }) {
  const outfile = path.join(outdir, 'program.cjs');
  await bundleCommonJs(outfile, {
    ...options,
    define: { ...define, 'import.meta.url': 'ryeModuleUrl' },
    // an expression, as Node wraps CommonJS: the cache is valid for exactly this text
    banner: {
      js: `(function (exports, require, module, __filename, importModule) {
${MODULE_URL}`,
    },
    footer: { js: '})' },
    external: [SANDBOX, '@dbos-inc/dbos-sdk', 'pg'],
    plugins: [...plugins, plainHeaders, commonjsNames],
  });
  writeFileSync(outfile, withImporter(inAscii(readFileSync(outfile, 'utf8'))));
  const args = warmUp ? [WARM_UP, outdir] : [WARM_UP, outdir, 'cold'];
  const { status } = spawnSync(process.execPath, args, { stdio: ['ignore', 'ignore', 'inherit'] });
  if (status !== 0) throw new Error('cannot compile the program ahead of time');
}

/** Escapes every character outside of ASCII: `bin/rye.js` reads one byte a character, and esbuild escapes strings only. */
function inAscii(text) {
  return text.replaceAll(
    /[^\0-\u007f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** Imports the sandbox through bin/rye.js: `import()` does not work in code from the cache. */
function withImporter(text) {
  const replaced = text.replaceAll(`import("${SANDBOX}")`, 'importModule("../dist/sandbox.js")');
  if (replaced === text) throw new Error('the program does not import the sandbox');
  return replaced;
}
