// `rye threads list` as one file: what people and scripts call most would spend most of its time on loading modules one by
// one. It is the program itself, less every other command; bin/rye.js sends it only command lines that run no other.
import { bundleCommonJs } from './commonjs-bundle.mjs';

/** What the command imports when it needs it. */
const NEEDED = /\/(?:commands\/threads-list|app\/thread-list|app\/user-space)\.ts$/;

const leaveOut = {
  name: 'leave-out',
  setup(esbuild) {
    esbuild.onResolve({ filter: /^\./ }, ({ kind, path }) =>
      kind === 'dynamic-import' && !NEEDED.test(path)
        ? { path: 'left-out', namespace: 'left-out' }
        : undefined,
    );
    esbuild.onLoad({ filter: /./, namespace: 'left-out' }, () => ({
      contents: `throw new Error('this part of the program lists threads and does nothing else');`,
    }));
  },
};

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

/** CommonJS, because Node's loader of ES modules is what is saved. */
export async function bundleListing(outfile, options) {
  await bundleCommonJs(outfile, { ...options, plugins: [leaveOut, nativeBinding] });
}
