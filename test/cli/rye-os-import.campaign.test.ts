import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { beforeEach, expect, it, onTestFinished } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import { openRye } from '../../src/open-rye.ts';
import { type Lab, openLab } from '../attacks/lab.ts';
import { createFakeIo, type FakeIoOptions } from '../helpers/fake-io.ts';

let lab: Lab;
let source: string;

function directive(id: string, metadata: string): string {
  const name = path.basename(id);
  return `# ${name}\n\n\`\`\`xml\n<directive name="${name}" version="1.0.0">\n  <metadata>\n    <description>d</description>\n    <category>${path.dirname(id)}</category>\n    <author>a</author>\n    ${metadata}\n  </metadata>\n  <inputs><input name="who" type="string" required="true">Who.</input></inputs>\n</directive>\n\`\`\`\n\nGreet {input:who}.\n`;
}
const grant = (id: string): string =>
  `<model tier="general" /><permissions><execute><tool>${id}</tool></execute></permissions>`;
const PYTHON = `__version__ = "1.0.0"\n__executor_id__ = "rye/core/runtimes/python/script"\n__category__ = "rye/file-system"\n__tool_description__ = "Edits."\nCONFIG_SCHEMA = {"type": "object", "properties": {}}\n\n\ndef execute(params, project_path):\n    return {"success": True}\n`;
const HEADER = `<!-- rye:signed:2026-03-11T07:13:35Z:${'0'.repeat(64)}:${'A'.repeat(86)}==:4b987fd4e40303ac -->\n`;
const ZEN = `tool_id: zen\ntool_type: http\nversion: "1.0.0"\ncategory: rye/agent/providers/zen\ntier_mapping:\n  general: zen-1\npricing:\n  zen-1:\n    input: 0.8\n    output: 4.0\n`;

/** A project of Rye OS with each kind of file that a migration has to deal with. */
const TREE: Readonly<Record<string, string>> = {
  'directives/team/reads.md': HEADER + directive('team/reads', grant('rye.file-system.*')),
  'directives/team/shell.md': directive('team/shell', grant('rye/bash/bash')),
  'directives/team/spawns.md': directive(
    'team/spawns',
    grant('rye/agent/threads/thread_directive'),
  ),
  'directives/team/mails.md': directive('team/mails', grant('mcp.mail.send')),
  'directives/team/tier.md': directive('team/tier', '<model tier="standard" />'),
  'directives/team/zen.md': directive('team/zen', '<model tier="general" provider="zen/zen" />'),
  'tools/rye/agent/threads/thread_directive.py': `# ${HEADER.slice(5, -5)}\n${PYTHON.replace('rye/file-system', 'rye/agent/threads')}`,
  'tools/rye/file-system/edit_lines.py': PYTHON,
  'tools/rye/file-system/read.py': PYTHON,
  'tools/rye/agent/providers/zen/zen.yaml': ZEN,
  'knowledge/team/notes.md':
    '---\nname: notes\ntitle: Notes\nversion: "1.0.0"\nentry_type: note\ncategory: team\n---\n\nBe brief.\n',
  'config/cas/manifest.yaml': 'version: "1.0.0"\n',
};

beforeEach(async () => {
  lab = await openLab();
  onTestFinished(async () => await lab.remove());
  source = path.join(path.dirname(lab.project), 'old');
  for (const [name, text] of Object.entries(TREE)) {
    const file = path.join(source, '.ai', name);
    mkdirSync(path.dirname(file), { recursive: true });
    writeFileSync(file, text);
  }
});

async function rye(args: readonly string[], options: FakeIoOptions = {}) {
  const io = createFakeIo({ cwd: lab.project, ...options });
  const open = (request: Parameters<typeof openRye>[0]) => Promise.resolve(openRye(request));
  const env = { ...lab.env, HOME: lab.home };
  const code = await main(args, { ...io, env, openRye: open, openThreadList: open });
  return { code, out: io.out(), err: io.err() };
}

const apply = async (...more: readonly string[]) =>
  await rye(['import', 'rye-os', source, '--apply', ...more]);

