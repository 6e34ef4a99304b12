// Splits the program into two files: the modules that common commands evaluate, and the rest. Each start reads the first
// one; the rest is read when a command imports a module of it.
import path from 'node:path';

const ENTRY = 'src/faces/cli/main.ts';
/** Starts and runs background threads, which the warm-up does not: they are started in great numbers. */
const BACKGROUND = ['src/kernel/app/children.ts', 'src/kernel/app/thread-process.ts'];
/** Each file has its own copy. */
const INJECTED = /^src\/kernel\/startup\/plain-performance\.ts$/;
const PACKAGE = /^node_modules\//;
/** Plugins of the build write these modules. Each file has its own copy, which holds no state. */
const WRITTEN = /^[a-z-]+:/;
/** Passes a package of the CommonJS format on, so that it must not bring the package into its file. */
const WRAPPER = /^(?:commonjs-names|lazy-package):/;

/**
 * Plans the split from esbuild's metafile of the whole program and the names of the modules that the warm-up evaluated.
 * `common` holds the modules of the first file, `entries` the modules of the rest that the first file imports, `shared` the modules of
 * the first file that the rest imports.
 */
export function planParts({ inputs, outputs }, evaluated) {
  const [{ inputs: bundled }] = Object.values(outputs);
  const importsOf = (name) =>
    inputs[name].imports
      .filter(({ external, path: target }) => external !== true && target in inputs)
      .map(({ kind, path: target }) => ({
        target,
        // a package stays whole: all of a module that both files use must be kept, even if only one name of it is used
        isOnDemand: (kind === 'dynamic-import' && !PACKAGE.test(name)) || WRAPPER.test(name),
      }));
  const common = reach([ENTRY, ...BACKGROUND], (name) =>
    importsOf(name).filter(
      ({ target, isOnDemand }) => !isOnDemand || evaluated.has(target) || WRITTEN.test(target),
    ),
  );
  const entries = outside(common, importsOf, (target) => !common.has(target));
  const rest = reach(entries, (name) =>
    importsOf(name).filter(({ target }) => !common.has(target) || WRITTEN.test(target)),
  );
  // a module without own text in the bundle only passes names on, so that each file can have it
  const isShared = (target) =>
    common.has(target) && !WRITTEN.test(target) && bundled[target]?.bytesInOutput > 0;
  const shared = outside(rest, importsOf, isShared);
  return { common, entries, shared, isShared, formatOf: (name) => inputs[name].format };
}

function reach(roots, importsOf) {
  const reached = new Set(roots);
  for (const name of reached) for (const { target } of importsOf(name)) reached.add(target);
  return reached;
}

function outside(modules, importsOf, isOutside) {
  const targets = [...modules].flatMap((name) => importsOf(name).map(({ target }) => target));
  return [...new Set(targets.filter(isOutside))].toSorted((a, b) => (a < b ? -1 : 1));
}

/** Makes the first file export `start` and the modules that the rest uses, and take the others from `ryeRest`. */
export function commonPart(root, { common, shared, formatOf }) {
  const start = `export { start, main, createProcessIo } from './${ENTRY}';`;
  return part({
    root,
    formatOf,
    entry: [start, table('shared', root, shared)],
    isElsewhere: (name) => !common.has(name),
    source: 'ryeRest',
  });
}

/** Makes the rest export its modules, and take the first file's modules from `ryeShared`. */
export function restPart(root, { entries, isShared, formatOf }) {
  return part({
    root,
    formatOf,
    entry: [table('modules', root, entries)],
    isElsewhere: isShared,
    source: 'takePart',
  });
}

/** Writes an object of functions that return the modules, so that none is evaluated before it is used. */
function table(name, root, modules) {
  const rows = modules.map(
    (module) => `${JSON.stringify(module)}: () => require(${JSON.stringify(path.join(root, module))}),`,
  );
  return [`export const ${name} = {`, ...rows, '};'].join('\n');
}

/** The entry point of both files. */
export const PART_ENTRY = 'rye-part';
const RESOLVING = 'part-resolving';
const NEUTRAL = '.js';

function part({ root, formatOf, entry, isElsewhere, source }) {
  const setup = (build) => {
    build.onResolve({ filter: /./ }, async ({ path: specifier, pluginData, ...options }) => {
      if (specifier === PART_ENTRY) return { path: specifier, namespace: 'part-entry' };
      if (options.namespace === 'part-module') return { path: specifier, namespace: 'part-value' };
      if (pluginData === RESOLVING || pluginData?.isResolving === true) return undefined;
      const resolved = await build.resolve(specifier, { ...options, pluginData: RESOLVING });
      if (resolved.errors.length > 0) return undefined;
      if (resolved.external || resolved.namespace !== 'file') return resolved;
      const name = path.relative(root, resolved.path).split(path.sep).join('/');
      if (INJECTED.test(name) || !isElsewhere(name)) return resolved;
      const isModule = formatOf(name) === 'esm' && options.kind !== 'require-call';
      // without the extension, which would decide how esbuild treats the default export
      const namespace = isModule ? 'part-module' : 'part-value';
      return { path: `${name}${NEUTRAL}`, namespace };
    });
    build.onLoad({ filter: /./, namespace: 'part-entry' }, () => ({
      contents: entry.join('\n'),
      resolveDir: root,
    }));
    // an ES module around the value, so that its default export is that of the module and not the whole value
    build.onLoad({ filter: /./, namespace: 'part-module' }, ({ path: name }) => ({
      contents: `export * from ${JSON.stringify(name)}; export { default } from ${JSON.stringify(name)};`,
    }));
    build.onLoad({ filter: /./, namespace: 'part-value' }, ({ path: name }) => ({
      contents: `module.exports = ${source}(${JSON.stringify(name.slice(0, -NEUTRAL.length))});`,
    }));
  };
  return { name: source, setup };
}
