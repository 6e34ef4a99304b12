// esbuild plugins that keep slow modules out of the bundles.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

/**
 * Replaces gray-matter's YAML engine, which rye never uses: nearly 400 KB, a second dialect, and able to run JavaScript.
 */
export const noSecondYaml = {
  name: 'no-second-yaml',
  setup(build) {
    build.onResolve({ filter: /^js-yaml$/ }, () => ({ path: 'js-yaml', namespace: 'no-second-yaml' }));
    build.onLoad({ filter: /./, namespace: 'no-second-yaml' }, () => ({
      contents: `const refuse = () => { throw new Error('gray-matter must not parse YAML'); };
module.exports = { safeLoad: refuse, safeDump: refuse };`,
      loader: 'js',
    }));
  },
};

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const HTTP_FETCH = fileURLToPath(new URL('../src/kernel/startup/http-fetch.ts', import.meta.url));
/** Puts rye's headers in the place of the platform's. */
export const PLAIN_HEADERS = `import { PlainHeaders as Headers } from ${JSON.stringify(HTTP_FETCH)};\n`;
export const SDK_MODULES = /[\\/]node_modules[\\/]@anthropic-ai[\\/]sdk[\\/].*\.mjs$/;

/**
 * Replaces the platform's `Headers` in Anthropic's SDK by `PlainHeaders`. The client also asks if a body is a `ReadableStream`,
 * which loads the platform's web streams; rye sends texts.
 */
export const plainHeaders = {
  name: 'plain-headers',
  setup(build) {
    build.onLoad({ filter: SDK_MODULES }, async ({ path }) => {
      const original = await readFile(path, 'utf8');
      const isClient = /[\\/]client\.mjs$/.test(path);
      const text = isClient ? original.replaceAll('globalThis.ReadableStream', 'undefined') : original;
      return { contents: /\bHeaders\b/.test(text) ? `${PLAIN_HEADERS}${text}` : text };
    });
  },
};

/** The names that the rooms import from packages that many commands do not need, and if each is a class. */
const LAZY = {
  yaml: {
    LineCounter: 'class',
    isAlias: 'function',
    isMap: 'function',
    isScalar: 'function',
    isSeq: 'function',
    parse: 'function',
    parseDocument: 'function',
    stringify: 'function',
  },
  'markdown-it': { default: 'class' },
};
const IN_ROOM = /[\\/]src[\\/].*\.ts$/;

/** Evaluates these packages when one of their functions is first called. */
export const lazyPackages = {
  name: 'lazy-packages',
  setup(build) {
    const filter = new RegExp(`^(?:${Object.keys(LAZY).join('|')})$`);
    build.onResolve({ filter }, ({ path, importer, kind }) =>
      kind === 'import-statement' && IN_ROOM.test(importer)
        ? { path, namespace: 'lazy-package' }
        : undefined,
    );
    build.onLoad({ filter: /./, namespace: 'lazy-package' }, ({ path }) => {
      const rows = Object.entries(LAZY[path]).map(([name, kind]) => {
        const start = name === 'default' ? 'export default function' : `export function ${name}`;
        // a package of the CommonJS format is its default export itself
        const value = name === 'default' ? '(load().default ?? load())' : `load().${name}`;
        return kind === 'class'
          ? `${start}(...args) { return new (${value})(...args); }`
          : `${start}(...args) { return ${value}(...args); }`;
      });
      const load = `const load = () => require(${JSON.stringify(path)});`;
      return { contents: [load, ...rows].join('\n'), resolveDir: ROOT };
    });
  },
};
