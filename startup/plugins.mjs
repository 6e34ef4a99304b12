// esbuild plugins that keep slow modules out of the bundles.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/** Replacements for modules that cost start-up time for nothing. */
const STUBS = {
  // Node builds the module `node:process` by reading every lazy member, which loads streams and terminals
  process: { filter: /^(?:node:)?process$/, contents: 'module.exports = globalThis.process;' },
  // commander uses it for subcommands in separate programs, which rye does not have
  spawn: {
    filter: /^node:child_process$/,
    importer: /[\\/]commander[\\/]/,
    contents: 'module.exports = {};',
  },
  // gray-matter's YAML engine, which rye never uses: nearly 400 KB, a second dialect, and able to run JavaScript
  yaml: {
    filter: /^js-yaml$/,
    contents: `const refused = () => { throw new Error('gray-matter must not parse YAML'); };
module.exports = { safeLoad: refused, safeDump: refused };`,
  },
};

export const bundleStubs = {
  name: 'bundle-stubs',
  setup(build) {
    for (const [name, { filter, importer = /./ }] of Object.entries(STUBS)) {
      build.onResolve({ filter }, (request) =>
        importer.test(request.importer) ? { path: name, namespace: 'bundle-stubs' } : undefined,
      );
    }
    build.onLoad({ filter: /./, namespace: 'bundle-stubs' }, ({ path: name }) => ({
      contents: STUBS[name].contents,
      loader: 'js',
    }));
  },
};

const HTTP_FETCH = fileURLToPath(new URL('../src/startup/http-fetch.ts', import.meta.url));
export const SDK_MODULES = /[\\/]node_modules[\\/]@anthropic-ai[\\/]sdk[\\/].*\.mjs$/;

/** Replaces the platform's `Headers` in Anthropic's SDK by `PlainHeaders`. */
export const plainHeaders = {
  name: 'plain-headers',
  setup(build) {
    build.onLoad({ filter: SDK_MODULES }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      const header = `import { PlainHeaders as Headers } from ${JSON.stringify(HTTP_FETCH)};\n`;
      return /\bHeaders\b/.test(text) ? { contents: `${header}${text}` } : undefined;
    });
  },
};
