import { existsSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import { calls, startWireServer, text, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const DIRECTIVE = `\`\`\`xml
<directive name="slow" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author>
    <permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>
</directive>
\`\`\`

Do the work.
`;

async function lab() {
  const here = await workspace();
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/directives/slow.md'), DIRECTIVE);
  await here.rye(['sign', 'directive', 'slow']);
  let release: (() => void) | undefined;
  const until = new Promise<void>((resolve) => {
    release = resolve;
  });
  const server = await startWireServer([
    calls(toolUse('rye_file_system_ls', { path: '.' })),
    { steps: [text('The first half, '), { kind: 'wait', until }, text('the second half.')] },
  ]);
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  return { here, env, server, release: () => release?.() };
}

function exportOf(here: Workspace): string {
  return path.join(here.project, '.ai/knowledge/agent/threads/slow/t1.md');
}

async function eventually(file: string, part: string): Promise<string> {
  for (;;) {
    const found = existsSync(file) ? readFileSync(file, 'utf8') : '';
    if (found.includes(part)) return found;
    await delay(20);
  }
}

test('the knowledge entry of a running thread grows with the answer and is signed at its end', async () => {
  const { here, env, release } = await lab();
  const run = here.rye(['run', 'slow', '--thread-id', 't1'], { env });
  const live = await eventually(exportOf(here), 'The first half, ');
  expect(live).toContain('status: running');
  expect(live).not.toContain('rye:signed');
  expect(live).not.toContain('finished_at');
  expect(live).toMatch(
    /## Turn 1[\s\S]*Call of `rye_file_system_ls`[\s\S]*Result of[\s\S]*## Turn 2/,
  );
  expect(live).not.toContain('the second half');
  const verified = await here.rye(['verify', 'thread', 't1'], { env });
  expect(verified.code, verified.stdout).toBe(0);
  release();
  expect((await run).code).toBe(0);
  const final = readFileSync(exportOf(here), 'utf8');
  expect(final).toMatch(/^<!-- rye:signed/);
  expect(final).toContain('status: completed');
  expect(final).toContain('The first half, the second half.');
});

test('a live entry is never written through a link that came with the project', async () => {
  const { here, env, release } = await lab();
  const outside = path.join(here.home, 'outside');
  mkdirSync(outside);
  mkdirSync(path.join(here.project, '.ai/knowledge'), { recursive: true });
  symlinkSync(outside, path.join(here.project, '.ai/knowledge/agent'));
  release();
  const run = await here.rye(['run', 'slow', '--thread-id', 't1'], { env });
  expect(run.stderr).toContain('symbolic link');
  expect(existsSync(path.join(outside, 'threads'))).toBe(false);
});
