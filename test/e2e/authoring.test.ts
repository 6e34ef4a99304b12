import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

test.each([
  ['directive', 'reports/weekly', 'directives/reports/weekly.md'],
  ['tool', 'team/count', 'tools/team/count.js'],
  ['knowledge', 'team/terms', 'knowledge/team/terms.md'],
  ['rule', 'team/no-fixme', 'rules/team/no-fixme.md'],
  ['skill', 'tables', 'skills/tables/SKILL.md'],
  ['hook', 'house_rules', 'config/agent/hooks.yaml'],
])('what new %s %s writes passes validate and can be signed', async (type, id, file) => {
  const here = await workspace();
  const created = await here.rye(['new', type, id]);
  expect(created).toMatchObject({ code: 0, stdout: `created .ai/${file}\n` });
  expect(created.stderr).toContain(`rye edit ${type} ${id}`);
  const validated = await here.rye(['validate', type, id]);
  expect(validated).toMatchObject({ code: 0, stdout: '' });
  expect(validated.stderr).toContain('1 item checked, 0 errors, 0 warnings');
  expect((await here.rye(['sign', type, id])).stdout).toContain('signed');
  const text = readFileSync(path.join(here.project, '.ai', file), 'utf8');
  const again = await here.rye(['new', type, id]);
  expect(again.code).toBe(2);
  expect(again.stderr).toContain('[already_exists]');
  expect(readFileSync(path.join(here.project, '.ai', file), 'utf8')).toBe(text);
});

