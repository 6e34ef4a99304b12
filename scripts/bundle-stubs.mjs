// What stands in the bundle for modules that cost start-up time and give nothing: esbuild takes these texts for them.
const STUBS = {
  // making `node:process` into a module reads all of its lazy members, and loads streams and terminals for it
  process: { filter: /^(?:node:)?process$/, contents: 'module.exports = globalThis.process;' },
  // commander starts subcommands that are programs of their own, and rye has none
  spawn: {
    filter: /^node:child_process$/,
    importer: /[\\/]commander[\\/]/,
    contents: 'module.exports = {};',
  },
  // the YAML engine that gray-matter brings along and that rye never lets it use: nearly 400 KB, a second dialect, and
  // code that can be told to run JavaScript
  yaml: {
    filter: /^js-yaml$/,
    contents: `const refused = () => { throw new Error('gray-matter may not parse YAML by itself'); };
module.exports = { safeLoad: refused, safeDump: refused };`,
  },
};

export const bundleStubs = {
  name: 'bundle-stubs',
  setup(build) {
    for (const [name, { filter, importer = /./ }] of Object.entries(STUBS)) {
      build.onResolve({ filter }, (asked) =>
        importer.test(asked.importer) ? { path: name, namespace: 'bundle-stubs' } : undefined,
      );
    }
    build.onLoad({ filter: /./, namespace: 'bundle-stubs' }, ({ path: name }) => ({
      contents: STUBS[name].contents,
      loader: 'js',
    }));
  },
};
