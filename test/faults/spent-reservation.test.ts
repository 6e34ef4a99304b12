import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import type { Cost } from '../../src/kernel/core/usage.ts';
import { reply, startWireServer, type WireScript } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

async function directive({ project, rye }: Workspace, limits: string): Promise<void> {
  const file = path.join(project, '.ai/directives/job.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const metadata = `<metadata><description>d</description><category></category><author>a</author><limits ${limits}/></metadata>`;
  const xml = `<directive name="job" version="1.0.0">\n${metadata}\n</directive>`;
  writeFileSync(file, `\`\`\`xml\n${xml}\n\`\`\`\n\nDo it.\n`);
  expect((await rye(['sign', 'directive', 'job'])).code).toBe(0);
}

async function model(script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return { server, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

/** Returns the command that a text names, as arguments. */
function commandIn(text: unknown): readonly string[] {
  const found = /rye (threads resume [^.\n]*(?:\.\d+)?[^.\n]*)/.exec(String(text));
  return (found?.[1] ?? 'nothing').trim().split(' ');
}

const hintOf = (result: Record<string, unknown>): unknown =>
  (result['error'] as { hint?: string } | null)?.hint;

test('after kill -9 in the first call the bound of the call counts as spent, and the thread resumes without options', async () => {
  const here = await workspace();
  await directive(here, 'spend="0.25"');
  const { server, env } = await model(['hang', reply('Done.')]);
  const started = await here.rye(['run', 'job', '--async', '--thread-id', 't'], { env });
  const { pid } = JSON.parse(started.stdout) as { pid: number };
  await server.request(0);
  process.kill(pid, 'SIGKILL');
  // while it ends it still runs the thread
  await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), 60_000);
  const result = await here.json(['threads', 'resume', 't'], { env });
  expect(result).toMatchObject({ status: 'completed', result: 'Done.' });
  const { spend, estimated_spend_usd: estimate = 0 } = result['cost'] as Cost;
  expect(estimate).toBeGreaterThan(0);
  // 16,384 tokens were reserved at 10 micro-dollars
  expect(estimate).toBeLessThan(0.16);
  expect(spend).toBeGreaterThan(estimate);
  expect(server.requests).toHaveLength(2);
  expect((await here.rye(['verify', 'thread', 't'])).code).toBe(0);
});

test('the command that a limit names works also after a run that was granted more', async () => {
  const here = await workspace();
  await directive(here, 'turns="1"');
  const { env } = await model(() => reply('More.'));
  const first = await here.json(['run', 'job', '--thread-id', 't'], { env });
  expect(first).toMatchObject({ status: 'completed' });
  for (let run = 0; run < 3; run += 1) {
    const refused = await here.json(['threads', 'resume', 't', '--message', 'More.'], { env });
    expect(refused).toMatchObject({ success: false, error: { code: 'limit_turns' } });
    const next = commandIn(hintOf(refused));
    expect(next).toEqual(['threads', 'resume', 't', '--limit', 'turns=1']);
    expect(await here.json([...next, '--message', 'More.'], { env })).toMatchObject({
      status: 'completed',
    });
  }
});

test('a limit that is too low for one call is raised by the hinted command, which the log records', async () => {
  const here = await workspace();
  await directive(here, 'spend="0.0005"');
  const { server, env } = await model([reply('Done.')]);
  const shown = await here.rye(['run', 'job', '--thread-id', 't'], { env });
  expect(shown.code).toBe(5);
  const hint = shown.stderr.split('\n').find((line) => line.startsWith('hint: '));
  const next = commandIn(hint);
  expect(next.slice(-2)).toEqual([expect.stringMatching(/^spend=0\.\d+$/), '--raise-limits']);
  // the last line is a command that works, too
  expect(shown.stderr).toContain(`resume: rye ${next.join(' ')}`);
  expect(server.requests).toEqual([]);
  expect(await here.json(next, { env })).toMatchObject({ status: 'completed' });
  const log = await here.rye(['threads', 'logs', 't', '--json']);
  expect(log.stdout).toContain('"raised_limits":{"spend":0.0005}');
});
