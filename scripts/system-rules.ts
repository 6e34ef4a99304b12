// Parses and checks the rules that rye ships, for the build and the test runner to bake into the program.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { RuleContent } from '../src/app/rule-source.ts';
import { compact } from '../src/core/json.ts';
import { parseRule } from '../src/items/rule.ts';
import { checkRule } from '../src/loop/stream-rules/rules.ts';
import { compileGlob } from '../src/tools/glob-pattern.ts';
import { sha256Hex } from '../src/trust/keys.ts';

/** What each rule file below `<spaceDir>/.ai/rules` says, by the SHA-256 hex of its text. One that is no good fails the build. */
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
