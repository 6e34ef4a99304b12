import { execFileSync } from 'node:child_process';
import { linkSync, mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { itemNotFound, openSpaces } from '../../src/kernel/items/spaces-fs.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { makeSpaces, type SpaceFixture } from './space-fixture.ts';

let at: SpaceFixture;
const code = (value: string) => expect.objectContaining({ code: value });
const item = (name: string): string => join(at.projectPath, '.ai/directives', name);

beforeEach(() => {
  at = makeSpaces();
});
afterEach(() => at.remove());

describe('finding an item', () => {
  test('takes the first space that has it, and names the ones it hides', () => {
    const system = at.write('system', 'directives/demo/a.md', 'system');
    const user = at.write('user', 'directives/demo/a.md', 'user');
    expect(at.spaces.find('directive', 'demo/a')).toMatchObject({
      space: 'user',
      text: 'user',
      path: user,
    });
    const project = at.write('project', 'directives/demo/a.md', 'é');
    const found = at.spaces.find('directive', 'demo/a');
    expect(found).toMatchObject({ space: 'project', path: project, extension: '.md', text: 'é' });
    expect(found?.bytes).toEqual(Buffer.from('é'));
    expect(found?.shadows).toEqual([
      { space: 'user', path: user },
      { space: 'system', path: system },
    ]);
    expect(at.spaces.find('directive', 'demo/a', { space: 'system' })).toMatchObject({
      text: 'system',
    });
  });

  test.each([
    ['tool', 'tools/x.py'],
    ['tool', 'tools/x.mjs'],
    ['tool', 'tools/x.yaml'],
    ['knowledge', 'knowledge/x.yml'],
    ['rule', 'rules/x.md'],
    ['skill', 'skills/x/SKILL.md'],
    ['config', 'config/x.yaml'],
  ] as const)('knows where a %s lives: %s', (type, path) => {
    const written = at.write('project', path, 'text');
    expect(at.spaces.find(type, 'x')?.path).toBe(written);
    expect(at.spaces.find('directive', 'x')).toBeUndefined();
  });

  test('finds nothing for an unknown id, an id with its extension, and a folder', () => {
    at.write('project', 'directives/demo/a.md', 'x');
    mkdirSync(join(at.projectPath, '.ai/directives/folder.md'), { recursive: true });
    for (const id of ['demo/b', 'demo/a.md', 'demo', 'folder', 'demo/a.md/b']) {
      expect(at.spaces.find('directive', id)).toBeUndefined();
    }
  });

  test.each([
    '',
    '/etc/passwd',
    '../x',
    'demo/../../x',
    'demo/./a',
    'a//b',
    'a\0b',
    'a b',
    'x'.repeat(201),
  ])('refuses the id %j', (id) => {
    expect(() => at.spaces.find('directive', id)).toThrow(code('invalid_item_id'));
  });

  test('refuses two files for one id in one space, naming both', () => {
    const one = at.write('project', 'tools/demo/x.js', '1');
    const other = at.write('project', 'tools/demo/x.py', '2');
    expect(() => at.spaces.find('tool', 'demo/x')).toThrow(code('duplicate_item'));
    expect(() => at.spaces.find('tool', 'demo/x')).toThrow(`${one} and ${other}`);
  });

  test('is final: a file that cannot be used is the error, not a reason to look further', () => {
    at.write('user', 'directives/a.md', 'fine');
    at.write('project', 'directives/a.md', Buffer.from([0xff, 0xfe]));
    expect(() => at.spaces.find('directive', 'a')).toThrow(code('directive_malformed'));
  });

  test('counts a space once when project and user are the same folder', () => {
    at.write('project', 'directives/a.md', 'x');
    const spaces = openSpaces({
      projectPath: at.projectPath,
      userSpacePath: at.projectPath,
      systemPath: at.systemPath,
    });
    expect([spaces.own, spaces.root('project')]).toEqual(['user', undefined]);
    expect(spaces.find('directive', 'a')).toMatchObject({ space: 'user', shadows: [] });
    expect(spaces.list('directive')).toHaveLength(1);
  });

  test('splits a folder by the manifest when it is the project and the system space', () => {
    for (const name of ['a', 'b', 'b c']) at.write('system', `directives/${name}.md`, name);
    const spaces = openSpaces({
      projectPath: at.systemPath,
      userSpacePath: at.userSpacePath,
      systemPath: `${at.systemPath}/../system`,
      manifest: { 'directives/a.md': '' },
    });
    const shipped = spaces.find('directive', 'a');
    const own = spaces.find('directive', 'b');
    expect([shipped, own]).toMatchObject([
      { space: 'system', shadows: [] },
      { space: 'project', shadows: [] },
    ]);
    expect([shipped, own].map((found) => spaces.isShipped(found?.path ?? ''))).toEqual([
      true,
      false,
    ]);
    expect(spaces.list('directive').map(({ id, space }) => `${id} ${space}`)).toEqual([
      'a system',
      'b project',
    ]);
    expect(spaces.list('directive', { space: 'system' })).toHaveLength(1);
    expect(spaces.misnamed('directive', 'project')).toHaveLength(1);
    expect(spaces.misnamed('directive', 'system')).toHaveLength(0);
    expect(spaces.locate('directive', 'a', 'project')).toBeUndefined();
  });

  test('does not need the spaces to exist', () => {
    removeFolder(join(at.projectPath, '.ai'));
    expect(at.spaces.find('directive', 'a')).toBeUndefined();
    expect(at.spaces.list('directive')).toEqual([]);
  });
});

describe('a hostile file', () => {
  test.each([
    ['out of the space', () => join(at.base, 'outside.md')],
    ['into the state', () => join(at.projectPath, '.ai/state/x.md')],
    ['into another type', () => join(at.projectPath, '.ai/knowledge/x.md')],
    ['to the signing key', () => join(at.userSpacePath, '.ai/config/keys/signing/private_key.pem')],
    ['to nothing', () => join(at.base, 'nothing')],
  ])('that links %s is refused', (name, target) => {
    at.write('project', 'directives/real.md', 'x');
    at.write('project', 'state/x.md', 'secret');
    at.write('project', 'knowledge/x.md', 'x');
    at.write('user', 'config/keys/signing/private_key.pem', 'secret');
    if (name !== 'to nothing') writeFileSync(join(at.base, 'outside.md'), 'secret');
    symlinkSync(target(), item('a.md'));
    expect(() => at.spaces.find('directive', 'a')).toThrow(code('path_denied'));
    expect(() => at.spaces.find('directive', 'a')).not.toThrow(/secret/);
  });

  test('below a folder that links out of the space is refused', () => {
    mkdirSync(join(at.base, 'outside'));
    writeFileSync(join(at.base, 'outside/a.md'), 'secret');
    mkdirSync(join(at.projectPath, '.ai/directives'), { recursive: true });
    symlinkSync(join(at.base, 'outside'), item('linked'));
    expect(() => at.spaces.find('directive', 'linked/a')).toThrow(code('path_denied'));
  });

  test('that links inside its own folder is fine', () => {
    at.write('project', 'directives/real.md', 'x');
    symlinkSync('real.md', item('a.md'));
    expect(at.spaces.find('directive', 'a')).toMatchObject({ text: 'x', path: item('a.md') });
  });

  test('that is a FIFO is refused without waiting for a writer', () => {
    mkdirSync(join(at.projectPath, '.ai/directives'), { recursive: true });
    execFileSync('mkfifo', [item('a.md')]);
    symlinkSync('a.md', item('b.md'));
    expect(() => at.spaces.find('directive', 'a')).toThrow(code('path_denied'));
    expect(() => at.spaces.find('directive', 'b')).toThrow(code('path_denied'));
  });

  test('that is a device is refused', () => {
    mkdirSync(join(at.projectPath, '.ai/directives'), { recursive: true });
    symlinkSync('/dev/zero', item('a.md'));
    expect(() => at.spaces.find('directive', 'a')).toThrow(code('path_denied'));
  });

  test('of more than 4 MiB is refused, of exactly 4 MiB read', () => {
    at.write('project', 'knowledge/big.md', Buffer.alloc(4 * 1024 * 1024, 'x'));
    expect(at.spaces.find('knowledge', 'big')?.bytes.length).toBe(4 * 1024 * 1024);
    at.write('project', 'knowledge/big.md', Buffer.alloc(4 * 1024 * 1024 + 1, 'x'));
    expect(() => at.spaces.find('knowledge', 'big')).toThrow(code('item_too_large'));
  });

  test.each([
    ['rule', 'rules/a.md', 'rule_malformed', Buffer.from('a\nb\0c')],
    ['tool', 'tools/a.sh', 'tool_malformed', Buffer.from([0x61, 0xc3])],
    ['config', 'config/a.yaml', 'config_invalid', Buffer.from([0xed, 0xa0, 0x80])],
  ] as const)('that is no text is refused as a %s', (type, path, expected, bytes) => {
    at.write('project', path, bytes);
    expect(() => at.spaces.find(type, 'a')).toThrow(code(expected));
  });

  test('reports the line of a NUL', () => {
    const path = at.write('project', 'rules/a.md', 'a\nb\0c');
    expect(() => at.spaces.find('rule', 'a')).toThrow(`${path}:2: `);
  });

  test('is read byte for byte: a byte order mark stays', () => {
    at.write('project', 'rules/a.md', '\u{FEFF}x');
    expect(at.spaces.find('rule', 'a')?.text).toBe('\u{FEFF}x');
  });

  test('is empty: that is an empty item', () => {
    at.write('project', 'rules/a.md', '');
    expect(at.spaces.find('rule', 'a')).toMatchObject({ text: '' });
  });
});

describe('listing', () => {
  test('shows every space in order of ids and marks what is shadowed', () => {
    at.write('system', 'directives/b.md', 'x');
    at.write('system', 'directives/rye/core/a.md', 'x');
    at.write('user', 'directives/b.md', 'x');
    at.write('project', 'directives/b.md', 'x');
    at.write('project', 'directives/notes.txt', 'x');
    at.write('project', 'directives/with space.md', 'x');
    const rows = at.spaces
      .list('directive')
      .map(({ id, space, shadowedBy }) => [id, space, shadowedBy]);
    expect(rows).toEqual([
      ['b', 'project', null],
      ['b', 'user', 'project'],
      ['b', 'system', 'project'],
      ['rye/core/a', 'system', null],
    ]);
    expect(at.spaces.list('directive', { space: 'user' })).toEqual([
      expect.objectContaining({ id: 'b', shadowedBy: 'project' }),
    ]);
  });

  test('finds skills by their folder and ignores folders of package managers', () => {
    at.write('project', 'skills/pdf/SKILL.md', 'x');
    at.write('project', 'skills/pdf/references/more.md', 'x');
    at.write('project', 'tools/x.js', 'x');
    at.write('project', 'tools/node_modules/dep/index.js', 'x');
    expect(at.spaces.list('skill').map(({ id }) => id)).toEqual(['pdf']);
    expect(at.spaces.list('tool').map(({ id }) => id)).toEqual(['x']);
  });

  test('has keys for no configuration', () => {
    at.write('user', 'config/keys/notes.yaml', 'x: 1');
    at.write('user', 'config/agent/hooks.yaml', 'x: 1');
    expect(at.spaces.list('config').map(({ id }) => id)).toEqual(['agent/hooks']);
    expect(at.spaces.find('config', 'keys/notes')).toBeUndefined();
  });

  test('finds what it lists', () => {
    at.write('project', 'tools/a/b.py', 'x');
    linkSync(at.write('user', 'tools/c.d.sh', 'x'), join(at.userSpacePath, '.ai/tools/e.rb'));
    for (const { type, id, path } of at.spaces.list('tool')) {
      expect(at.spaces.find(type, id)?.path).toBe(path);
    }
  });
});

test('an id that no space has is answered with near ones', () => {
  const error = itemNotFound('directive', 'demo/helo', ['demo/hello', 'other']);
  expect(error).toMatchObject({
    code: 'item_not_found',
    exitCode: 6,
    hint: 'Did you mean demo/hello?',
  });
  expect(itemNotFound('tool', 'zzzzzz', []).hint).toBe('Run: rye list tool');
});
