// What the bundles for CommonJS share: one file each, in which Node's loader of ES modules has no part.
import { build } from 'esbuild';
import { bundleStubs } from './bundle-stubs.mjs';

/** SQLite's fourteen small files come along; their search for the native binding becomes the one place where it is. */
const nativeBinding = {
  name: 'native-binding',
  setup(esbuild) {
    esbuild.onResolve({ filter: /^bindings$/ }, ({ path }) => ({
      path,
      namespace: 'native-binding',
    }));
    esbuild.onResolve({ filter: /\.node$/ }, ({ path }) => ({ path, external: true }));
    esbuild.onLoad({ filter: /./, namespace: 'native-binding' }, () => ({
      contents: `module.exports = () => require('better-sqlite3/build/Release/better_sqlite3.node');`,
    }));
  },
};

/** `import()` of what is in Node needs no loader. */
const builtinModules = {
  name: 'builtin-modules',
  setup(esbuild) {
    esbuild.onResolve({ filter: /^node:/ }, ({ path, kind }) =>
      kind === 'dynamic-import' ? { path, namespace: 'builtin-modules' } : undefined,
    );
    esbuild.onLoad({ filter: /./, namespace: 'builtin-modules' }, ({ path }) => ({
      contents: `module.exports = require(${JSON.stringify(path)});`,
    }));
  },
};

/** Bundles the command line into `outfile`, with the plugins and options of one kind of bundle. */
export async function bundleCommonJs(outfile, { plugins, ...options }) {
  await build({
    entryPoints: ['src/cli/main.ts'],
    outfile,
    bundle: true,
    format: 'cjs',
    platform: 'node',
    target: 'node20',
    plugins: [...plugins, nativeBinding, builtinModules, bundleStubs],
    // names stay, for stack traces
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none',
    logLevel: 'warning',
    ...options,
  });
}
