import { mkdirSync, readFileSync } from 'node:fs';
import path from 'node:path';
import { beforeAll, describe, expect, it } from 'vitest';
import { runCli } from '../helpers/run-cli.ts';
import { temporaryWorkspace, type Workspace } from '../helpers/workspace.ts';

let here: Workspace;

beforeAll(async () => {
  const made = await temporaryWorkspace({});
  here = made;
  for (const [type, id] of [
    ['directive', 'team/review'],
    ['skill', 'tables'],
    ['tool', 'team/count'],
  ] as const) {
    await here.rye(['new', type, id]);
  }
  return made.remove;
});

const REVIEW = '.ai/directives/team/review.md';

describe('the path of an item replaces its type and ID', () => {
  it.each<[string, readonly string[], string | RegExp]>([
    ['validate', [REVIEW], '1 item checked'],
    ['validate', ['directive', `./${REVIEW}`], '1 item checked'],
    ['sign', ['.ai/config/agent/resilience.yaml'], 'unchanged .ai/config/agent/resilience.yaml'],
    ['sign', ['.ai/skills/tables/SKILL.md'], /(signed|unchanged) \.ai\/skills\/tables\/SKILL\.md/],
    ['sign', [REVIEW], /(signed|unchanged) \.ai\/directives\/team\/review\.md/],
    ['verify', [REVIEW], `ok   ${REVIEW}`],
    ['fetch', [REVIEW], 'directive team/review (project'],
    ['fetch', ['directives', REVIEW], 'directive team/review (project'],
    ['run', [REVIEW, '--input', 'topic=x', '--dry-run'], 'directive   team/review'],
  ])('rye %s %j', async (command, words, expected) => {
    const { code, stdout, stderr } = await here.rye([command, ...words]);
    expect(stdout + stderr).toMatch(expected);
    expect(code).toBe(0);
  });

  it('rye chat starts with the directive of a path', async () => {
    const greeted = await here.rye(
      [
        '-c',
        'resilience.tools.sandbox=off',
        'chat',
        '.ai/directives/hello.md',
        '--input',
        'who=Ada',
      ],
      {
        stdin: '/quit\n',
      },
    );
    expect(greeted.stderr).toBe('');
    expect(greeted).toMatchObject({ code: 0, stdout: expect.stringContaining('Ada') as string });
  });

  it('is relative to the working directory, or absolute', async () => {
    const folder = path.join(here.project, 'src');
    mkdirSync(folder, { recursive: true });
    for (const word of [`../${REVIEW}`, path.join(here.project, REVIEW)]) {
      const fetched = await runCli(['fetch', word, '--raw'], {
        cwd: folder,
        env: { HOME: here.home },
      });
      expect(fetched.code).toBe(0);
      expect(fetched.stdout).toBe(readFileSync(path.join(here.project, REVIEW), 'utf8'));
    }
  });

  it.each([
    ['directive', 'team/review.md', 0],
    ['directive', './team/review.md', 6],
    ['directive', '../directives/team/review.md', 6],
    ['directive', 'team/none.md', 6],
    ['tool', 'team/review.md', 6],
  ])('below the folder of its type is enough: fetch %s %s', async (type, word, code) => {
    expect((await here.rye(['fetch', type, word])).code).toBe(code);
  });

  it('is refused for another project and for another type, and signs nothing', async () => {
    const other = path.join(here.home, '..', 'other', REVIEW);
    const foreign = await here.rye(['sign', other]);
    expect(foreign).toMatchObject({ code: 2, stdout: '' });
    expect(foreign.stderr).toContain('is not in this project');
    const tool = await here.rye(['run', '.ai/tools/team/count.mjs']);
    expect(tool.code).toBe(2);
    expect(tool.stderr).toContain('is a tool, not a directive');
  });

  it('still needs the ID after a type', async () => {
    const { code, stderr } = await here.rye(['fetch', 'directive']);
    expect({ code, stderr }).toMatchObject({ code: 2 });
    expect(stderr).toContain('missing argument <id>');
  });
});

describe('rye search', () => {
  it('searches all items if no type is named', async () => {
    const { code, stdout } = await here.rye(['search', 'review']);
    expect(code).toBe(0);
    expect(stdout).toContain('directive team/review');
  });

  it('names the way to search for a word that is a type', async () => {
    const { code, stderr } = await here.rye(['search', 'tools']);
    expect(code).toBe(2);
    expect(stderr).toContain('rye search all tools');
  });

  it('refuses an unknown type before two words', async () => {
    const { code, stderr } = await here.rye(['search', 'rate', 'limit']);
    expect(code).toBe(2);
    expect(stderr).toContain('unknown type "rate"');
  });
});
