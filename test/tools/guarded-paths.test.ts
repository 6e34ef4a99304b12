import { linkSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { GUARDED_KINDS, type GuardedKind, guardOf } from '../../src/kernel/tools/guarded-paths.ts';
import { Project } from './helpers.ts';

const lifting = (...kinds: readonly GuardedKind[]) => ({
  lifts: (kind: GuardedKind) => kinds.includes(kind),
});

describe('guardOf', () => {
  it.each<[GuardedKind, readonly string[]]>([
    ['directives', ['.ai/directives/a.md', 'sub/.ai/directives/x/y.md', '.AI/Directives/a.md']],
    ['tools', ['.ai/tools/a.sh', '.ai./tools/a.sh', '.ai /tools/lib/x']],
    ['knowledge', ['.ai/knowledge/note.md', '.ai/knowledge/agent/threads/hello/a.md']],
    ['rules', ['.ai/rules/x.md']],
    ['skills', ['.ai/skills/x/SKILL.md', '.ai/skills/x/.rye-files.json']],
    [
      'config',
      [
        '.ai/config/agent/hooks.yaml',
        '.ai/lock.json',
        'vendor/.ai/lock.json',
        '.ai::$DATA/config/a',
      ],
    ],
    [
      'traps',
      [
        '.git',
        '.git/config',
        'sub/.GIT/hooks/x',
        'GIT~1/config',
        '.g\u200cit/config',
        '.git./config',
        '.git::$INDEX_ALLOCATION/config',
        '.gitmodules',
        '.gitattributes',
        '.hg/hgrc',
        '.jj/repo/config.toml',
        '.svn/x',
        '.bzr/x',
        '_darcs/prefs/defaults',
        '.envrc',
        'deep/.envrc',
        '.envrc.local',
        '.mise.toml',
        'mise.toml',
        '.direnv/x',
        '.vscode/tasks.json',
        '.VSCode/settings.json',
        '.idea/workspace.xml',
        'a.code-workspace',
        '.devcontainer/devcontainer.json',
        '.devcontainer.json',
        '.husky/pre-commit',
        '.npmrc',
        '.yarnrc.yml',
        '.pnpmfile.cjs',
        '.mcp.json',
        '.claude/settings.json',
        '.cursor/mcp.json',
        '.codex/config.toml',
        '.cargo/config.toml',
        '.bashrc',
        '.zshenv',
        '.profile',
        '.config/git/config',
        '.config/fish/config.fish',
        '.exrc',
        '.ssh/config',
        '.cache/rye/code/x',
        'x/commondir',
      ],
    ],
    // Requirement: no-editor-traps
  ])('guards %s', (kind, paths) => {
    for (const path of paths) {
      expect([path, guardOf(`/p/${path}`, '/p', true)?.kind]).toEqual([path, kind]);
    }
  });

  it.each([
    'package.json',
    'Makefile',
    '.github/workflows/ci.yml',
    '.gitignore',
    '.env',
    '.editorconfig',
    'src/config.ts',
    'config',
    'src/objects/a.ts',
    'git/config',
    '.ai/reports/a.md',
    '.config/app.json',
    'docs/.vitepress/config.ts',
    'AGENTS.md',
    '.prettierrc',
    '.github/x',
  ])('leaves %s alone', (path) => {
    expect(guardOf(`/p/${path}`, '/p', true)).toBeUndefined();
  });

  it('judges a project by what lies in it, not by the folders above', () => {
    expect(guardOf('/home/u/.claude/worktrees/p/a.ts', '/home/u/.claude/worktrees/p', true)).toBe(
      undefined,
    );
    expect(guardOf('/home/u/.ai/config/trust.yaml', '/home/u/.ai', false)?.kind).toBe('config');
  });
});

describe('writes to guarded paths', () => {
  // Requirement: guarded-files
  it('are refused with the grant that a person can give', async () => {
    await using project = await Project.create({ '.ai/config/agent/hooks.yaml': 'hooks: []\n' });
    const write = await project.run('write', { path: '.ai/config/agent/hooks.yaml', content: '' });
    expect(write.text).toContain('path_denied');
    expect(write.text).toContain('.ai/config/agent/hooks.yaml');
    expect(write.text).toContain('rye/file-system/guarded/config');
    for (const name of ['edit', 'multi_edit']) {
      const edit = { old_string: '[]', new_string: '' };
      const input = name === 'edit' ? edit : { edits: [edit] };
      const changed = await project.run(name, { path: '.ai/config/agent/hooks.yaml', ...input });
      expect(changed.text).toContain('path_denied');
    }
    expect(readFileSync(project.file('.ai/config/agent/hooks.yaml'), 'utf8')).toBe('hooks: []\n');
  });

  it('are refused through links to folders and files', async () => {
    await using project = await Project.create({ '.ai/rules/a.md': 'rule\n' });
    symlinkSync('.ai', project.file('plain'));
    symlinkSync('.ai/rules/a.md', project.file('notes.md'));
    for (const path of ['plain/rules/a.md', 'plain/rules/new.md', 'notes.md']) {
      expect((await project.run('write', { path, content: 'x' })).text).toContain('path_denied');
    }
  });

  it('leave the item alone when its hard link is written', async () => {
    await using project = await Project.create({ '.ai/rules/a.md': 'rule\n' });
    linkSync(project.file('.ai/rules/a.md'), project.file('notes.md'));
    await project.run('write', { path: 'notes.md', content: 'x' });
    expect(readFileSync(project.file('.ai/rules/a.md'), 'utf8')).toBe('rule\n');
  });

  it('pass when the thread holds the grant of that kind, and of no other', async () => {
    await using project = await Project.create();
    const options = lifting('directives');
    const write = async (path: string) =>
      (await project.run('write', { path, content: 'x' }, options)).text;
    expect(await write('.ai/directives/a.md')).toContain('Created');
    expect(await write('.ai/rules/a.md')).toContain('path_denied');
    expect(await write('.envrc')).toContain('path_denied');
  });

  it("are refused with every grant when they are rye's state or keys", async () => {
    await using project = await Project.create();
    for (const path of [
      '.ai/state/x',
      '.ai/state./x',
      '.ai/config/keys/trusted/a.toml',
      '.ai/.env',
    ]) {
      const { text } = await project.run(
        'write',
        { path, content: 'x' },
        lifting(...GUARDED_KINDS),
      );
      expect([path, text.includes('path_denied')]).toEqual([path, true]);
    }
  });
});

describe('new names in the root of a project', () => {
  /** Names that an attacker found outside the table of that time, and siblings: no table can have all. */
  const TRAPS = [
    '.helix/languages.toml opencode.json opencode.jsonc .pi/extensions/x.ts .roo/mcp.json',
    '.vimspector.json _vimrc _exrc .gemini/settings.json .opencode/x .windsurf/x .kiro/hooks/x',
    '.zed/tasks.json .run/x.xml .fleet/run.json .direnv/x .mise/config.toml .mise.local.toml',
    'mise.local.toml .devcontainer.json a.code-workspace a.sublime-project .gdbinit .vimrc .bzr/x',
    '.pijul/config .cline/x .clinerules/x .continue/config.yaml .amazonq/mcp.json .augment/x',
    '.qwen/x .trae/x .junie/mcp.json .crush.json crush.json .goose/x .factory/x .aider.conf.yml',
    '.claude.json .agents/x .yarn/plugins/x.cjs .bunfig.toml .mvn/jvm.config .bundle/config',
    '.inputrc .tmux.conf .screenrc .pdbrc lefthook.yml .lefthook/pre-commit/x',
    '.pre-commit-config.yaml .envrc.local .pylintrc .eslintrc.js .prettierrc .luarc.json .clangd',
    '.tool-versions .env .an-agent-of-next-year/hooks.json .unknown .GitHub/hooks/x.json',
    '.github/agents/x.json .github/copilot/mcp.json .gitlab/duo/x.json .g\u200bemini/x .Idea./x',
    '.ZED/tasks.json',
  ]
    .join(' ')
    .split(' ');
  const PLAIN = [
    '.gitignore .dockerignore .npmignore .editorconfig .env.example .env.sample',
    '.github/workflows/ci.yml .github/CODEOWNERS .github/dependabot.yml .github/a.md',
    '.gitlab-ci.yml .circleci/config.yml .config/app.json .venv/x .cache/x .next/x',
    '.pytest_cache/x .nvmrc .nojekyll sub/.prettierrc sub/.unknown/x a.txt .ai/reports/x.md',
  ]
    .join(' ')
    .split(' ');

  // Requirement: no-editor-traps, new-names-need-a-grant
  it('need the grant `traps`, but for those that set none', async () => {
    await using project = await Project.create();
    const refused = async (path: string, options = {}): Promise<boolean> => {
      const { text } = await project.run('write', { path, content: 'x' }, options);
      expect(text).toMatch(/Created|guarded\/traps|not valid|NUL/);
      return !text.includes('Created');
    };
    for (const path of TRAPS) expect([path, await refused(path)]).toEqual([path, true]);
    for (const path of PLAIN) expect([path, await refused(path)]).toEqual([path, false]);
    for (const path of TRAPS)
      expect([path, await refused(path, lifting('traps'))]).toEqual([path, false]);
  });

  it('may be written when they are there, unless the table has them', async () => {
    await using project = await Project.create({
      '.prettierrc': '{}',
      '.tool/x': '',
      '.vimrc': '',
    });
    const write = async (path: string): Promise<string> =>
      (await project.run('write', { path, content: 'x' })).text;
    expect(await write('.prettierrc')).not.toContain('path_denied');
    expect(await write('.tool/y')).not.toContain('path_denied');
    expect(await write('.vimrc')).toContain('path_denied');
  });
});

describe('bare repositories', () => {
  const PARTS = ['HEAD', 'objects/x', 'refs/heads/x'];
  const orders = PARTS.flatMap((first) =>
    PARTS.filter((part) => part !== first).map((second) => [
      first,
      second,
      PARTS.find((part) => part !== first && part !== second) ?? '',
    ]),
  );

  // Requirement: no-bare-repository
  it.each(orders)('are never completed by writing %s, %s, %s', async (...order) => {
    await using project = await Project.create();
    const answers: boolean[] = [];
    for (const part of order) {
      const { text } = await project.run('write', { path: `vendor/${part}`, content: 'x' });
      answers.push(text.includes('path_denied'));
    }
    expect(answers).toEqual([false, false, true]);
  });

  it('are never completed by writes at the same time', async () => {
    await using project = await Project.create();
    const answers = await Promise.all(
      PARTS.map(async (part) => await project.run('write', { path: `v/${part}`, content: 'x' })),
    );
    expect(answers.filter(({ text }) => text.includes('path_denied'))).toHaveLength(1);
  });

  it('keep what git obeys in them from being written', async () => {
    await using project = await Project.create({ 'v/HEAD': 'x' });
    mkdirSync(project.file('v/objects'));
    expect((await project.run('write', { path: 'v/notes.txt', content: 'x' })).text).toContain(
      'Created',
    );
    mkdirSync(project.file('v/refs'));
    for (const path of ['v/config', 'v/hooks/post-checkout', 'v/notes.txt', 'v/sub/deep.txt']) {
      expect((await project.run('write', { path, content: 'y' })).text).toContain('path_denied');
    }
    expect(
      (await project.run('write', { path: 'v/config', content: 'y' }, lifting('traps'))).text,
    ).toContain('Created');
  });
});
