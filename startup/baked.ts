// Parses the configuration and the rules that rye ships, for the build and the test runner to bake into the program.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type CheckedSchema, findProblem } from '../src/kernel/core/check.ts';
import { type BakedFile, flattenConfig, freezeConfig } from '../src/kernel/items/config.ts';
import { readConfigText } from '../src/kernel/items/config-yaml.ts';
import type { RuleContent } from '../src/kernel/startup/baked-rules.ts';
import { compact, type JsonObject } from '../src/kernel/core/json.ts';
import { parseRule } from '../src/kernel/items/rule.ts';
import type * as Rules from '../src/features/rules/stream/rules.ts';
import { compileGlob } from '../src/kernel/tools/glob-pattern.ts';
import { parseErrorRules } from '../src/kernel/policy/error-class.ts';
import policies from '../src/kernel/schemas/policy.json' with { type: 'json' };
import provider from '../src/kernel/schemas/provider.json' with { type: 'json' };
import settings from '../src/kernel/schemas/settings.json' with { type: 'json' };
import { sha256Hex } from '../src/kernel/trust/keys.ts';


/** Parses every YAML file below `<spaceDir>/.ai/config` and throws for an invalid one. The keys are the SHA-256 hex of the bytes. */
export function systemConfig(spaceDir: string): Readonly<Record<string, BakedFile>> {
  const root = join(spaceDir, '.ai', 'config');
  const files = readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith('.yaml'))
    .toSorted();
  return Object.fromEntries(
    files.map((name) => {
      const bytes = readFileSync(join(root, name));
      const parsed = readConfigText(bytes.toString('utf8'), name);
      const { value } = flattenConfig(parsed);
      assertValid(name, value);
      const file: BakedFile = { value, node: freezeConfig(parsed, name) };
      return [createHash('sha256').update(bytes).digest('hex'), file];
    }),
  );
}

/** Checks a shipped file, so that no start has to. */
function assertValid(name: string, value: JsonObject): void {
  const id = name.slice(0, -'.yaml'.length);
  const known = new Map<string, CheckedSchema>(Object.entries(settings.properties));
  const schema = id.startsWith('agent/providers/')
    ? provider
    : id === 'agent/capability_risk'
      ? policies.properties.riskTable
      : known.get(id);
  const problem = schema && findProblem(schema, value);
  if (problem) throw new Error(`${name}: ${problem.path.join('.')} ${problem.text}`);
  if (id === 'agent/error_classification') parseErrorRules(value['patterns'] as readonly unknown[], name);
}


/** Parses every rule below `<spaceDir>/.ai/rules` and throws for an invalid one. The keys are the SHA-256 hex of the text. */
export async function systemRules(
  spaceDir: string,
): Promise<Readonly<Record<string, RuleContent>>> {
  const matching = new URL('../src/features/rules/stream/rules.ts', import.meta.url);
  // a rye without rules has nothing that could watch them
  if (!existsSync(matching)) return {};
  const { checkRule } = (await import(matching.href)) as typeof Rules;
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
