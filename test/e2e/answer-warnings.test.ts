import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { type ChatTurn, startChatServer } from '../helpers/chat-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const DIRECTIVE = `# D
\`\`\`xml
<directive name="d" version="1.0.0"><metadata><description>D.</description><category></category><author>t</author>
<limits turns="4" spend="1"/><permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata></directive>
\`\`\`
Work.
`;
const LIST = {
  tool_calls: [
    {
      index: 0,
      id: 'c1',
      type: 'function',
      function: { name: 'rye_file_system_ls', arguments: '{}' },
    },
  ],
};

const RUN = ['run', 'd', '--provider', 'vllm'];

interface Result {
  readonly status: string;
  readonly warnings?: readonly string[];
  readonly thread_id: string;
  readonly error?: { readonly code: string; readonly hint: string };
  readonly paths: Readonly<Record<string, string>>;
}

async function run(here: Workspace, args: readonly string[], turns: readonly ChatTurn[]) {
  const server = await startChatServer(turns, 'vllm');
  onTestFinished(async () => await server.close());
  const env = { VLLM_BASE_URL: server.url };
  const result = (await here.json([...args], { env })) as unknown as Result;
  return { result, server };
}

const spoken = (content: string) => ({ kind: 'delta', delta: { content } }) as const;

test('a run warns once of estimated tokens, and keeps an answer with an unknown end without completing', async () => {
  const here = await workspace();
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/directives/d.md'), DIRECTIVE);
  await here.rye(['sign', 'directive', 'd']);
  const estimates = (warnings: readonly string[] = []) =>
    warnings.filter((warning) => warning.includes('are estimates')).length;

  const counted = { prompt_tokens: 9, completion_tokens: 3 };
  const usages = [null, { prompt_tokens: 0, completion_tokens: 0 }, { prompt_tokens: -4 }, {}];
  for (const usage of usages) {
    const turns: ChatTurn[] = [
      { steps: [{ kind: 'delta', delta: LIST }], usage, finish: 'tool_calls' },
      { steps: [spoken('Done.')], usage },
    ];
    const { result } = await run(here, RUN, turns);
    expect([result.status, estimates(result.warnings)]).toEqual(['completed', 1]);
  }
  const exact = await run(here, RUN, [{ steps: [spoken('Done.')], usage: counted }]);
  expect([exact.result.status, estimates(exact.result.warnings)]).toEqual(['completed', 0]);

  const odd = await run(
    here,
    ['run', 'd'],
    [{ steps: [spoken('The first cause is')], usage: counted, finish: 'solar_flare' }],
  );
  expect(odd.result).toMatchObject({
    status: 'error',
    error: { hint: expect.stringContaining('rye threads resume') },
    warnings: [expect.stringMatching(/"solar_flare".*its text is kept, and it is no result/)],
  });
  expect(readFileSync(odd.result.paths['transcript'] ?? '', 'utf8')).toContain(
    'The first cause is',
  );
  const resumed = await run(
    here,
    ['threads', 'resume', odd.result.thread_id],
    [{ steps: [spoken('the sun.')], usage: counted }],
  );
  expect(resumed.result.status).toBe('completed');
  const sent = JSON.stringify(resumed.server.requests[0]?.body.messages);
  expect(sent).toContain('The first cause is');
});
