import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, test } from 'vitest';
import { workspace } from '../../helpers/workspace.ts';

const step = (name: string, id: string, params: Readonly<Record<string, string>>): string =>
  `<step name="${name}"><execute item_type="tool" item_id="${id}">${Object.entries(params)
    .map(([key, value]) => `<param name="${key}">${value}</param>`)
    .join('')}</execute></step>`;

const directive = (process: string, more = ''): string => `\`\`\`xml
<directive name="work" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author><model provider="literal"/>
    <permissions><execute><tool>rye/bash</tool><tool>t/big</tool><tool>rye/file-system/*</tool></execute>
      <acknowledge risk="elevated">r</acknowledge></permissions></metadata>
  ${more}<process>${process}</process>
</directive>
\`\`\`
`;

const TOOL = '# rye:tool\n# version: 1.0.0\n# description: d\n# /rye:tool\ncat big.txt\n';

/** Lines of all kinds, with the line ends of Windows and a mark at the start, about `bytes` long. */
function textOf(bytes: number): string {
  const line = 'Zeile 東京 "q" \\ \t end\r\n';
  return `\u{FEFF}${line.repeat(Math.ceil(bytes / Buffer.byteLength(line)))}last\n`;
}

async function run(process: string, text: string, more?: string) {
  const here = await workspace();
  const save = async (file: string, content: string, kind: string, id: string) => {
    const target = path.join(here.project, '.ai', file);
    mkdirSync(path.dirname(target), { recursive: true });
    writeFileSync(target, content);
    const signed = await here.rye(['sign', kind, id]);
    expect(signed.code, signed.stderr).toBe(0);
  };
  writeFileSync(path.join(here.project, 'big.txt'), text);
  await save('tools/t/big.sh', TOOL, 'tool', 't/big');
  await save('directives/work.md', directive(process, more), 'directive', 'work');
  const ended = await here.rye(['run', 'work', '--json']);
  const read = (name: string) => readFileSync(path.join(here.project, name), 'utf8');
  return { ended, read };
}

const copy = (name: string, value: string) =>
  step(`write_${name}`, 'rye/file-system/write', { path: `${name}.txt`, content: value });

test.each([10_000, 300_000])('steps copy %d bytes as they are', async (bytes) => {
  const text = textOf(bytes);
  const { ended, read } = await run(
    step('r', 'rye/file-system/read', { path: 'big.txt' }) +
      copy('read', '${steps.r.data.content}') +
      step('t', 't/big', {}) +
      copy('tool', '${steps.t.text}') +
      step('b', 'rye/bash', { command: 'cat big.txt' }) +
      copy('bash', '${steps.b.data.output}') +
      `<foreach item="n" in="[1, 2]" parallel="2">${step('each', 'rye/bash', { command: 'cat big.txt' })}</foreach>` +
      copy('list', '${steps.each.results[1].output}'),
    text,
    '<outputs><output name="out" from="${steps.r.data.content}">O.</output></outputs>',
  );
  expect(ended.code, ended.stdout.slice(0, 2000)).toBe(0);
  expect(read('read.txt')).toBe(text);
  expect(`${read('tool.txt')}\n`).toBe(text);
  expect(read('bash.txt')).toBe(text);
  expect(read('list.txt')).toBe(text);
  const { outputs } = JSON.parse(ended.stdout) as { outputs: { out: string } };
  expect(outputs.out).toBe(text);
});

test('a condition reads the whole result', async () => {
  const { ended, read } = await run(
    `${step('b', 'rye/bash', { command: 'cat big.txt' })}<if condition="\${steps.b.data.output} contains NEEDLE">${copy('found', 'yes')}</if>`,
    `${'x'.repeat(60_000)}NEEDLE${'x'.repeat(60_000)}\n`,
  );
  expect(ended.code, ended.stdout.slice(0, 2000)).toBe(0);
  expect(read('found.txt')).toBe('yes');
});

test('a result that no step can use whole fails its step by name', async () => {
  const { ended } = await run(
    step('b', 'rye/bash', { command: 'head -c 6000000 /dev/zero | tr "\\0" x' }) +
      copy('never', '${steps.b.data.output}'),
    '',
  );
  expect(ended.code).not.toBe(0);
  expect(ended.stdout).toMatch(/step \\"b\\".*result_too_large/);
});
