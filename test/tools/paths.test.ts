import { execFileSync } from 'node:child_process';
import { mkdir, rename, symlink, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { openForRead, writeText } from '../../src/kernel/tools/files.ts';
import { confine, isInside, type PathRules } from '../../src/kernel/tools/paths.ts';
import { Project } from './helpers.ts';

function rules(project: Project, allow: readonly string[] = []): PathRules {
  return { projectPath: project.path, allow, threadId: 'demo/thread-1' };
}

describe('confine', () => {
  it('resolves inside the project for every spelling', async () => {
    await using project = await Project.create({ 'a/b.txt': 'x' });
    await symlink('a', project.file('link'));
    for (const path of ['a/b.txt', './a/../a/b.txt', project.file('a/b.txt'), 'link/b.txt']) {
      expect(await confine(path, 'read', rules(project))).toMatchObject({
        real: project.file('a/b.txt'),
        shown: 'a/b.txt',
      });
    }
    const fresh = await confine('new/deep/file', 'write', rules(project));
    expect(fresh).toMatchObject({ real: project.file('new/deep/file'), stats: undefined });
  });

  it.each([
    ['', 'empty'],
    ['a\0b', 'NUL'],
    ['..', 'outside the project'],
    ['../x', 'outside the project'],
    ['a/../../x', 'outside the project'],
    ['/etc/passwd', 'outside the project'],
    ['x'.repeat(5000), 'too long'],
    ['.ai/state/threads/registry.db', 'state'],
    ['.ai/STATE/x', 'state'],
    ['sub/.ai/state/x', 'state'],
    ['.ai/config/keys/signing/private_key.pem', 'keys'],
  ])('refuses %j', async (path, reason) => {
    await using project = await Project.create();
    for (const access of ['read', 'write'] as const) {
      await expect(confine(path, access, rules(project))).rejects.toMatchObject({
        code: 'path_denied',
        message: expect.stringContaining(reason),
      });
    }
  });

  it('refuses links that lead out, dangle or loop', async () => {
    await using outside = await Project.create({ secret: 'x' });
    await using project = await Project.create();
    await symlink(outside.path, project.file('out'));
    await symlink(outside.file('secret'), project.file('file'));
    await symlink(outside.file('not-there'), project.file('dangling'));
    await symlink('loop', project.file('loop'));
    for (const path of ['out/secret', 'out/new', 'file', 'dangling', 'dangling/x', 'loop']) {
      await expect(confine(path, 'write', rules(project))).rejects.toMatchObject({
        code: 'path_denied',
      });
    }
  });

  it('opens folders of the allow list, but not the keys in them', async () => {
    await using outside = await Project.create({
      'x.txt': 'x',
      '.ai/config/keys/k': 'x',
      '.ai/state/s': '',
    });
    await using project = await Project.create();
    const open = rules(project, [outside.path, '/does/not/exist']);
    expect((await confine(outside.file('x.txt'), 'read', open)).shown).toBe(outside.file('x.txt'));
    for (const path of ['.ai/config/keys/k', '.ai/state/s']) {
      await expect(confine(outside.file(path), 'read', open)).rejects.toMatchObject({
        code: 'path_denied',
      });
    }
  });

  // Requirement: large-result-artifact
  it("lets a thread read its own artifacts, and nothing else of rye's state", async () => {
    const own = '.ai/state/threads/demo/thread-1/artifacts/call-1.txt';
    const other = '.ai/state/threads/demo/thread-2/artifacts/call-1.txt';
    await using project = await Project.create({ [own]: 'x', [other]: 'x' });
    expect((await confine(own, 'read', rules(project))).shown).toBe(own);
    await expect(confine(own, 'write', rules(project))).rejects.toMatchObject({
      code: 'path_denied',
    });
    await expect(confine(other, 'read', rules(project))).rejects.toMatchObject({
      code: 'path_denied',
    });
  });

  it('refuses pipes, sockets and devices', async () => {
    await using project = await Project.create();
    execFileSync('mkfifo', [project.file('pipe')]);
    const server = createServer();
    await new Promise<void>((resolve) => {
      server.listen(project.file('socket'), resolve);
    });
    try {
      for (const [path, reason] of [
        ['pipe', 'named pipe'],
        ['socket', 'socket'],
      ] as const) {
        await expect(confine(path, 'read', rules(project))).rejects.toThrow(reason);
      }
      await expect(confine('/dev/zero', 'read', rules(project, ['/dev']))).rejects.toThrow(
        'device',
      );
    } finally {
      server.close();
    }
  });

  it('knows inside from beside', () => {
    expect(isInside('/p/a', '/p')).toBe(true);
    expect(isInside('/p', '/p')).toBe(true);
    expect(isInside('/p/..a', '/p')).toBe(true);
    expect(isInside('/pa', '/p')).toBe(false);
    expect(isInside('/', '/p')).toBe(false);
  });
});

describe('a file system that changes between check and use', () => {
  it('does not follow a file that became a link', async () => {
    await using outside = await Project.create({ secret: 'TOP' });
    await using project = await Project.create({ 'a.txt': 'x' });
    const path = await confine('a.txt', 'read', rules(project));
    await rename(project.file('a.txt'), project.file('old'));
    await symlink(outside.file('secret'), project.file('a.txt'));
    await expect(openForRead(path)).rejects.toMatchObject({ code: 'path_denied' });
  });

  it('notices a folder that became a link', async () => {
    await using outside = await Project.create({ 'a.txt': 'TOP' });
    await using project = await Project.create({ 'd/a.txt': 'x' });
    const path = await confine('d/a.txt', 'read', rules(project));
    await rename(project.file('d'), project.file('old'));
    await symlink(outside.path, project.file('d'));
    await expect(openForRead(path)).rejects.toMatchObject({ code: 'path_denied' });
    const write = writeText({ path, content: 'y', expected: undefined, mode: undefined });
    await expect(write).rejects.toMatchObject({ code: 'path_denied' });
    expect(await outside.run('read', { path: 'a.txt' })).toMatchObject({ text: '1\tTOP' });
  });

  it('does not hang on a file that became a pipe', async () => {
    await using project = await Project.create({ 'a.txt': 'x' });
    const path = await confine('a.txt', 'read', rules(project));
    await rename(project.file('a.txt'), project.file('old'));
    execFileSync('mkfifo', [project.file('a.txt')]);
    await expect(openForRead(path)).rejects.toThrow('named pipe');
  });

  it('refuses to overwrite a file that another program made or changed in the meantime', async () => {
    await using project = await Project.create();
    const path = await confine('a.txt', 'write', rules(project));
    await writeFile(project.file('a.txt'), 'theirs');
    const write = writeText({ path, content: 'mine', expected: undefined, mode: undefined });
    await expect(write).rejects.toThrow('another program');
    expect((await project.run('read', { path: 'a.txt' })).text).toBe('1\ttheirs');
    expect((await project.run('ls', {})).data['count']).toBe(1);
  });

  it('reports a folder that is a file', async () => {
    await using project = await Project.create({ f: '' });
    await mkdir(project.file('d'));
    await expect(confine(join('f', 'x'), 'write', rules(project))).rejects.toMatchObject({
      code: 'file_not_found',
    });
  });
});
