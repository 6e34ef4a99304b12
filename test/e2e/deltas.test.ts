import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { expect, onTestFinished, test } from 'vitest';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

/** `npm run bench deltas` does the same for a million. */
const [FEW, MANY] = [5000, 120_000];

const TALK = `# Talk

\`\`\`xml
<directive name="talk" version="1.0.0"><metadata><description>Talk.</description><category></category><author>test</author><limits turns="1" tokens="100000000" spend="100" /><behavior max_tokens="128000" /></metadata></directive>
\`\`\`

Talk.
`;

/** A provider that answers with the number of pieces in the first segment of its path. */
async function deltaServer(): Promise<string> {
  const child = spawn(process.execPath, [path.resolve('bench/delta-server.mjs')], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  onTestFinished(() => {
    child.kill();
  });
  const [line] = (await once(child.stdout.setEncoding('utf8'), 'data')) as [string];
  return line.trim();
}

/** Runs the program on an answer of so many pieces; resolves to the most memory that it had, in MB, and what it printed. */
async function answered(
  here: Workspace,
  url: string,
): Promise<{ readonly peak: number; readonly printed: ThreadResult }> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, '--json', 'run', 'talk'], {
    cwd: here.project,
    env: {
      PATH: process.env['PATH'],
      HOME: here.home,
      ANTHROPIC_API_KEY: 'sk-ant-of-this-test',
      ANTHROPIC_BASE_URL: url,
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let stdout = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  const closed = once(child, 'close');
  let peak = 0;
  while (child.exitCode === null && child.signalCode === null) {
    try {
      const status = readFileSync(`/proc/${child.pid}/status`, 'utf8');
      peak = Math.max(peak, Number(/^VmHWM:\s+(\d+)/m.exec(status)?.[1] ?? 0) / 1024);
    } catch {
      // it has just ended
    }
    await delay(10);
  }
  await closed;
  expect(child.exitCode).toBe(0);
  return { peak, printed: JSON.parse(stdout) as ThreadResult };
}

test('an answer of ten times the pieces needs no more memory, with the shipped stream rules and the log', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai/directives/talk.md');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, TALK);
  expect(await here.rye(['sign', 'directive', 'talk'])).toMatchObject({ code: 0 });
  const rules = await here.json(['rules', 'list']);
  expect((rules['rules'] as unknown[]).length).toBeGreaterThanOrEqual(20);
  const url = await deltaServer();
  const few = await answered(here, `${url}/${FEW}`);
  const many = await answered(here, `${url}/${MANY}`);
  // one that keeps each piece as an event needs about 500 bytes for it
  expect(many.peak - few.peak).toBeLessThan(40);

  const whole = 'abc '.repeat(MANY);
  const { result, thread_id: threadId, paths } = many.printed;
  expect(result === whole).toBe(true);
  const shown = await here.json(['threads', 'show', threadId]);
  const { result: kept } = shown['thread'] as ThreadResult;
  const place = `all of it is in .ai/state/threads/${threadId}/transcript.jsonl)`;
  expect(kept.slice(256 * 1024)).toBe(
    `\n… (the first ${256 * 1024} of ${whole.length} bytes; ${place}`,
  );
  const document = JSON.parse(readFileSync(path.join(paths.thread, 'thread.json'), 'utf8'));
  expect(document).toMatchObject({ status: 'completed', result: kept });
  const lines = readFileSync(paths.transcript, 'utf8').trimEnd().split('\n');
  const end = lines.findLast((line) => line.includes('"event_type":"thread_finished"'));
  expect(JSON.parse(end ?? '')).toMatchObject({ payload: { result: whole } });
});
