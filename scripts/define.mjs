// Constants that the build bakes into the program. The test runner defines the same ones.
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { systemManifest } from './system-manifest.mjs';

/** `define` entries for esbuild and Vitest: identifier → source text of its value. */
export function definitions() {
  const { version } = JSON.parse(readFileSync(new URL('../package.json', import.meta.url), 'utf8'));
  const manifest = systemManifest(fileURLToPath(new URL('../system', import.meta.url)));
  return {
    __RYE_SYSTEM_MANIFEST__: JSON.stringify(manifest),
    __RYE_VERSION__: JSON.stringify(version),
  };
}
