// Reads the configuration and the rules that rye ships, for the build and the test runner to put into the program.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { type CheckedSchema, findProblem } from '../src/kernel/core/check.ts';
import { configMeaning } from '../src/kernel/items/config.ts';
import { keyOf } from '../src/kernel/items/meanings.ts';
import { readConfigText } from '../src/kernel/items/config-yaml.ts';
import { compact, type JsonObject } from '../src/kernel/core/json.ts';
import { parseRule } from '../src/kernel/items/rule.ts';
import type * as Rules from '../src/features/rules/stream/rules.ts';
import { compileGlob } from '../src/kernel/tools/glob-pattern.ts';
import { parseErrorRules } from '../src/kernel/policy/error-class.ts';
import policies from '../src/kernel/schemas/policy.json' with { type: 'json' };
import provider from '../src/kernel/schemas/provider.json' with { type: 'json' };
import settings from '../src/kernel/schemas/settings.json' with { type: 'json' };

/**
 * Reads the configuration and the rules of `<spaceDir>/.ai`, as JSON text: what `meanings.ts` keeps of files, for those that rye ships.
 * Throws for a file that is not valid.
 */
export async function systemMeanings(spaceDir: string): Promise<string> {
  const config = filesBelow(join(spaceDir, '.ai', 'config'), '.yaml').map(({ name, text }) => {
    const meaning = configMeaning(readConfigText(text, name), name);
    assertValid(name, meaning.value);
    return [keyOf('config', text), meaning] as const;
  });
  return JSON.stringify(Object.fromEntries([...config, ...(await rules(spaceDir))]));
}

function filesBelow(root: string, extension: string) {
  return readdirSync(root, { recursive: true, encoding: 'utf8' })
    .filter((name) => name.endsWith(extension))
    .toSorted()
    .map((name) => ({ name, text: readFileSync(join(root, name), 'utf8') }));
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

async function rules(spaceDir: string): Promise<readonly (readonly [string, object])[]> {
  const matching = new URL('../src/features/rules/stream/rules.ts', import.meta.url);
  // a rye without rules has nothing that could watch them
  if (!existsSync(matching)) return [];
  const { checkRule } = (await import(matching.href)) as typeof Rules;
  return filesBelow(join(spaceDir, '.ai', 'rules'), '.md').map(({ name, text }) => {
    const parsed = parseRule(text, name);
    const { path, warnings, name: stem, metadata: _meta, mapping: _map, ...content } = parsed;
    const rule = { ...content, name: stem, path, space: 'system', sha256: '' } as const;
    const { problems } = checkRule(rule, compileGlob);
    const wrong = [...warnings.map(({ message }) => message), ...problems];
    if (wrong.length > 0) throw new Error(`${name}: ${wrong.join('; ')}`);
    return [keyOf('rule', text), compact(content)];
  });
}
