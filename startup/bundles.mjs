// The command line as one CommonJS file, which starts faster than the modules of dist/: it needs no loader of ES modules.
import { createHash } from 'node:crypto';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { fileURLToPath } from 'node:url';
import { build } from 'esbuild';
import { commonjsNames } from '../scripts/commonjs-names.mjs';
import { lazyPackages, noSecondYaml, plainHeaders } from './plugins.mjs';

const SANDBOX = '@anthropic-ai/sandbox-runtime';
const MODULE_URL = "const ryeModuleUrl = require('node:url').pathToFileURL(__filename).href;";
const ENTRY = fileURLToPath(new URL('program.ts', import.meta.url));

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

/** Writes the whole command line as one file, `program.cjs`. `bin/rye.js` keeps what V8 compiled for it in a folder of the user. */
export async function bundleProgram(outdir, { define, plugins = [], without = [], ...options }) {
  const outfile = path.join(outdir, 'program.cjs');
  await build({
    entryPoints: [ENTRY],
    outfile,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    // names stay, for stack traces
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none',
    logLevel: 'warning',
    ...options,
    define: { ...define, 'import.meta.url': 'ryeModuleUrl' },
    // an expression, as Node wraps CommonJS: the kept code is valid for exactly this text
    banner: { js: `(function (exports, require, module, __filename, importModule) {\n${MODULE_URL}` },
    footer: { js: '})' },
    external: [SANDBOX, '@dbos-inc/dbos-sdk', 'pg'],
    plugins: [
      ...plugins,
      ...(without.includes('lazy packages') ? [] : [lazyPackages]),
      plainHeaders,
      commonjsNames,
      builtinModules,
      noSecondYaml,
    ],
  });
  const text = withImporter(inAscii(readFileSync(outfile, 'utf8')));
  // bin/rye.js names what it keeps by it
  const hash = createHash('sha256').update(text).digest('hex');
  writeFileSync(outfile, `//${hash}\n${text}`);
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
