import { readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { type Workspace, workspace } from '../helpers/workspace.ts';

const LIMIT = 300_000;

function directive(name: string, inputs: string, steps: string): string {
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
  <metadata><description>Labels.</description><category></category><author>test</author>
    <model provider="literal" /><limits turns="9" spawns="9" depth="3" />
    <permissions><execute><tool>rye/file-system/ls</tool><directive>kid</directive></execute></permissions>
  </metadata>
  <inputs>${inputs}</inputs>
  <process>${steps}</process>
</directive>
\`\`\`
`;
}

const FILES =
  '<input name="files" type="array">Files.</input><input name="token" type="string" secret="true">A secret.</input>';
const STEPS = `
  <foreach item="f" in="\${inputs.files}"><step name="one" label="look at \${f}"><execute item_type="directive" item_id="kid"><param name="file" value="\${f}" /></execute></step></foreach>
  <step name="bare"><execute item_type="directive" item_id="kid"><param name="file">plain.txt</param></execute></step>
  <step name="secret" label="with \${inputs.token}"><execute item_type="directive" item_id="kid"><param name="file">x</param></execute></step>`;

async function family(): Promise<Workspace> {
  const here = await workspace();
  const kid = '<input name="file" type="string">A file.</input>';
  const look =
    '<step name="look"><execute item_type="tool" item_id="rye/file-system/ls"><param name="path">.</param></execute></step>';
  for (const [name, text] of [
    ['top', directive('top', FILES, STEPS)],
    ['kid', directive('kid', kid, look)],
  ] as const) {
    writeFileSync(path.join(here.project, `.ai/directives/${name}.md`), text);
    await here.rye(['sign', 'directive', name]);
  }
  return here;
}

test(
  'labels of steps, of --label and of inputs are in list, show, tree, wait and the lines of a run, without secrets',
  async () => {
    const here = await family();
    const label = `nightly\u001b[31m ${'x'.repeat(99)}`;
    const run = ['run', 'top', '--inputs', '{"files":["a.md","b.md"],"token":"hunter2-secret"}'];
    const { code, stderr } = await here.rye([...run, '--thread-id', 'top-demo', '--label', label]);
    expect({ code, stderr }).toMatchObject({ code: 0 });
    expect(stderr).toMatch(/↳ started kid-\w+ \(look at a\.md\)/);
    expect(stderr).toMatch(/↳ started kid-\w+ \(kid plain\.txt\)/);

    const short = `nightly ${'x'.repeat(71)}…`;
    const labels = ['look at a.md', 'look at b.md', 'kid plain.txt', 'with {secret:token}'];
    const { threads } = await here.json(['threads', 'list', '--all']);
    expect(threads).toMatchObject([...labels.toReversed(), short].map((one) => ({ label: one })));
    const shown = await here.json(['threads', 'show', 'top-demo']);
    expect(shown).toMatchObject({
      thread: { label: short },
      children: labels.map((one) => ({ label: one })),
    });
    const { threads: trees } = await here.json(['threads', 'tree', 'top-demo']);
    expect(trees).toMatchObject([
      { thread: { label: short }, children: labels.map((one) => ({ thread: { label: one } })) },
    ]);
    const waited = await here.json(['threads', 'wait', 'top-demo']);
    expect(waited).toMatchObject({ threads: [{ thread_id: 'top-demo', label: short }] });
    const table = (await here.rye(['threads', 'wait', 'top-demo'])).stdout;
    expect(table).toContain('nightly');
    const list = (await here.rye(['threads', 'list', '--all'])).stdout;
    expect(list).toMatch(/^THREAD +LABEL +STATUS/);
    expect(list).toMatch(/^kid-\w+ +plain\.txt +completed/m);
    expect(list).not.toContain('\u001b');
    const folder = path.join(here.project, '.ai/state/threads');
    const children = (shown['children'] as readonly { thread_id: string }[]).map(
      ({ thread_id: id }) => readFileSync(path.join(folder, id, 'thread.json'), 'utf8'),
    );
    expect(children.join('')).not.toContain('hunter2');
  },
  LIMIT,
);
