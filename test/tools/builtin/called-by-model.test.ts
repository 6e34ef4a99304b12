import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { BehaviorOptions } from '../../../src/index.ts';
import { type LibraryLab, libraryLab } from '../../app/library-lab.ts';
import { resultsOf } from '../../app/made-calls.ts';
import { calls, reply, toolUse, type WireStep } from '../../helpers/wire-server.ts';

const file = (tool: string, input: object, id: string): WireStep =>
  toolUse(`rye_file_system_${tool}`, input, id);

/** The results of these calls, made one after the other in a project with these files. */
async function resultsIn(
  files: Readonly<Record<string, string | Uint8Array>>,
  steps: readonly WireStep[],
  behavior: BehaviorOptions = {},
): Promise<{ results: Readonly<Record<string, string>>; project: string; lab: LibraryLab }> {
  const lab = await libraryLab([...steps.map((step) => calls(step)), reply('Done.')]);
  for (const [name, content] of Object.entries(files))
    writeFileSync(path.join(lab.project, name), content);
  await lab.directive('work', [], {
    metadata:
      '<permissions><execute><tool>rye/file-system/*</tool><tool>rye/bash</tool></execute><acknowledge risk="unrestricted">A test.</acknowledge></permissions>',
  });
  const run = { directiveId: 'team/work', behavior } as const;
  expect(await lab.open().run(run)).toMatchObject({ kind: 'completed' });
  return { results: resultsOf(lab.server.requests), project: lab.project, lab };
}

const numbered = (count: number): string =>
  Array.from({ length: count }, (_, index) => `row ${index + 1}\n`).join('');

it('read marks a binary file and shows none of its bytes', async () => {
  const bytes = Uint8Array.from([0x50, 0x4b, 0, 1, 2, 3]);
  const { results } = await resultsIn({ 'a.zip': bytes }, [file('read', { path: 'a.zip' }, 'a')]);
  expect(results['a']).toMatch(/binary/i);
  expect(results['a']).not.toContain('PK');
});

it('read shows 2,000 lines and names the next offset; limit 0 and maxBytes 0 show the rest', async () => {
  const all = { path: 'a.txt', limit: 0, maxBytes: 0 };
  const { results } = await resultsIn(
    { 'a.txt': numbered(3000) },
    [file('read', { path: 'a.txt' }, 'page'), file('read', all, 'all')],
    { persist_threshold: 0 },
  );
  expect(results['page']).toMatch(/2000\trow 2000\n.*continue with offset=2001/s);
  expect(results['page']).not.toContain('row 2001');
  expect(results['all']).toContain('3000\trow 3000');
  expect(results['all']).not.toContain('continue with');
});

it('read numbers lines, and edit understands lines that are pasted with their numbers', async () => {
  const { results, project } = await resultsIn({ 'a.txt': 'one\ntwo\n' }, [
    file('read', { path: 'a.txt' }, 'read'),
    file(
      'edit',
      { path: 'a.txt', old_string: '1\tone\n2\ttwo', new_string: '1\tONE\n2\ttwo' },
      'edit',
    ),
  ]);
  expect(results['read']).toContain('1\tone\n2\ttwo');
  expect(readFileSync(path.join(project, 'a.txt'), 'utf8')).toBe('ONE\ntwo\n');
});

it('bash keeps head and tail of a long output without splitting a character, and marks what is missing', async () => {
  const command = `printf 'é%.0s' $(seq 1 500)`;
  const { results } = await resultsIn({}, [toolUse('rye_bash', { command }, 'a')], {
    shell_max_output_bytes: 101,
  });
  expect(results['a']).toMatch(/^é+\n?…\(\d+ bytes omitted\)…\n?é+\n\(exit 0, \d+ms\)$/);
});

it('write reports a file as created, updated or unchanged', async () => {
  const write = (content: string, id: string) => file('write', { path: 'new/a.txt', content }, id);
  const { results, project } = await resultsIn({}, [
    write('one', 'a'),
    write('two', 'b'),
    write('two', 'c'),
  ]);
  expect(results['a']).toMatch(/^Created/);
  expect(results['b']).toMatch(/^Updated/);
  expect(results['c']).toMatch(/^No change/);
  expect(readFileSync(path.join(project, 'new/a.txt'), 'utf8')).toBe('two');
});

