import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { workspace } from '../helpers/workspace.ts';

const DIRECTIVE = `# Look

\`\`\`xml
<directive name="look" version="1.0.0">
  <metadata>
    <description>Look around.</description>
    <category></category>
    <author>ada</author>
    <permissions>
      <execute><tool>rye/file-system/ls</tool><tool optional="true">rye/file-system/raed</tool></execute>
    </permissions>
  </metadata>
  <process>
    <step name="list"><execute item_type="tool" item_id="rye/file-system/ls" /></step>
  </process>
</directive>
\`\`\`

Look around.
`;
const WARNING =
  'warning: the permission rye.execute.tool.rye.file-system.raed matches no tool. ' +
  'Did you mean rye/file-system/read';

it('warnings about the plan of a thread are printed while it runs, and are in its log', async () => {
  const { project, rye } = await workspace();
  mkdirSync(path.join(project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(project, '.ai/directives/look.md'), DIRECTIVE);
  expect((await rye(['sign', 'directive', 'look'])).code).toBe(0);
  const told = async (...flags: readonly string[]): Promise<number> => {
    const { code, stdout, stderr } = await rye(['run', 'look', ...flags]);
    expect({ code, isOnStdout: stdout.includes(WARNING) }).toEqual({ code: 0, isOnStdout: false });
    return stderr.split(WARNING).length - 1;
  };
  expect([await told(), await told('-p'), await told('--json'), await told('-q')]).toEqual([
    1, 1, 1, 0,
  ]);
  const { stdout } = await rye(['run', 'look', '--thread-id', 'looked', '--output-format=json']);
  expect(JSON.parse(stdout)).toMatchObject({ success: true });
  expect((await rye(['threads', 'logs', 'looked', '--text'])).stdout).toContain(WARNING);
});
