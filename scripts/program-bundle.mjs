// The whole program as one file with what V8 compiled of it: parsing and compiling is most of what starting a large program
// costs. The compiled form is of one version of Node; bin/rye.js runs the modules of dist/ under any other.
import { spawnSync } from 'node:child_process';
import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { bundleCommonJs } from './commonjs-bundle.mjs';
import { commonjsNames } from './commonjs-names.mjs';
import { plainHeaders } from './plain-headers-plugin.mjs';

const WARM_UP = fileURLToPath(new URL('program-warm-up.mjs', import.meta.url));

/** Writes `<outdir>/program.cjs` and, compiled by this Node, `<outdir>/program-<version>-<arch>.cache`. */
export async function bundleProgram(outdir, { define, ...options }) {
  const outfile = path.join(outdir, 'program.cjs');
  await bundleCommonJs(outfile, {
    ...options,
    define: { ...define, 'import.meta.url': 'ryeModuleUrl' },
    // an expression, as Node wraps CommonJS: what V8 compiled is for exactly this text
    banner: {
      js: `(function (exports, require, module, __filename, importModule) {
const ryeModuleUrl = require('node:url').pathToFileURL(__filename).href;`,
    },
    footer: { js: '})' },
    // the same that the modules need from node_modules
    external: ['better-sqlite3', '@anthropic-ai/sandbox-runtime'],
    plugins: [plainHeaders, commonjsNames],
  });
  writeFileSync(outfile, withImporter(inAscii(readFileSync(outfile, 'utf8'))));
  const { status } = spawnSync(process.execPath, [WARM_UP, outdir], {
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  if (status !== 0) throw new Error('the program could not be compiled ahead');
}

/** The program is read byte by byte, and the bundler escapes strings alone: not templates with a tag, not expressions. */
function inAscii(text) {
  return text.replaceAll(
    /[^\0-\u007f]/g,
    (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}

/** V8 forgets who imports for a script that it has compiled before: what is not in the bundle, the caller imports. */
function withImporter(text) {
  const replaced = text.replaceAll('import("@anthropic-ai/sandbox-runtime")', (call) =>
    call.replace('import', 'importModule'),
  );
  if (replaced === text) throw new Error('the program imports no sandbox');
  return replaced;
}
