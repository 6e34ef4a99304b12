// Parses the configuration and the rules that rye ships, for the build and the test runner to bake into the program.
import { createHash } from 'node:crypto';
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type BakedNode, freezeConfig } from '../src/items/config.ts';
import { readConfigText } from '../src/items/config-yaml.ts';
import type { RuleContent } from '../src/startup/baked-rules.ts';
import { compact } from '../src/core/json.ts';
import { parseRule } from '../src/items/rule.ts';
import { checkRule } from '../src/loop/stream-rules/rules.ts';
import { compileGlob } from '../src/tools/glob-pattern.ts';
import { sha256Hex } from '../src/trust/keys.ts';


/** Parses every YAML file below `<spaceDir>/.ai/config`. The keys are the SHA-256 hex of the bytes. */
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


/** Parses every rule below `<spaceDir>/.ai/rules` and throws for an invalid one. The keys are the SHA-256 hex of the text. */
export function systemRules(spaceDir: string): Readonly<Record<string, RuleContent>> {
  const root = join(spaceDir, '.ai', 'rules');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.md'))
    .toSorted();
  return Object.fromEntries(
    files.map((name) => {
      const text = readFileSync(join(root, name), 'utf8');
      const parsed = parseRule(text, name);
      const { path, warnings, name: stem, metadata: _meta, mapping: _map, ...content } = parsed;
      const rule = { ...content, name: stem, path, space: 'system', sha256: '' } as const;
      const { problems } = checkRule(rule, compileGlob);
      const wrong = [...warnings.map(({ message }) => message), ...problems];
      if (wrong.length > 0) throw new Error(`${name}: ${wrong.join('; ')}`);
      return [sha256Hex(text), compact(content)];
    }),
  );
}
