// The two CommonJS files that start faster than the modules of dist/: `program.cjs`, the whole command line, and `listing.cjs`, `rye threads list` alone. Neither needs Node's loader of ES modules.
import { spawnSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { commonjsNames } from '../scripts/commonjs-names.mjs';
import { commonPart, PART_ENTRY, planParts, restPart } from './parts.mjs';
import { lazyPackages, noSecondYaml, plainHeaders } from './plugins.mjs';

const SANDBOX = '@anthropic-ai/sandbox-runtime';
const MODULE_URL = "const ryeModuleUrl = require('node:url').pathToFileURL(__filename).href;";
const PERFORMANCE = fileURLToPath(
  new URL('../src/kernel/startup/plain-performance.ts', import.meta.url),
);
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
  return await build({
    entryPoints: ['src/faces/cli/main.ts'],
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
 * Writes the whole command line as two files, `program.cjs` with what common commands need and `rest-<hash>.cjs`. `bin/rye.js` keeps
 * what V8 compiled for them in a folder of the user.
 */
export async function bundleProgram(outdir, { split = true, ...options }) {
  const program = path.join(outdir, 'program.cjs');
  const { absWorkingDir: root, plugins = [] } = options;
  const whole = await bundlePart(program, options);
  if (!split) return;
  const evaluated = path.join(outdir, 'evaluated.json');
  runWarmUp([outdir, evaluated]);
  const plan = planParts(whole, new Set(JSON.parse(readFileSync(evaluated, 'utf8'))));
  rmSync(evaluated);
  const rest = path.join(outdir, 'rest.cjs');
  await bundlePart(rest, {
    ...options,
    entryPoints: [PART_ENTRY],
    plugins: [restPart(root, plan), ...plugins],
  });
  // of its content: a command that runs while rye is upgraded must not continue with another version
  const name = `rest-${createHash('sha256').update(readFileSync(rest)).digest('hex').slice(0, 12)}`;
  renameSync(rest, path.join(outdir, `${name}.cjs`));
  await bundlePart(program, {
    ...options,
    entryPoints: [PART_ENTRY],
    plugins: [commonPart(root, plan), ...plugins],
    header: `let ryeParts;
const ryeRest = (name) => (ryeParts ??= takePart(${JSON.stringify(name)}, module.exports.shared))[name]();`,
  });
}

async function bundlePart(outfile, { define, plugins = [], header = '', ...options }) {
  const { metafile } = await bundleCommonJs(outfile, {
    ...options,
    define: { ...define, 'import.meta.url': 'ryeModuleUrl' },
    // an expression, as Node wraps CommonJS: the cache is valid for exactly this text
    banner: {
      js: `(function (exports, require, module, __filename, importModule, takePart) {
${MODULE_URL}
${header}`,
    },
    footer: { js: '})' },
    external: [SANDBOX, '@dbos-inc/dbos-sdk', 'pg'],
    plugins: [...plugins, lazyPackages, plainHeaders, commonjsNames],
    inject: [PERFORMANCE],
    metafile: true,
  });
  writeFileSync(outfile, withImporter(inAscii(readFileSync(outfile, 'utf8'))));
  return metafile;
}

function runWarmUp(args) {
  const stdio = ['ignore', 'ignore', 'inherit'];
  const { status } = spawnSync(process.execPath, [WARM_UP, ...args], { stdio });
  if (status !== 0) throw new Error('cannot find out what common commands evaluate');
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
  return text.replaceAll(`import("${SANDBOX}")`, 'importModule("../dist/sandbox.js")');
}
