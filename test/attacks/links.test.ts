// Requirement: no-write-through-links
import { execFileSync } from 'node:child_process';
import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import { runCli } from '../helpers/run-cli.ts';
import { directive, inLab, type Lab } from './lab.ts';

/** Puts a link of a clone at a place of its project. */
function link(lab: Lab, place: string, target: string): void {
  const path = join(lab.project, place);
  rmSync(path, { recursive: true, force: true });
  mkdirSync(dirname(path), { recursive: true });
  symlinkSync(target, path);
}

const SKILL = '---\nname: x\ndescription: A skill.\n---\nDo it.\n';
const RYE_OS =
  '<directive name="old" version="1.0.0"><metadata><description>Old.</description><category></category><author>you</author><model tier="fast" /></metadata></directive>';

/** A command of a person in a clone: its links to `FILE` and `FOLDER` outside, and what it brings besides. */
const COMMANDS: readonly (readonly [
  args: string,
  link: string,
  target: 'FILE' | 'FOLDER' | 'NONE',
  prepare?: (lab: Lab) => void,
])[] = [
  ['git setup', '.gitattributes', 'FILE'],
  ['git setup', '.gitattributes', 'NONE'],
  ['new directive made', '.ai/directives', 'FOLDER'],
  ['new tool a/made', '.ai/tools/a', 'FOLDER'],
  ['new knowledge made', '.ai/knowledge', 'FOLDER'],
  ['new rule made', '.ai/rules', 'FOLDER'],
  ['new skill made', '.ai/skills', 'FOLDER'],
  ['new skill made', '.ai/skills/made', 'FOLDER'],
  ['new hook made', '.ai/config/agent', 'FOLDER'],
  ['new hook made', '.ai/config/agent/hooks.yaml', 'NONE'],
  ['new directive made', '.ai/directives/made.md', 'NONE'],
  [
    'sign directive job',
    '.ai/signatures',
    'FOLDER',
    (lab) => {
      lab.signed('config/trust.yaml', 'signing: detached\n');
      lab.write('directives/job.md', directive('job'));
    },
  ],
  ['sign directive job', '.ai/directives/job.md', 'FILE'],
  [
    'sign skill x',
    '.ai/skills/x/.rye-files.json',
    'FILE',
    (lab) => lab.write('skills/x/SKILL.md', SKILL),
  ],
  [
    'sign skill x',
    '.ai/skills/x/.rye-files.json',
    'NONE',
    (lab) => lab.write('skills/x/SKILL.md', SKILL),
  ],
  ['fetch directive hello --copy-to project', '.ai/directives', 'FOLDER'],
  ['mcp add s -- true', '.ai/config', 'FOLDER'],
  ['mcp add s -- true', '.ai/config/mcp.yaml', 'NONE'],
  ['models use anthropic --space project', '.ai/config/agent', 'FOLDER'],
  ['schedule add directive hello --cron 0_3_*_*_*', '.ai/config', 'FOLDER'],
  ['init', '.ai/config', 'FOLDER'],
  ['init', '.gitignore', 'FILE'],
];

it.each(COMMANDS.map(([args, place, kind, prepare]) => ({ args, place, kind, prepare })))(
  'rye $args writes nothing through a link at $place to $kind',
  async ({ args, place, kind, prepare }) => {
    await inLab(async (lab) => {
      const outside = join(lab.home, 'outside');
      mkdirSync(outside);
      const file = join(outside, 'file.md');
      const text = kind === 'FILE' ? directive('job') : 'mine';
      writeFileSync(file, text);
      execFileSync('git', ['init', '-q', lab.project]);
      lab.write('directives/other.md', RYE_OS);
      const target = { FILE: file, FOLDER: outside, NONE: join(outside, 'none') }[kind];
      prepare?.(lab);
      link(lab, place, target);
      lab.env['ANTHROPIC_API_KEY'] = 'k';
      const words = args.split(' ').map((word) => word.replaceAll('_', ' '));
      const { code, stdout, stderr } = await runCli(words, { cwd: lab.project, env: lab.env });
      expect(readFileSync(file, 'utf8'), stdout).toBe(text);
      expect(readdirSync(outside), stdout + stderr).toEqual(['file.md']);
      expect(existsSync(join(outside, 'none'))).toBe(false);
      expect(stderr).toContain('[path_denied]');
      expect(code, stderr).not.toBe(0);
    });
  },
);

it('a link that stays in the project is followed', async () => {
  await inLab(async (lab) => {
    execFileSync('git', ['init', '-q', lab.project]);
    mkdirSync(join(lab.project, 'conf'));
    symlinkSync('conf/attributes', join(lab.project, '.gitattributes'));
    const { code, stderr } = await runCli(['git', 'setup'], { cwd: lab.project, env: lab.env });
    expect(code, stderr).toBe(0);
    expect(readFileSync(join(lab.project, 'conf/attributes'), 'utf8')).toContain('merge=rye');
  });
});
