import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

/** A file that Node writes with NODE_V8_COVERAGE. */
interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly {
      readonly functionName: string;
      readonly ranges: readonly { readonly count: number }[];
    }[];
  }[];
}

const DIRECTIVE = `\`\`\`xml
<directive name="headless" version="1.0.0">
<metadata><description>d</description><category></category><author>a</author>
<permissions><execute><tool>rye/file-system/ls</tool></execute></permissions></metadata>
</directive>
\`\`\`

List the folder.
`;

// the bundle wraps each module of zod in a function that has the path of the module as its name
test('a thread with a model and a tool runs without zod', async () => {
  const { project, home, rye } = await workspace();
  const file = path.join(project, '.ai', 'directives', 'headless.md');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, DIRECTIVE);
  await rye(['sign', 'directive', 'headless']);
  const server = await startWireServer([
    calls(toolUse('rye_file_system_ls', { path: '.' })),
    reply('Listed.'),
  ]);
  onTestFinished(() => server.close());
  const folder = path.join(home, 'coverage');

  const run = await rye(['run', 'headless', '--json', '--model', 'haiku'], {
    spawned: true,
    env: {
      ANTHROPIC_API_KEY: 'k',
      ANTHROPIC_BASE_URL: server.url,
      NODE_V8_COVERAGE: folder,
    },
  });

  expect(JSON.parse(run.stdout)).toMatchObject({ success: true, result: 'Listed.' });
  const scripts = readdirSync(folder)
    .map((name) => JSON.parse(readFileSync(path.join(folder, name), 'utf8')) as Coverage)
    .flatMap(({ result }) => result);
  const program = scripts.find(({ url }) => url.endsWith('/dist/cli/program.cjs'));
  const modules = (program?.functions ?? []).map(({ functionName, ranges }) => ({
    name: functionName,
    isLoaded: ranges.some(({ count }) => count > 0),
  }));
  const zod = modules.filter(({ name }) => name.startsWith('node_modules/zod/'));
  expect(zod.filter(({ isLoaded }) => isLoaded)).toEqual([]);
  // the same count sees what is loaded
  const loop = modules.filter(({ name }) => name.startsWith('src/kernel/loop/'));
  expect(loop.some(({ isLoaded }) => isLoaded)).toBe(true);
  expect(scripts.filter(({ url }) => url.includes('/node_modules/zod/'))).toEqual([]);
  expect(scripts.filter(({ url }) => url.includes('/dist/chunks/'))).toEqual([]);
});
