import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { calls, says, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

function write(here: Workspace, file: string, text: string): void {
  const full = path.join(here.project, file);
  mkdirSync(path.dirname(full), { recursive: true });
  writeFileSync(full, text);
}

function skill(here: Workspace, name: string, more = ''): void {
  write(
    here,
    `.ai/skills/${name}/SKILL.md`,
    `---\nname: ${name}\ndescription: How to do ${name}.\n${more}---\n\nThe body of ${name}: !\`touch ran\`\n`,
  );
}

test('a thread loads the skills that it may fetch, reads their files and gains nothing by allowed-tools', async () => {
  const here = await workspace();
  skill(here, 'tables', 'allowed-tools: rye/bash Bash(git:*)\n');
  skill(here, 'unsigned');
  skill(here, 'private');
  write(here, '.ai/skills/tables/references/form.md', 'the form of a table');
  write(here, 'outside.txt', 'not of the skill');
  symlinkSync(
    path.join(here.project, 'outside.txt'),
    path.join(here.project, '.ai/skills/tables/link.md'),
  );
  write(
    here,
    '.ai/directives/work.md',
    '# Work\n\n```xml\n<directive name="work" version="1.0.0"><metadata><description>Use skills.</description><category></category><author>test</author><permissions><fetch><skill>tables</skill></fetch><fetch><skill>unsigned</skill></fetch></permissions></metadata></directive>\n```\n\nUse the skills.\n',
  );
  for (const item of [
    ['skill', 'tables'],
    ['skill', 'private'],
    ['directive', 'work'],
  ]) {
    expect(await here.rye(['sign', ...item])).toMatchObject({ code: 0 });
  }
  const server = await startWireServer([
    calls(toolUse('skills_read', { name: 'tables', path: 'references/form.md' }, 'a')),
    calls(
      toolUse('skills_use', { name: 'tables' }, 'b'),
      toolUse('skills_use', { name: 'private' }, 'c'),
    ),
    calls(
      toolUse('skills_read', { name: 'tables', path: 'references/form.md' }, 'd'),
      toolUse('skills_read', { name: 'tables', path: '../private/SKILL.md' }, 'e'),
      toolUse('skills_read', { name: 'tables', path: 'link.md' }, 'f'),
      toolUse('rye_bash', { command: 'echo widened' }, 'g'),
    ),
    says('done'),
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'sk-ant-of-this-test', ANTHROPIC_BASE_URL: server.url };
  expect(await here.json(['run', 'work'], { env })).toMatchObject({
    success: true,
    result: 'done',
  });
  const [first, second, third, fourth] = server.requests.map(({ body }) => body);
  const system = JSON.stringify(first?.system);
  expect(system).toContain('How to do tables.');
  expect(system).not.toContain('How to do unsigned.');
  expect(system).not.toContain('How to do private.');
  expect(system).not.toContain('The body of tables');
  const results = (body: unknown): string =>
    JSON.stringify((body as { messages: readonly unknown[] }).messages.at(-1));
  expect(results(second)).toContain('skills_use');
  expect(results(second)).not.toContain('the form of a table');
  expect(results(third)).toContain('The body of tables: !`touch ran`');
  expect(results(third)).toContain('references/form.md');
  expect(results(third)).toContain('does not hold the capability rye.fetch.skill.private');
  const last = results(fourth);
  expect(last).toContain('the form of a table');
  expect(last).not.toContain('The body of private');
  expect(last).not.toContain('not of the skill');
  expect(last).toContain('does not hold the capability rye.execute.tool.rye.bash');
});
