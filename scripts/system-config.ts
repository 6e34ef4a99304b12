// Parses the configuration that rye ships, for the build and the test runner to bake into the program.
import { createHash } from 'node:crypto';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type BakedNode, freezeConfig } from '../src/items/config.ts';
import { readConfigText } from '../src/items/config-yaml.ts';

/** Every YAML file below `<spaceDir>/.ai/config`, parsed, by the SHA-256 hex of its bytes. */
export function systemConfig(spaceDir: string): Readonly<Record<string, BakedNode>> {
  const root = join(spaceDir, '.ai', 'config');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.yaml'))
    .toSorted();
  return Object.fromEntries(
    files.map((name) => {
      const bytes = readFileSync(join(root, name));
      const node = freezeConfig(readConfigText(bytes.toString('utf8'), name), name);
      return [createHash('sha256').update(bytes).digest('hex'), node];
    }),
  );
}
