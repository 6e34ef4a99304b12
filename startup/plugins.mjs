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
