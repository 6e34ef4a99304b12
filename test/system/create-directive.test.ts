import { existsSync, mkdtempSync, readFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { removeFolder } from '../helpers/remove-folder.ts';
import { type CliResult, runCli } from '../helpers/run-cli.ts';

let project = '';
/** A test that is tried again has other names, because the earlier ones are there already. */
let attempts = 0;
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
  it('makes a directive that asks for exactly the named tools, and runs once a person has signed it', async () => {
    attempts += 1;
    const id = `notes/tidy-${attempts}`;
    const done = await create({ id, tools: ['rye/file-system/read'] });
    expect(JSON.parse(done.stdout)).toMatchObject({
      success: true,
      outputs: { directive: id, path: `.ai/directives/${id}.md`, status: 'signed' },
    });
    const early = await runCli(['run', id, '--dry-run', '--json'], { cwd: project });
    expect([early.code, early.stdout]).toEqual([3, expect.stringContaining('signed_by_thread')]);
    await runCli(['sign', 'directive', id], { cwd: project });
    const plan = await runCli(['run', id, '--dry-run', '--json'], { cwd: project });
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
    attempts += 1;
    const id = `broken-${attempts}`;
    const done = await create({ id, tools: ['no such id!'] });
    expect(done.code).toBe(1);
    expect(done.stdout).toContain('permission_malformed');
    const verified = await runCli(['verify', 'directive', id], { cwd: project });
    expect(verified.code).toBe(3);
  });
});
