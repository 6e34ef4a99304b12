// What the bundles for CommonJS share: one file each, in which Node's loader of ES modules has no part.
import { build } from 'esbuild';
import { bundleStubs } from './bundle-stubs.mjs';

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
    plugins: [...plugins, builtinModules, bundleStubs],
    // names stay, for stack traces
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: 'none',
    logLevel: 'warning',
    ...options,
  });
}
