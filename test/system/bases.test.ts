import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { ThreadPlan } from '../../src/kernel/core/plan.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { runCli } from '../helpers/run-cli.ts';

let project = '';
beforeAll(async () => {
  project = mkdtempSync(path.join(tmpdir(), 'rye-bases-'));
  await runCli(['init'], { cwd: project });
});
afterAll(() => removeFolder(project));

interface Planned {
  readonly plan?: ThreadPlan;
  readonly error?: { readonly code: string };
}

/** Signs and plans a directive that extends a shipped base. */
async function plan(name: string, base: string, permissions = ''): Promise<Planned> {
  const text = `\`\`\`xml
<directive name="${name}" version="1.0.0" extends="rye/core/${base}">
  <metadata>
    <description>Look at things.</description>
    <category></category>
    <author>me</author>
    ${permissions}
  </metadata>
</directive>
\`\`\`

Look at things.
`;
  mkdirSync(path.join(project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(project, `.ai/directives/${name}.md`), text);
  await runCli(['sign', 'directive', name], { cwd: project });
  const done = await runCli(['run', name, '--dry-run', '--json'], { cwd: project });
  return JSON.parse(done.stdout) as Planned;
}

const contextOf = (composed: ThreadPlan | undefined): string[] =>
  (composed?.context ?? []).map(({ position, id }) => `${position} ${id}`);

describe('the shipped bases', () => {
  it('give a reviewer context and tools that change nothing', async () => {
    const { plan: composed } = await plan('review', 'base_review');
    expect(contextOf(composed)).toEqual([
      'system rye/agent/core/Identity',
      'system rye/agent/core/Behavior',
      'system rye/agent/core/Environment',
      'before rye/agent/protocol/fetch',
    ]);
    expect(composed?.tools.map(({ id }) => id).toSorted()).toEqual([
      'rye/execute',
      'rye/fetch',
      'rye/file-system/glob',
      'rye/file-system/grep',
      'rye/file-system/ls',
      'rye/file-system/read',
      'rye/search',
    ]);
    expect(composed?.continuation_directive).toBe('rye/agent/continuation');
  });

  it('hold a reviewer below the ceiling', async () => {
    const shell = '<permissions><execute><tool>rye/bash</tool></execute></permissions>';
    expect(await plan('greedy', 'base_review', shell)).toMatchObject({
      error: { code: 'ceiling_exceeded' },
    });
  });

  it('give a general agent everything, with the risk acknowledged', async () => {
    const { plan: composed } = await plan('general', 'base');
    expect(contextOf(composed)).toHaveLength(6);
    expect(composed?.capabilities).toEqual(['rye.execute.*', 'rye.fetch.*', 'rye.sign.*']);
    expect(composed?.tools.map(({ id }) => id)).toContain('rye/bash');
  });

  it('let a descendant narrow what it holds and keep the context', async () => {
    const read = '<permissions><execute><tool>rye/file-system/read</tool></execute></permissions>';
    const { plan: composed } = await plan('narrow', 'base_execute_only', read);
    expect(composed?.capabilities).toEqual(['rye.execute.tool.rye.file-system.read']);
    expect(contextOf(composed)).toContain('before rye/agent/protocol/execute');
  });
});
