import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

// the command of item c kills the process of the thread, once: no sandbox may be in between
const COMMAND =
  'echo ${f} >> done.txt; if [ "${f}" = c ] &amp;&amp; [ ! -e again ]; then touch again; kill -9 $PPID; fi; echo said ${f}';
const XML = `<directive name="fan" version="1.0.0">
<metadata><description>Fan out.</description><category></category><author>me</author><model provider="literal"/>
<permissions><execute><tool>rye/bash</tool></execute><acknowledge risk="elevated">test</acknowledge></permissions></metadata>
<inputs><input name="files" type="array" required="true">Files.</input></inputs>
<outputs><output name="count" type="array" required="true" from="\${steps.say.results}">All.</output></outputs>
<process><foreach item="f" in="\${inputs.files}"><step name="say">
<execute item_type="tool" item_id="rye/bash"><param name="command">${COMMAND}</param></execute>
</step></foreach></process>
</directive>`;

test('a process that is killed in the middle of a list resumes without repeating finished items', async () => {
  const here = await workspace();
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai/directives/fan.md'),
    `# Fan\n\n\`\`\`xml\n${XML}\n\`\`\`\n`,
  );
  expect((await here.rye(['sign', 'directive', 'fan'])).code).toBe(0);
  const inputs = JSON.stringify({ files: ['a', 'b', 'c', 'd', 'e'] });
  const off = ['-c', 'resilience.tools.sandbox=off'];
  const killed = await here.rye([...off, 'run', 'fan', '--inputs', inputs, '--thread-id', 'k1'], {
    spawned: true,
  });
  expect(killed.code).not.toBe(0);
  const done = () => readFileSync(path.join(here.project, 'done.txt'), 'utf8').split('\n');
  expect(done()).toEqual(['a', 'b', 'c', '']);
  const resumed = await here.json(['threads', 'resume', 'k1']);
  expect(resumed).toMatchObject({ success: true, status: 'completed' });
  const { count } = resumed['outputs'] as { count: readonly { output: string }[] };
  expect(count.map(({ output }) => output)).toEqual(
    ['a', 'b', 'c', 'd', 'e'].map((item) => `said ${item}\n`),
  );
  // the item that was interrupted runs again, after those that were never begun
  expect(done()).toEqual(['a', 'b', 'c', 'd', 'e', 'c', '']);
});
