import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

const directive = (name: string) => `\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author>
    <permissions><execute><directive>report</directive></execute></permissions></metadata>
</directive>
\`\`\`

Do ${name}.
`;

async function lab() {
  const here = await workspace();
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  for (const name of ['report', 'parent']) {
    writeFileSync(path.join(here.project, `.ai/directives/${name}.md`), directive(name));
    const signed = await here.rye(['sign', 'directive', name]);
    expect(signed.code, signed.stderr).toBe(0);
  }
  let isCut = true;
  let part = 0;
  const server = await startWireServer(({ body }) => {
    const isParent = JSON.stringify(body.messages[0]).includes('Do parent.');
    if (isParent && body.messages.length === 1) {
      return calls(toolUse('rye_execute', { item_type: 'directive', item_id: 'report' }));
    }
    if (isParent) return reply('Parent done.');
    part += 1;
    return isCut ? { ...reply(`part ${part}. `), stop_reason: 'max_tokens' } : reply('The end.');
  });
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const json = async (...args: string[]) => {
    const { code, stdout } = await here.rye([...args, '--json'], { env });
    return { code, ...(JSON.parse(stdout) as { thread_id: string; result: string }) };
  };
  return { json, server, finish: () => void (isCut = false) };
}

test('a report that is always cut fails as answer_cut, and a resume completes it whole', async () => {
  const { json, finish } = await lab();
  const ended = await json('run', 'report');
  expect(ended).toMatchObject({ code: 1, status: 'error', error: { code: 'answer_cut' } });
  expect(ended.result).toContain('part 1. part 2. ');
  finish();
  const resumed = await json('threads', 'resume', ended.thread_id);
  expect(resumed).toMatchObject({ code: 0, status: 'completed' });
  expect(resumed.result).toBe(`${ended.result}The end.`);
});

test('a parent does not take the cut answer of its child for a result', async () => {
  const { json, server } = await lab();
  expect((await json('run', 'parent')).code).toBe(0);
  const last = JSON.stringify(server.requests.at(-1)?.body.messages.at(-1));
  expect(last).toContain('answer_cut');
  expect(last).toContain('"is_error":true');
});
