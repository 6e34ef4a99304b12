import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test, vi } from 'vitest';
import { startWireServer, text, type WireScript } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** USD per token of the default model. */
const INPUT_PRICE = 2 / 1e6;

async function directive({ project, rye }: Workspace, body: string): Promise<void> {
  const file = path.join(project, '.ai/directives/big.md');
  mkdirSync(path.dirname(file), { recursive: true });
  const metadata =
    '<metadata><description>d</description><category></category><author>a</author><limits spend="2"/></metadata>';
  const xml = `<directive name="big" version="1.0.0">\n${metadata}\n</directive>`;
  writeFileSync(file, `\`\`\`xml\n${xml}\n\`\`\`\n\n${body}\n`);
  await rye(['sign', 'directive', 'big']);
}

async function serve(script: WireScript) {
  const server = await startWireServer(script);
  onTestFinished(() => server.close());
  return { server, env: { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url } };
}

interface Launched {
  readonly thread_id: string;
  readonly pid: number;
}

/** Starts the directive in the background, and kills the process after `requests` model calls, once its log has a word. */
async function killed(
  here: Workspace,
  script: WireScript,
  requests: number,
  word = '',
): Promise<string> {
  const { server, env } = await serve(script);
  const started = await here.rye(['run', 'big', '--async'], { env });
  const { thread_id: id, pid } = JSON.parse(started.stdout) as Launched;
  await server.request(requests - 1);
  const log = path.join(here.project, '.ai/state/threads', id, 'transcript.jsonl');
  await vi.waitFor(() => expect(readFileSync(log, 'utf8')).toContain(word), 60_000);
  process.kill(pid, 'SIGKILL');
  // while it ends it still runs the thread
  await vi.waitFor(() => expect(() => process.kill(pid, 0)).toThrow('ESRCH'), 60_000);
  return id;
}

async function costOf(here: Workspace, id: string): Promise<Readonly<Record<string, number>>> {
  const shown = await here.json(['threads', 'show', id]);
  return (shown['thread'] as { cost: Record<string, number> }).cost;
}

async function recover(here: Workspace, id: string): Promise<void> {
  const { code, stderr } = await here.rye(['threads', 'recover', id]);
  expect(stderr).not.toMatch(/could not/);
  expect(code, stderr).toBe(0);
}

test('recovery books a request that was killed before the first word of its answer', async () => {
  const here = await workspace();
  await directive(here, 'word '.repeat(40_000));
  const id = await killed(here, ['hang'], 1);
  await recover(here, id);
  const cost = await costOf(here, id);
  expect(cost['input_tokens']).toBeGreaterThan(50_000);
  expect(cost['output_tokens']).toBeGreaterThan(0);
  expect(cost['spend']).toBeGreaterThan(50_000 * INPUT_PRICE);
  expect(cost['spend']).toBeLessThanOrEqual(2);
  const log = await here.rye(['threads', 'logs', id, '--json']);
  expect(log.stdout).toContain('"reserved_usd"');
  expect(log.stdout).toContain('"estimated_usd"');
  // a second recovery, and one of all threads, book nothing again
  await here.rye(['threads', 'recover']);
  expect(await costOf(here, id)).toEqual(cost);
  expect((await here.rye(['verify', 'thread', id])).code).toBe(0);
});

test('recovery books the second request of a turn when the first one had failed', async () => {
  const here = await workspace();
  await directive(here, 'word '.repeat(4000));
  const failed = { status: 529, headers: { 'retry-after-ms': '1' } };
  const id = await killed(here, [failed, 'hang'], 2);
  await recover(here, id);
  const cost = await costOf(here, id);
  expect(cost['input_tokens']).toBeGreaterThan(5000);
  expect(cost['input_tokens']).toBeLessThan(15_000);
});

test('recovery books an answer that had streamed whole at no less than its words', async () => {
  const here = await workspace();
  await directive(here, 'Do it.');
  const words = 'word '.repeat(4000);
  const until = new Promise<void>((resolve) => onTestFinished(() => resolve()));
  const turn = { steps: [text(words, 'END.'), { kind: 'wait', until } as const] };
  const id = await killed(here, [turn], 1, 'END.');
  await recover(here, id);
  expect((await costOf(here, id))['output_tokens']).toBeGreaterThanOrEqual(words.length / 4);
});

test('a run that is cancelled before the first word books its input', async () => {
  const here = await workspace();
  await directive(here, 'word '.repeat(4000));
  const { server, env } = await serve(['hang']);
  const started = await here.rye(['run', 'big', '--async'], { env });
  const { thread_id: id } = JSON.parse(started.stdout) as Launched;
  await server.request(0);
  await here.rye(['threads', 'cancel', id]);
  await here.rye(['threads', 'wait', id]);
  const cost = await costOf(here, id);
  expect(cost['input_tokens']).toBeGreaterThan(4000);
  expect(cost['spend']).toBeGreaterThan(4000 * INPUT_PRICE);
});