test('new hook keeps the hooks and comments of the file; a bad id is refused without a file', async () => {
  const here = await workspace();
  await here.rye(['new', 'hook', 'one']);
  const file = path.join(here.project, '.ai/config/agent/hooks.yaml');
  writeFileSync(file, `# ours\n${readFileSync(file, 'utf8')}`);
  expect((await here.rye(['new', 'hook', 'two'])).code).toBe(0);
  expect(readFileSync(file, 'utf8')).toMatch(/^# ours\n[\s\S]*id: one[\s\S]*id: two/);
  expect((await here.rye(['validate', 'hook', 'two'])).code).toBe(0);
  expect((await here.rye(['validate', 'hook', 'three'])).code).toBe(6);
  for (const [type, id] of [
    ['directive', 'Weekly'],
    ['directive', '../out'],
    ['tool', 'a b'],
    ['hook', 'a b'],
    ['skill', 'Upper Case'],
  ] as const) {
    const refused = await here.rye(['new', type, id]);
    expect([id, refused.code]).toEqual([id, 2]);
    expect(refused.stderr).toContain('[invalid_item_id]');
  }
});

/** An editor that replaces a text in the file that it gets. */
function editor({ home }: Workspace, from: string, to: string): string {
  const script = path.join(home, 'editor.mjs');
  writeFileSync(
    script,
    `import { readFileSync, writeFileSync } from 'node:fs';
const file = process.argv.at(-1);
writeFileSync(file, readFileSync(file, 'utf8').replace(${JSON.stringify(from)}, ${JSON.stringify(to)}));
`,
  );
  return `${process.execPath} ${script}`;
}

test('edit opens the editor, validates and signs; a mistake exits 2 and keeps the text unsigned', async () => {
  const here = await workspace();
  await here.rye(['new', 'directive', 'weekly']);
  const file = path.join(here.project, '.ai/directives/weekly.md');
  const good = { EDITOR: editor(here, 'Describe the directive', 'Describes the directive') };
  expect(await here.rye(['edit', 'weekly'], { env: good })).toMatchObject({
    code: 0,
    stdout: 'signed .ai/directives/weekly.md\n',
  });
  expect((await here.rye(['verify', 'directive', 'weekly'])).code).toBe(0);
  const bad = { VISUAL: editor(here, 'turns: 10', 'turnz: [10'), EDITOR: 'false' };
  const refused = await here.rye(['edit', 'directive', 'weekly'], { env: bad });
  expect(refused).toMatchObject({ code: 2, stdout: 'failed .ai/directives/weekly.md\n' });
  expect(refused.stderr).toMatch(/weekly\.md:\d+:\d+: directive_malformed/);
  expect(readFileSync(file, 'utf8')).toContain('turnz: [10');
  expect((await here.rye(['run', 'weekly'])).code).toBe(3);
});

test('edit --as writes a directive in the other notation, and signs it', async () => {
  const here = await workspace();
  await here.rye(['new', 'directive', 'weekly']);
  const file = path.join(here.project, '.ai/directives/weekly.md');
  const yaml = readFileSync(file, 'utf8');
  expect(yaml.startsWith('---\n')).toBe(true);
  const edit = async (...args: readonly string[]) => await here.rye(['edit', ...args]);
  expect((await edit('directive', 'weekly', '--as', 'xml')).code).toBe(0);
  expect(readFileSync(file, 'utf8')).toMatch(
    /^<!-- rye:signed:.*\n```xml\n<directive name="weekly"/,
  );
  expect((await edit('weekly', '--as', 'yaml')).code).toBe(0);
  expect(readFileSync(file, 'utf8')).toMatch(/^<!-- rye:signed:.*\n---\ndescription: /);
  expect((await here.rye(['verify', 'directive', 'weekly'])).code).toBe(0);
  expect((await here.rye(['run', 'weekly', '--dry-run', '--input', 'topic=x'])).code).not.toBe(3);
  expect((await edit('config', 'agent/hooks', '--as', 'xml')).code).not.toBe(0);
});

test('edit names what is missing', async () => {
  const here = await workspace();
  expect((await here.rye(['edit', 'example'])).stderr).toContain('no editor is set');
  const env = { EDITOR: 'false' };
  expect((await here.rye(['edit', 'example'], { env })).stderr).toContain('the editor failed');
  expect((await here.rye(['edit', 'nope'], { env })).stderr).toContain('rye new directive nope');
  expect((await here.rye(['edit', 'hello'], { env })).stderr).toContain('--copy-to project');
  expect((await here.rye(['edit', 'thing', 'hello'], { env })).code).toBe(2);
});

/** Starts `rye sign --watch`, and waits for lines of its output. */
async function watching({ project, home }: Workspace) {
  const bin = path.join(await cliPackage(), 'bin/rye.js');
  const env = { HOME: home, PATH: process.env['PATH'] ?? '' };
  const child = spawn(process.execPath, [bin, 'sign', '--watch'], { cwd: project, env });
  onTestFinished(() => void child.kill('SIGKILL'));
  // the order of the two streams is not certain, so each has its own text
  const texts = { stdout: '', stderr: '' };
  for (const name of ['stdout', 'stderr'] as const)
    child[name].setEncoding('utf8').on('data', (text: string) => {
      texts[name] += text;
    });
  const seen = async (text: string, name: 'stdout' | 'stderr' = 'stdout'): Promise<void> => {
    while (!texts[name].includes(text)) await once(child[name], 'data');
    texts[name] = texts[name].slice(texts[name].indexOf(text) + text.length);
  };
  await seen('Ctrl-C ends', 'stderr');
  return { child, seen };
}

test('sign --watch signs what is saved, names mistakes and ends at Ctrl-C', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai/directives/example.md');
  const text = readFileSync(file, 'utf8');
  const { child, seen } = await watching(here);
  writeFileSync(file, `${text}\nMore.\n`);
  await seen('signed .ai/directives/example.md');
  expect((await here.rye(['run', 'example'])).code).toBe(0);
  writeFileSync(file, text.replace('</metadata>', '</meta>'));
  await seen('failed .ai/directives/example.md');
  await seen('xml_malformed', 'stderr');
  // as an editor that writes a copy and renames it
  writeFileSync(`${file}.tmp`, `${text}\nAgain.\n`);
  renameSync(`${file}.tmp`, file);
  await seen('signed .ai/directives/example.md');
  mkdirSync(path.join(here.project, '.ai/config/agent'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/config/agent/hooks.yaml'), 'hooks: [\n');
  await seen('failed .ai/config/agent/hooks.yaml');
  child.kill('SIGINT');
  await once(child, 'exit');
  expect(child.exitCode).toBe(130);
});

test('sign --watch leaves what another key signed', async () => {
  const here = await workspace();
  const other = await workspace();
  const { child, seen } = await watching(here);
  const theirs = readFileSync(path.join(other.project, '.ai/directives/example.md'), 'utf8');
  const file = path.join(here.project, '.ai/directives/example.md');
  writeFileSync(file, theirs);
  await seen('skipped directive example: key');
  writeFileSync(file, `${theirs}\nEdited.\n`);
  await seen('skipped directive example: key');
  expect(readFileSync(file, 'utf8')).toBe(`${theirs}\nEdited.\n`);
  child.kill('SIGINT');
  await once(child, 'exit');
});
