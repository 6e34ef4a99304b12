import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { reply, text } from '../helpers/wire-server.ts';
import { type LibraryLab, libraryLab } from './library-lab.ts';

/** A line of a log has at most 16 MiB; `npm run test:soak` sends an answer of 17. */
const MIB = Number(process.env['RYE_ANSWER_MIB'] ?? 1);
const PIECE = 64 * 1024;

/** A provider whose model may answer as long as it likes: an answer past its `max_tokens` would be stopped. */
async function talkative({ project, server }: LibraryLab, rye: Rye): Promise<void> {
  const file = path.join(project, '.ai/config/agent/providers/talkative.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  const model =
    '{context_window: 60000000, max_output_tokens: 30000000, pricing: {input: 0.01, output: 0.01}}';
  writeFileSync(
    file,
    `kind: anthropic\napi_key_env: ANTHROPIC_API_KEY\nbase_url: ${server.url}\nprices_as_of: "2026-11-21"\ntiers: {fast: long, general: long}\nmodels:\n  long: ${model}\n`,
  );
  await rye.items.sign('config', 'agent/providers/talkative');
}

it('a long answer is kept completely, beside the log if it is too long for a line, verifies, and can be resumed', async () => {
  const isBeside = MIB > 16;
  const count = (MIB * 1024 * 1024) / PIECE;
  const pieces = Array.from({ length: count }, (_, index) => `${index}:`.padEnd(PIECE, '.'));
  const whole = pieces.join('');
  const lab = await libraryLab([{ steps: [text(...pieces)] }, reply('Second.')]);
  await lab.directive('work');
  const rye = lab.open();
  await talkative(lab, rye);
  const limits = { tokens: 100_000_000 };
  const run = await rye.run({
    directiveId: 'team/work',
    provider: 'talkative',
    behavior: { nudge: false, max_tokens: 30_000_000 },
    limits,
    raiseLimits: true,
  });
  expect(run.kind).toBe('completed');
  const threadId = String(run.threadId);
  const folder = path.join(lab.project, '.ai/state/threads', threadId);
  const log = readFileSync(path.join(folder, 'transcript.jsonl'), 'utf8');
  const artifacts = path.join(folder, 'artifacts');
  const texts = existsSync(artifacts)
    ? readdirSync(artifacts).filter((name) => /^text-[0-9a-f]{32}\.txt$/.test(name))
    : [];
  expect(texts).toHaveLength(isBeside ? 1 : 0);
  const kept = isBeside ? readFileSync(path.join(artifacts, String(texts[0])), 'utf8') : log;
  expect(isBeside ? kept === whole : kept.includes(whole)).toBe(true);
  const longest = Math.max(...log.split('\n').map(({ length }) => length));
  expect(longest < 1024 * 1024).toBe(isBeside);
  expect(await rye.threads.verify(threadId)).toMatchObject({ ok: true });
  const resumed = await rye.recovery.resume({
    threadId,
    message: 'Go on.',
    limits,
    raiseLimits: true,
  });
  expect(resumed).toMatchObject({ status: 'completed', result: 'Second.' });
  const sent = JSON.stringify(lab.server.requests[1]?.body.messages);
  const place = `all of it is in .ai/state/threads/${threadId}/artifacts/${texts[0]}`;
  expect(sent.includes(isBeside ? place : whole)).toBe(true);
});
