import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { calls, type House, house, toolUse } from '../../approvals/house.ts';
import { directive } from '../../attacks/lab.ts';
import type { WireStep } from '../../helpers/wire-server.ts';

const VERDICT =
  '<output name="verdict" type="string" required="true">The verdict.</output><output name="score" type="integer">Points.</output>';

/** A reviewer whose model writes a file and returns these outputs. */
async function reviewer(outputs: object, ...before: readonly WireStep[]): Promise<House> {
  const here = await house(
    ...(before.length > 0 ? [calls(...before)] : []),
    calls(toolUse('directive_return', { ...outputs })),
  );
  here.signed(
    'directives/review.md',
    directive('review', {
      permissions: '<execute><tool>rye/file-system/*</tool></execute>',
      children: `<outputs>${VERDICT}</outputs>`,
    }),
  );
  return here;
}

const CHANGES = { verdict: 'changes', score: 3 };

it.each<readonly [string, number]>([
  ['.verdict == "changes"', 1],
  [".verdict == 'changes'", 1],
  ['.verdict == "ok"', 0],
  ['.verdict != "ok" and .score >= 3', 1],
  ['.score > 3 or .verdict contains "chan"', 1],
  ['not .score > 3', 1],
  ['.verdict in ["changes", "reject"]', 1],
  ['status == completed', 1],
  ['cost.spend > 100', 0],
  ['.other exists', 0],
  ['.other exists and .other == 1', 0],
])('--fail-if %s ends with %i', async (condition, code) => {
  const here = await reviewer(CHANGES);
  const result = await here.cli(['run', 'review', '--fail-if', condition]);
  expect([result.code, result.stderr.includes('[fail_if]')], result.stderr).toEqual([
    code,
    code === 1,
  ]);
  // the result is there all the same
  expect(result.stdout).toContain('changes');
});

it('a value that the result lacks is no passed check', async () => {
  const here = await reviewer(CHANGES);
  const { code, stderr } = await here.cli(['run', 'review', '--fail-if', '.verdikt == "changes"']);
  expect(code).toBe(2);
  expect(stderr).toContain('the result has no .verdikt');
  expect(stderr).toContain('verdict, score');
});

it.each(['', '.verdict ==', '.verdict = "x"', '== "x"', '.verdict == "a" and'])(
  '--fail-if %j is refused before anything runs',
  async (condition) => {
    const here = await reviewer(CHANGES);
    const { code, stderr } = await here.cli(['run', 'review', '--fail-if', condition]);
    expect([code, stderr]).toEqual([2, expect.stringContaining('--fail-if')]);
    expect(here.bodies).toEqual([]);
  },
);

it('a run that fails keeps its own exit code', async () => {
  const here = await reviewer({ ...CHANGES, status: 'error', reason: 'No diff.' });
  const failed = await here.cli(['run', 'review', '--fail-if', '.score == 3', '--json']);
  expect(failed.code).toBe(1);
  expect(JSON.parse(failed.stdout)).toMatchObject({ error: { code: 'directive_error' } });
  expect(failed.stderr).not.toContain('fail_if');
});

it('--fail-if is a failed case for JUnit', async () => {
  const here = await reviewer(CHANGES);
  const junit = join(here.project, 'out.xml');
  await here.cli(['run', 'review', '--fail-if', '.score == 3', '--junit', junit]);
  expect(readFileSync(junit, 'utf8')).toContain('<failure type="fail_if"');
});

it('a receipt has outputs, cost, files, approvals and the verification', async () => {
  const content = 'hi\n';
  const here = await reviewer(
    CHANGES,
    toolUse('rye_file_system_write', { path: 'a.txt', content }),
    toolUse('rye_file_system_write', { path: 'b.txt', content }),
  );
  here.policy({
    rules: [
      { tool: 'rye/file-system/write', when: { argument: 'path', matches: '^b' }, ask: ['me'] },
    ],
  });
  const { threadId, id } = await here.asks('review');
  await here.json(['approve', id, '--no-resume']);
  await here.json(['threads', 'resume', threadId]);
  const receipt = await here.json(['threads', 'receipt', threadId]);
  expect(receipt).toMatchObject({
    thread_id: threadId,
    directive: 'review',
    status: 'completed',
    outputs: CHANGES,
    cost: { turns: 2 },
    children: 0,
    files: [
      { path: 'a.txt', change: 'created' },
      { path: 'b.txt', change: 'created' },
    ],
    other_tools: [],
    approvals: [{ id, tool: 'rye/file-system/write', state: 'approved', by: ['me'] }],
    verification: { ok: true },
  });
  const { stdout } = await here.cli(['threads', 'receipt', threadId]);
  for (const part of [
    '### `review`: completed',
    '**verdict**\n\n```text\nchanges\n```',
    '- created `a.txt`',
    '- approved by `me`: `Create b.txt` (`rye/file-system/write`)',
    `rye verify thread ${threadId}`,
  ])
    expect(stdout).toContain(part);
});

it('run --receipt writes it, the summary of a job has it, and no text of a model is markup in it', async () => {
  const verdict = '</details>`` ```\n# Approved by the team\n[x](javascript:y)';
  const hidden = '\u001B[8m\u202E';
  const here = await reviewer({ verdict: verdict + hidden });
  const [file, summary] = [join(here.project, 'receipt.md'), join(here.project, 'summary.md')];
  const env = { GITHUB_STEP_SUMMARY: summary };
  const { code } = await here.cli(['run', 'review', '--receipt', file], { env });
  expect(code).toBe(0);
  const text = readFileSync(file, 'utf8');
  expect(text).toContain(`\`\`\`\`text\n${verdict}\u{FFFD}[8m\n\`\`\`\``);
  expect(readFileSync(summary, 'utf8')).toContain(text.trim());
});

it('a damaged record has no receipt', async () => {
  const here = await reviewer(CHANGES);
  const { thread_id: threadId } = await here.json(['run', 'review']);
  const document = join(here.project, '.ai/state/threads', String(threadId), 'thread.json');
  writeFileSync(document, readFileSync(document, 'utf8').replace('changes', 'fine'));
  const refused = await here.json(['threads', 'receipt', String(threadId)], 3);
  expect(refused).toMatchObject({ error: { code: 'thread_tampered' } });
});

it.each(['--async', '--dry-run'])('%s has neither a receipt nor a result to judge', async (how) => {
  const here = await reviewer(CHANGES);
  for (const option of [
    ['--receipt', 'r.md'],
    ['--fail-if', '.score == 3'],
  ]) {
    const { code, stderr } = await here.cli(['run', 'review', how, ...option]);
    expect([code, stderr]).toEqual([2, expect.stringContaining(String(option[0]))]);
  }
  expect(existsSync(join(here.project, 'r.md'))).toBe(false);
});
