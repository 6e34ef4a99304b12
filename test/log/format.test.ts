import { execFile } from 'node:child_process';
import { createReadStream, mkdtempSync, readFileSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { promisify } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { ENTRY_TYPES, type EventType } from '../../src/kernel/core/events.ts';
import type { LogProblem } from '../../src/kernel/log/codec.ts';
import { foldContext, startedCallIds } from '../../src/kernel/log/context.ts';
import { readLog } from '../../src/kernel/log/reader.ts';
import { scanNow } from '../../src/kernel/log/scanner.ts';
import { buildTree } from '../../src/kernel/log/tree.ts';
import { LogVerifier } from '../../src/kernel/log/verifier.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { signedLog, THREAD, testKey, userMessage } from './support.ts';

const ROOT = path.resolve(import.meta.dirname, '../..');
const GOLDEN = path.join(ROOT, 'test/golden/logs/1');
const READER = path.join(ROOT, 'test/fixtures/log-reader/read_log.py');
const PAGE = readFileSync(path.join(ROOT, 'docs/log-format.md'), 'utf8');
const run = promisify(execFile);

/** Every type: the compiler misses none. */
const TYPES: Record<EventType, true> = {
  message: true,
  system_prompt: true,
  context_injected: true,
  model_change: true,
  thinking_change: true,
  compaction: true,
  branch_summary: true,
  custom: true,
  custom_message: true,
  label: true,
  title: true,
  context_edit: true,
  rule_injection: true,
  leaf: true,
  thread_started: true,
  thread_continued: true,
  run_started: true,
  plan_changed: true,
  turn_started: true,
  request_started: true,
  answer_started: true,
  token_delta: true,
  thinking_delta: true,
  toolcall_delta: true,
  tool_call_start: true,
  tool_call_progress: true,
  tool_settled: true,
  file_change: true,
  files_restored: true,
  changes_collected: true,
  worktree_saved: true,
  hook_fired: true,
  rule_matched: true,
  limit_reached: true,
  limit_raised: true,
  mcp_server_started: true,
  mcp_list_changed: true,
  skill_activated: true,
  skill_deactivated: true,
  tool_budget_exceeded: true,
  output_budget_exceeded: true,
  error_classified: true,
  retry_scheduled: true,
  cost: true,
  child_thread_started: true,
  child_thread_finished: true,
  delivery: true,
  budget: true,
  thread_finished: true,
  checkpoint: true,
  log_quarantined: true,
  approval_requested: true,
  approval_decided: true,
  note: true,
};

let folder = '';
beforeEach(() => {
  folder = mkdtempSync(path.join(tmpdir(), 'rye-format-'));
});
afterEach(() => removeFolder(folder));

function section(title: string): string {
  return PAGE.split(`## ${title}\n`)[1]?.split('\n## ')[0] ?? '';
}

/** Reads a log with the Python reader, which knows the page and not rye. */
async function independently(file: string): Promise<Record<string, unknown>> {
  const { stdout } = await run('python3', [READER, file], { maxBuffer: 1 << 26 });
  return JSON.parse(stdout) as Record<string, unknown>;
}

/** The same facts by rye. */
async function byRye(file: string, threadId: string): Promise<Record<string, unknown>> {
  const { events, offsets, problems } = await readLog(
    { threadId, location: file, chunks: () => createReadStream(file) },
    { entriesOnly: false },
  );
  const tree = buildTree(events, (index) => offsets[index] ?? 0);
  const { sources: _sources, ...context } = foldContext(tree, {
    startedCalls: startedCallIds(events),
  });
  const short = ({ kind, offset }: LogProblem) => [kind, offset];
  return {
    leaf_id: tree.leafId,
    labels: Object.fromEntries(tree.labels),
    entries: tree.entries.length,
    problems: [...problems, ...tree.problems].map(short),
    context,
  };
}

describe('docs/log-format.md', () => {
  it.each(Object.keys(TYPES))('has a row for %s', (type) => {
    const isEntry = (ENTRY_TYPES as readonly string[]).includes(type);
    const rows = section(isEntry ? 'Entries' : 'Log-only events')
      .split('\n')
      .filter((line) => line.startsWith('| `'))
      .map((line) => line.split('|')[1] ?? '');
    expect(rows.filter((cell) => cell.includes(`\`${type}\``))).toHaveLength(1);
  });
});

describe('a reader that knows only the page', () => {
  it.each([
    ['entries.jsonl', THREAD],
    ['whole/transcript.jsonl', 'demo/whole'],
    ['part/transcript.jsonl', 'demo/part'],
  ])('folds %s to the context that rye folds', async (name, threadId) => {
    const file = path.join(GOLDEN, name);
    expect(await independently(file)).toMatchObject(await byRye(file, threadId));
  });

  it('finds the defects of a damaged log where rye finds them', async () => {
    const file = path.join(folder, 'transcript.jsonl');
    const lines = readFileSync(path.join(GOLDEN, 'entries.jsonl'), 'utf8').split('\n');
    const [fused, other] = [lines[8] ?? '', lines[9] ?? ''];
    lines.splice(8, 2, fused + other);
    lines.splice(12, 1, '{"seq":12,"timestamp":"2026');
    lines.splice(20, 1);
    lines[25] = (lines[25] ?? '').replace(/"parent_id":"[^"]*"/, '"parent_id":"gone"');
    lines.push('{"seq":99');
    writeFileSync(file, lines.join('\n'));
    const found = await independently(file);
    const expected = await byRye(file, THREAD);
    expect(found).toMatchObject(expected);
    const kinds = (found['problems'] as [string, number][]).map(([kind]) => kind);
    expect([...new Set(kinds)].toSorted()).toEqual([
      'fused',
      'gap',
      'malformed',
      'orphan',
      'torn_tail',
    ]);
  });

  it('follows the chain of checkpoints of a real log to its end', async () => {
    const file = path.join(GOLDEN, 'whole/transcript.jsonl');
    const { bytes } = JSON.parse(
      readFileSync(path.join(GOLDEN, 'whole/thread.json'), 'utf8'),
    ).transcript;
    expect((await independently(file))['checkpoints']).toMatchObject({
      verified_bytes: bytes,
      broken_at: null,
    });
  });

  it('finds a changed byte, a removed line and a swapped log where rye finds them', async () => {
    const { signer, verifier } = testKey();
    const lines = signedLog(
      [[userMessage('one'), userMessage('two')], [userMessage('three')], [userMessage('four')]],
      signer,
    );
    const changed = lines.map((line) => line.replace('three', 'threw'));
    const removed = lines.filter((line) => !line.includes('"two"'));
    const swapped = lines.map((line) => line.replaceAll(THREAD, 'demo/other'));
    const verdicts: unknown[] = [];
    for (const [index, log] of [lines, changed, removed, swapped].entries()) {
      const file = path.join(folder, `${index}.jsonl`);
      writeFileSync(file, log.join(''));
      const theirs = (await independently(file))['checkpoints'] as { broken_at: number | null };
      const check = new LogVerifier({ threadId: THREAD, verifier });
      scanNow([readFileSync(file)], check);
      verdicts.push([theirs.broken_at !== null, !check.verdict().ok]);
    }
    expect(verdicts).toEqual([
      [false, false],
      [true, true],
      [true, true],
      [true, true],
    ]);
  });
});
