import { mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { cliPackage } from '../helpers/run-cli.ts';
import { workspace } from '../helpers/workspace.ts';

/** Writes the coverage so far and ends the process where it would connect to the model. */
const STOP_AT_REQUEST = `
  const { Socket } = require('node:net');
  const v8 = require('node:v8');
  Socket.prototype.connect = () => { v8.takeCoverage(); process.exit(0); };`;

const DIRECTIVE = `# Plain

\`\`\`xml
<directive name="plain" version="1.0.0">
  <metadata>
    <description>Says hello.</description>
    <category></category>
    <author>you</author>
    <model tier="fast" />
  </metadata>
</directive>
\`\`\`

Say hello.
`;

interface Coverage {
  readonly result: readonly {
    readonly url: string;
    readonly functions: readonly { readonly ranges: readonly { readonly count: number }[] }[];
  }[];
}

it('rye calls at most 40,000 functions before its first request to a model', async () => {
  const here = await workspace();
  const folder = path.join(here.home, 'coverage');
  const preload = path.join(here.home, 'stop.cjs');
  mkdirSync(folder);
  writeFileSync(preload, STOP_AT_REQUEST);
  writeFileSync(path.join(here.project, '.ai/directives/plain.md'), DIRECTIVE);
  await here.rye(['sign', 'directive', 'plain']);
  const env = {
    ANTHROPIC_API_KEY: 'k',
    ANTHROPIC_BASE_URL: 'http://127.0.0.1:9',
    NODE_OPTIONS: `--require=${preload}`,
    NODE_V8_COVERAGE: folder,
  };
  await here.rye(['run', 'plain'], { env, spawned: true });
  const [first = ''] = readdirSync(folder).toSorted();
  const { result } = JSON.parse(readFileSync(path.join(folder, first), 'utf8')) as Coverage;
  const root = await cliPackage();
  const calls = result
    .filter(({ url }) => url.startsWith(`file://${root}/`))
    .flatMap(({ functions }) => functions.map(({ ranges }) => ranges[0]?.count ?? 0));
  const sum = calls.reduce((all, count) => all + count, 0);
  // if the process never got to its request, there are fewer
  expect(sum).toBeGreaterThan(20_000);
  expect(sum).toBeLessThanOrEqual(40_000);
});
