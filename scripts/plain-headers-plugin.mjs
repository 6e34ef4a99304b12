// Puts PlainHeaders where the SDK of Anthropic names the platform's `Headers`: see src/providers/plain-headers.ts.
import { readFile } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';

const HOME = fileURLToPath(new URL('../src/providers/plain-headers.ts', import.meta.url));
const SDK = /[\\/]node_modules[\\/]@anthropic-ai[\\/]sdk[\\/].*\.mjs$/;

export const plainHeaders = {
  name: 'plain-headers',
  setup(build) {
    build.onLoad({ filter: SDK }, async ({ path }) => {
      const text = await readFile(path, 'utf8');
      return /\bHeaders\b/.test(text)
        ? { contents: `import { PlainHeaders as Headers } from ${JSON.stringify(HOME)};\n${text}` }
        : undefined;
    });
  },
};