it('edit needs a text that occurs once, or replaces all; without a match it shows the nearest lines', async () => {
  const edit = (input: object, id: string) => file('edit', { path: 'a.txt', ...input }, id);
  const text = 'const rate = 1;\nx\ny\nx\n';
  const { results, project } = await resultsIn({ 'a.txt': text }, [
    edit({ old_string: 'x', new_string: 'z' }, 'twice'),
    edit({ old_string: 'const rates = 1;', new_string: '' }, 'none'),
    edit({ old_string: 'x', new_string: 'z', replace_all: true }, 'all'),
  ]);
  expect(results['twice']).toContain('occurs 2 times (lines 2, 4)');
  expect(results['none']).toContain('const rate = 1;');
  expect(readFileSync(path.join(project, 'a.txt'), 'utf8')).toBe('const rate = 1;\nz\ny\nz\n');
});

it('multi_edit applies all edits of a file or none', async () => {
  const multi = (to: string, id: string) =>
    file(
      'multi_edit',
      {
        path: 'a.txt',
        edits: [
          { old_string: 'one', new_string: '1' },
          { old_string: to, new_string: '2' },
        ],
      },
      id,
    );
  const { results, project } = await resultsIn({ 'a.txt': 'one two\n' }, [
    multi('three', 'bad'),
    file('read', { path: 'a.txt' }, 'between'),
    multi('two', 'good'),
  ]);
  expect(results['bad']).toContain('Edit 2 of 2 failed, nothing was written');
  expect(results['between']).toContain('one two');
  expect(readFileSync(path.join(project, 'a.txt'), 'utf8')).toBe('1 2\n');
});

it.each([
  ['with ripgrep', process.env['PATH'] ?? ''],
  ['without ripgrep', '/nonexistent'],
])('grep pages by head_limit and offset, 250 lines at first: %s', async (_, PATH) => {
  const lab = await libraryLab([
    calls(toolUse('rye_file_system_grep', { pattern: 'row' }, 'first')),
    calls(toolUse('rye_file_system_grep', { pattern: 'row', head_limit: 2, offset: 250 }, 'next')),
    reply('Done.'),
  ]);
  writeFileSync(path.join(lab.project, 'a.txt'), numbered(600));
  await lab.directive('work', ['rye/file-system/grep']);
  const env = { PATH, ANTHROPIC_API_KEY: 'sk-ant-test', ANTHROPIC_BASE_URL: lab.server.url };
  await lab.open({ env }).run({ directiveId: 'team/work' });
  const results = resultsOf(lab.server.requests);
  expect(results['first']).toContain('a.txt:250:row 250');
  expect(results['first']).not.toContain('row 251');
  expect(results['next']?.match(/a\.txt:\d+:/g)).toEqual(['a.txt:251:', 'a.txt:252:']);
});

it('the tools of skills are offered where a skill is: one that runs scripts only if a skill may be executed', async () => {
  const lab = await libraryLab(() => reply('Done.'));
  const folder = path.join(lab.project, '.ai/skills/tables');
  mkdirSync(folder, { recursive: true });
  writeFileSync(
    path.join(folder, 'SKILL.md'),
    '---\nname: tables\ndescription: Makes <tables>.\n---\nBody of tables.\n',
  );
  const rye = lab.open();
  await rye.items.sign('skill', 'tables');
  const offered = async (name: string, permissions: string): Promise<string[]> => {
    await lab.directive(name, [], { metadata: `<permissions>${permissions}</permissions>` });
    await rye.run({ directiveId: `team/${name}` });
    const body = lab.server.requests.at(-1)?.body;
    const hasCatalog = JSON.stringify(body?.system ?? '').includes('Makes &lt;tables&gt;.');
    const names = (body?.tools ?? []).map((tool) => tool.name);
    return [...names.filter((tool) => tool?.startsWith('skills_')), String(hasCatalog)] as string[];
  };
  const fetch = '<fetch><skill>tables</skill></fetch>';
  const execute =
    '<execute><skill>tables</skill></execute><acknowledge risk="elevated">A test.</acknowledge>';
  expect(await offered('plain', '')).toEqual(['false']);
  expect(await offered('reads', fetch)).toEqual(['skills_use', 'skills_read', 'true']);
  expect(await offered('runs', `${fetch}${execute}`)).toEqual([
    'skills_use',
    'skills_read',
    'skills_run_script',
    'true',
  ]);
});
