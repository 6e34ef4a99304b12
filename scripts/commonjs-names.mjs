// esbuild gives `await import('a-commonjs-package')` a default export only, Node gives it names as well. This plugin
// adds the names that Node sees, so that the bundle means what the sources mean.
import path from 'node:path';

const BARE = /^[^./]/;

export const commonjsNames = {
  name: 'commonjs-names',
  setup(build) {
    build.onResolve({ filter: BARE }, ({ path: specifier, kind, resolveDir, pluginData }) =>
      kind === 'dynamic-import' &&
      pluginData?.isResolving !== true &&
      !specifier.startsWith('node:')
        ? redirect(build, specifier, resolveDir)
        : undefined,
    );
    build.onLoad(
      { filter: /./, namespace: 'commonjs-names' },
      async ({ path: file, pluginData }) => ({
        resolveDir: path.dirname(file),
        contents: reexport(file, Object.keys(await import(pluginData.specifier))),
      }),
    );
  },
};

async function redirect(build, specifier, resolveDir) {
  const resolved = await build.resolve(specifier, {
    kind: 'dynamic-import',
    resolveDir,
    pluginData: { isResolving: true },
  });
  const isBundled = !resolved.external && resolved.errors.length === 0;
  return isBundled
    ? { path: resolved.path, namespace: 'commonjs-names', pluginData: { specifier } }
    : resolved;
}

function reexport(file, names) {
  const module = JSON.stringify(file);
  // Node 23 and later have the name `module.exports` too
  const named = names.filter((name) => name !== 'default' && name !== 'module.exports');
  return [
    `import * as everything from ${module};`,
    ...named.map((name) => `export const ${name} = everything.${name};`),
    ...(names.includes('default') ? [`export { default } from ${module};`] : []),
  ].join('\n');
}
