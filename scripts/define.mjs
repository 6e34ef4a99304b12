// The constants that the build, the test runner and `npm run dev` put into the program.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { tsImport } from 'tsx/esm/api';
import { pageAssets } from './page-assets.mjs';
import { systemManifest } from './system-manifest.mjs';

/** Returns the `define` entries for esbuild and Vitest: identifier → source text of its value. */
export async function definitions() {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const { systemMeanings } = await tsImport('../startup/meanings.ts', import.meta.url);
  const system = fileURLToPath(new URL('..', import.meta.url));
  // as JSON text: esbuild would put objects into the chunk that every command loads
  const baked = {
    __RYE_SYSTEM_MANIFEST__: JSON.stringify(systemManifest(system)),
    __RYE_SYSTEM_MEANINGS__: await systemMeanings(system),
    __RYE_VERSION__: version,
    ...pageAssets(),
  };
  return Object.fromEntries(
    Object.entries(baked).map(([name, text]) => [name, JSON.stringify(text)]),
  );
}