it('writes, signs and plans what a project of Rye OS has, and asks nothing the second time', async () => {
  const before = readFileSync(path.join(source, '.ai/directives/team/reads.md'), 'utf8');
  const first = await apply('--yes');
  expect(first).toMatchObject({ code: 0, err: '' });
  expect(first.out).toContain('written: 1 configuration file, 1 knowledge entry, 6 directives');
  expect(first.out).toMatch(/To sign:\n(?: {2}\.ai\/.*\n)+signed 8 files\n/);
  expect(first.out).toContain('risk_levels: {elevated: allow}');
  const table = first.out.slice(first.out.indexOf('DIRECTIVE'));
  expect(table).toMatch(/team\/mails +no +tool_unavailable: .*MCP server mail is not configured/);
  for (const id of ['reads', 'shell', 'spawns', 'tier', 'zen'])
    expect(table).toMatch(new RegExp(`^team/${id} +yes$`, 'm'));
  expect(table).toContain('5 of 6 directives plan (83 %)');
  expect(table).toContain('Fill in before you use it: .ai/config/agent/providers/zen.yaml');
  expect(lab.read('config/agent/providers/zen.yaml')).toContain('# Replace HOST');
  // copies of the runtime would hide rye's own tools
  for (const id of ['tools/rye', 'config/cas']) expect(existsSync(lab.path(id))).toBe(false);
  expect(readFileSync(path.join(source, '.ai/directives/team/reads.md'), 'utf8')).toBe(before);

  const again = await apply();
  expect(again.out).toContain('unchanged: 1 configuration file, 1 knowledge entry, 6 directives');
  expect(again.out).not.toMatch(/written|To sign|signed /);
  expect(again.out).toContain('5 of 6 directives plan');
});

it('signs nothing without a yes, and shows how; --yes alone is refused', async () => {
  const alone = await rye(['import', 'rye-os', source, '--yes']);
  expect(alone.err).toContain('--yes has no effect without --apply');

  const { code, out } = await apply();
  expect([code, out.split('\n').at(-2)]).toEqual([
    0,
    `Nothing is signed yet. Review the files, then run: rye import rye-os ${source} --apply --yes`,
  ]);
  expect(lab.read('directives/team/reads.md')).not.toContain('rye:signed:v2');
  const terminal = { stdoutIsTty: true, stderrIsTty: true };
  const yes = await rye(['import', 'rye-os', source, '--apply'], { ...terminal, answer: 'y' });
  expect(yes.out).toContain('5 of 6 directives plan');
});

it('keeps a file of the project that differs, and reports it, also in JSON', async () => {
  const mine = directive('team/reads', '').replace('Greet', 'Salute');
  lab.write('directives/team/reads.md', mine);
  const { out } = await apply('--yes', '--json');
  const { applied } = JSON.parse(out) as { applied: Record<string, unknown> };
  expect(applied).toMatchObject({ signed: 7, not_signed: [], planned: 4 });
  const place = '.ai/directives/team/reads.md';
  const kept = { type: 'directive', id: 'team/reads', path: place, action: 'kept' };
  expect(applied['files']).toContainEqual(kept);
  expect(lab.read('directives/team/reads.md')).toBe(mine);
  const row = { id: 'team/reads', plans: false, code: 'unsigned', reason: expect.any(String) };
  expect(applied['directives']).toContainEqual(row);
});

it('writes nothing outside of the project, also through a link', async () => {
  const elsewhere = path.join(path.dirname(lab.project), 'elsewhere');
  mkdirSync(elsewhere);
  symlinkSync(elsewhere, lab.path('directives'));
  const { code, err } = await apply('--yes');
  expect(code).toBe(4);
  expect(err).toMatch(/leads out of.*\[path_denied\]/);
  expect([existsSync(path.join(elsewhere, 'team')), existsSync(lab.path('config/agent'))]).toEqual([
    false,
    false,
  ]);
});

it('a project is imported in place, and what it changed is listed', async () => {
  const io = { cwd: source };
  const { code, out } = await rye(['import', 'rye-os', '.', '--apply', '--yes'], io);
  expect(code).toBe(0);
  expect(out).toContain('changed: .ai/directives/team/tier.md');
  expect(out).toMatch(/team\/spawns +yes/);
  expect(out).toContain('5 of 6 directives plan');
});

it('a tool of a package runs with the modules beside it, which its signature pins', async () => {
  const tools = path.join(source, '.ai/tools/team');
  mkdirSync(tools, { recursive: true });
  const head =
    '__version__ = "1.0.0"\n__executor_id__ = "rye/core/runtimes/python/function"\n__category__ = "team"\n__tool_description__ = "Measures."\n';
  writeFileSync(path.join(tools, 'shapes.py'), 'def area(side):\n    return side * side\n');
  writeFileSync(path.join(tools, 'words.py'), 'NAME = "square"\n');
  writeFileSync(
    path.join(tools, 'measure.py'),
    `${head}from .shapes import area\nfrom . import words\n\n\ndef execute(params, project_path):\n    return {"text": f"{words.NAME} {area(3)}"}\n`,
  );
  const { code, err } = await apply('--yes');
  expect([code, err]).toEqual([0, '']);
  expect(lab.read('tools/team/measure.py')).toMatch(
    /__files__ = \{(?:".+?": "[0-9a-f]{64}"(?:, )?){2}\}/,
  );
  const ran = await rye(['execute', 'tool', 'team/measure', '--json']);
  expect(ran.out + ran.err).toContain('square 9');
  writeFileSync(path.join(lab.path('tools/team'), 'shapes.py'), 'def area(side):\n    return 0\n');
  expect((await rye(['execute', 'tool', 'team/measure'])).code).not.toBe(0);
});
