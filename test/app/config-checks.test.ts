import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

test('validate and sign refuse configuration that a run could not read, and leave it as it is', async () => {
  const here = await workspace();
  const broken: Readonly<Record<string, readonly [text: string, message: RegExp]>> = {
    trust: ['execute: always\n', /execute/],
    mcp: ['servers:\n  files:\n    command: 7\n', /MCP server "files"/],
    'agent/hooks': ['hooks:\n  - id: x\n    event: never\n', /never/],
    'agent/resilience': ['limits:\n  turns: many\n', /turns/],
    'agent/capability_risk': ['risk_levels:\n  write: perhaps\n', /perhaps/],
    'agent/providers/local': ['kind: unheard\n', /kind/],
    'agent/rules': ['{ not yaml', /./],
  };
  for (const [id, [text, message]] of Object.entries(broken)) {
    const file = path.join(here.project, '.ai/config', `${id}.yaml`);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    for (const command of ['validate', 'sign']) {
      const { code, stdout, stderr } = await here.rye([command, 'config', id]);
      expect([command, id, code]).toEqual([command, id, 2]);
      expect(`${stdout}${stderr}`).toMatch(message);
      expect(`${stdout}${stderr}`).toContain(`${id}.yaml`);
    }
    expect(readFileSync(file, 'utf8')).toBe(text);
  }
  const all = await here.json(['validate']);
  const { problems } = all as { problems: { path: string }[] };
  const files = problems.map((problem) => problem.path);
  for (const id of Object.keys(broken)) {
    expect(files).toContain(path.join(here.project, '.ai/config', `${id}.yaml`));
  }
});

test('configuration of every kind that a run can read is accepted', async () => {
  const here = await workspace();
  const good: Readonly<Record<string, string>> = {
    trust: 'fetch: required\nsigning: inline\n',
    mcp: 'servers:\n  files:\n    command: node\n    env:\n      TOKEN: ${SOME_TOKEN}\n',
    'agent/capability_risk': 'risk_levels:\n  write: acknowledge_required\n',
    'agent/providers/anthropic': 'base_url: https://example.com\n',
    'agent/resilience': 'limits:\n  turns: 7\n',
  };
  for (const [id, text] of Object.entries(good)) {
    const file = path.join(here.project, '.ai/config', `${id}.yaml`);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
    const { code, stderr } = await here.rye(['sign', 'config', id]);
    expect([id, code, stderr]).toEqual([id, 0, '']);
  }
});

test('validate warns of a base and of context that no space has, and names the line', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai/directives/child.md');
  const text = (base: string, knowledge: string): string => `# Child

\`\`\`xml
<directive name="child" version="1.0.0" extends="${base}">
<metadata>
<description>D</description><author>A</author><category></category>
<context>
<before>${knowledge}</before>
</context>
</metadata>
</directive>
\`\`\`
Go.
`;
  const warnings = async (): Promise<readonly unknown[]> => {
    const { problems } = await here.json(['validate', 'directive', 'child']);
    return (problems as { message: string; severity: string; line: number }[]).map(
      ({ message, severity, line }) => [severity, line, message],
    );
  };
  writeFileSync(file, text('nowhere', 'nothing'));
  expect(await warnings()).toEqual([
    ['warning', 4, 'the directive needs the directive nowhere, which no space has'],
    ['warning', 8, 'the directive needs the knowledge nothing, which no space has'],
  ]);
  // it may be written later, and names of the rules of neighbors are no entries
  writeFileSync(file, text('hello', 'neighbors/all'));
  expect(await warnings()).toEqual([]);
});
