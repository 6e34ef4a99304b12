import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { type CliResult, runCli } from '../helpers/run-cli.ts';

let project = '';
beforeAll(async () => {
  project = mkdtempSync(path.join(tmpdir(), 'rye-create-'));
  await runCli(['init'], { cwd: project });
});
afterAll(() => removeFolder(project));

async function create(inputs: Readonly<Record<string, unknown>>): Promise<CliResult> {
  const all = { description: 'Tidy <notes> & "lists"', instructions: 'Read notes.md.', ...inputs };
  return await runCli(
    ['run', 'rye/core/create_directive', '--json', '--inputs', JSON.stringify(all)],
    { cwd: project },
  );
}

describe('rye/core/create_directive', () => {
  it('makes a signed directive that asks for exactly the named tools', async () => {
    const done = await create({ id: 'notes/tidy', tools: ['rye/file-system/read'] });
    expect(JSON.parse(done.stdout)).toMatchObject({
      success: true,
      outputs: { directive: 'notes/tidy', path: '.ai/directives/notes/tidy.md', status: 'signed' },
    });
    const plan = await runCli(['run', 'notes/tidy', '--dry-run', '--json'], { cwd: project });
    expect(JSON.parse(plan.stdout)).toMatchObject({
      plan: {
        directive: { description: 'Tidy <notes> & "lists"', integrity: 'verified' },
        capabilities: ['rye.execute.tool.rye.file-system.read'],
      },
    });
  });

  it('never overwrites one', async () => {
    const file = path.join(project, '.ai/directives/example.md');
    const before = readFileSync(file, 'utf8');
    const done = await create({ id: 'example' });
    expect(done.code).toBe(1);
    expect(done.stdout).toContain('exists already');
    expect(readFileSync(file, 'utf8')).toBe(before);
  });

  it.each(['../escape', '/absolute', 'a/../b', 'UPPER', 'dots.md', ''])(
    'refuses the id %j',
    async (id) => {
      const done = await create({ id });
      expect(done.code).not.toBe(0);
      expect(existsSync(path.join(project, '.ai/escape.md'))).toBe(false);
    },
  );

  it('signs nothing that does not validate', async () => {
    const done = await create({ id: 'broken', tools: ['no such id!'] });
    expect(done.code).toBe(1);
    expect(done.stdout).toContain('permission_malformed');
    const verified = await runCli(['verify', 'directive', 'broken'], { cwd: project });
    expect(verified.code).toBe(3);
  });
});
