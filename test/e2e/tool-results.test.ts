import { mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, onTestFinished, test } from 'vitest';
import {
  calls,
  reply,
  startWireServer,
  toolUse,
  type WireBody,
  type WireTurn,
} from '../helpers/wire-server.ts';
import { workspace } from '../helpers/workspace.ts';

const DIRECTIVE = `\`\`\`xml
<directive name="work" version="1.0.0">
  <metadata><description>d</description><category></category><author>a</author>
    <permissions><execute><tool>rye/bash</tool><tool>rye/search</tool><tool>rye/file-system/*</tool></execute><fetch><knowledge>*</knowledge></fetch>
      <acknowledge risk="elevated">r</acknowledge><acknowledge risk="unrestricted">r</acknowledge></permissions></metadata>
</directive>
\`\`\`

Do the work.
`;

/** The text of the last tool result that the model was sent. */
function lastResult(body: WireBody | undefined): string {
  const content = body?.messages.at(-1)?.content;
  const block = Array.isArray(content) ? content.at(-1) : undefined;
  const inner: unknown = block?.content;
  if (typeof inner === 'string') return inner;
  return (inner as { text?: string }[] | undefined)?.map(({ text }) => text).join('\n') ?? '';
}

async function lab(next: (previous: string, index: number) => WireTurn) {
  const here = await workspace();
  mkdirSync(path.join(here.project, '.ai/directives'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai/directives/work.md'), DIRECTIVE);
  const signed = await here.rye(['sign', 'directive', 'work']);
  expect(signed.code, signed.stderr).toBe(0);
  const results: string[] = [];
  const server = await startWireServer(({ body, index }) => {
    const result = index === 0 ? '' : lastResult(body);
    if (index > 0) results.push(result);
    return next(result, index);
  });
  onTestFinished(() => server.close());
  const env = { ANTHROPIC_API_KEY: 'k', ANTHROPIC_BASE_URL: server.url };
  const run = async () => {
    const ended = await here.rye(['run', 'work', '--limit', 'turns=60', '--raise-limits'], { env });
    expect(ended.code, ended.stderr).toBe(0);
    return results;
  };
  return { here, run };
}

// Requirement: shell-output-cap, shell-footer
test('the model sees head, tail and exit status of a long command', async () => {
  const command = 'for i in $(seq 1 20000); do echo row $i; done; echo FINAL-ERROR-LINE; exit 3';
  const { run } = await lab((_previous, index) =>
    index === 0 ? calls(toolUse('rye_bash', { command })) : reply('Done.'),
  );
  const [result = ''] = await run();
  expect(result).toMatch(/row 1\nrow 2\n/);
  expect(result).toMatch(/…\(\d+ bytes omitted\)…/);
  expect(result).toMatch(/row 20000\nFINAL-ERROR-LINE\n\(exit 3, \d+ms\)$/);
  expect(result).not.toContain('persisted-output');
});

// Requirement: read-defaults, read-next-offset
test('a long file is read in pages, each with the offset that continues it', async () => {
  const offsets: number[] = [];
  const { here, run } = await lab((previous, index) => {
    const next = Number(/continue with offset=(\d+)/.exec(previous)?.[1] ?? (index === 0 ? 1 : 0));
    if (next === 0) return reply('Done.');
    offsets.push(next);
    return calls(toolUse('rye_file_system_read', { path: 'long.txt', offset: next }, `t${index}`));
  });
  const lines = Array.from({ length: 5000 }, (_, index) => `line ${index + 1} of the file`);
  writeFileSync(path.join(here.project, 'long.txt'), `${lines.join('\n')}\n`);
  const results = await run();
  expect(offsets.length).toBeGreaterThan(2);
  const shown = results.flatMap((result) =>
    result.split('\n').flatMap((line) => /^\d+\t(.*)$/.exec(line)?.[1] ?? []),
  );
  expect(shown).toEqual(lines);
});

test('the artifact of a large result is read in pages', async () => {
  const text = JSON.stringify({ rows: 'ab'.repeat(60_000) });
  const { here, run } = await lab((previous, index) => {
    if (index === 0)
      return calls(
        toolUse('rye_file_system_grep', { pattern: 'x', path: 'many.txt', head_limit: 5000 }, 't'),
      );
    const artifact = /path="([^"]+)"/.exec(previous)?.[1];
    const next = /continue with (offset|from_byte)=(\d+)/.exec(previous);
    if (artifact === undefined && next === null) return reply('Done.');
    pathOf ??= artifact;
    const where = next === null ? {} : { [next[1] ?? '']: Number(next[2]) };
    return calls(toolUse('rye_file_system_read', { path: pathOf, ...where }, `t${index}`));
  });
  let pathOf: string | undefined;
  const rows = Array.from({ length: 3000 }, (_, index) => `x row ${index + 1}`);
  writeFileSync(path.join(here.project, 'many.txt'), `${rows.join('\n')}\n${text}\n`);
  const results = await run();
  expect(results[0]).toContain('persisted-output');
  expect(results[0]).toContain('Read the path in pages');
  const pages = results.slice(1).join('\n');
  expect(pages).not.toContain('persisted-output');
  for (const row of [rows[0], rows[1500], rows.at(-1)]) expect(pages).toContain(row);
});

test('grep, glob and search skip the exports of earlier threads unless they are asked for', async () => {
  const exports = '.ai/knowledge/agent/threads';
  const steps = [
    toolUse('rye_file_system_grep', { pattern: 'pelican' }, 'a'),
    toolUse('rye_file_system_glob', { pattern: '**/*.md' }, 'b'),
    toolUse('rye_search', { query: 'pelican' }, 'c'),
    toolUse('rye_file_system_grep', { pattern: 'pelican', path: exports }, 'd'),
    toolUse('rye_file_system_glob', { pattern: '**/*.md', path: exports }, 'e'),
    toolUse('rye_search', { query: 'pelican', include_threads: true }, 'f'),
    toolUse('rye_search', { query: 'pelican directive:hello' }, 'g'),
  ];
  const { here, run } = await lab((_previous, index) => {
    const step = steps[index];
    return step === undefined ? reply('Done.') : calls(step);
  });
  await here.rye(['run', 'hello', '--input', 'who=pelican', '--thread-id', 'old']);
  writeFileSync(path.join(here.project, 'notes.md'), 'a pelican\n');
  const [grep, glob, search, grepThere, globThere, searchThere, searchField] = await run();
  expect(grep).toContain('notes.md:1:a pelican');
  expect(grep).not.toContain('agent/threads');
  expect(glob).toContain('notes.md');
  expect(glob).not.toContain('agent/threads');
  expect(search).toBe('No results.');
  expect(grepThere).toContain('old.md');
  expect(globThere).toContain('old.md');
  expect(searchThere).toContain('agent/threads/hello/old');
  expect(searchField).toContain('agent/threads/hello/old');
});

const EDIT = [
  'rye_file_system_edit',
  { path: 'v.txt', old_string: 'one', new_string: 'two' },
] as const;
const bash = (command: string) => ['rye_bash', { command }] as const;

test.each([
  ['an edit, then a command', [EDIT, bash('cat v.txt')], /^two\n/],
  [
    'a new script, then its run',
    [['rye_file_system_write', { path: 'run.sh', content: 'echo ran\n' }], bash('sh run.sh')],
    /^ran\n/,
  ],
  [
    'two commands',
    [bash('for i in 1 2 3 4; do /bin/true; done; mkdir d && echo ok > d/a'), bash('cat d/a')],
    /^ok\n/,
  ],
  [
    'a command, then a read',
    [bash('/bin/true; echo new > n.txt'), ['rye_file_system_read', { path: 'n.txt' }]],
    /new/,
  ],
  [
    'an edit, then a search',
    [EDIT, ['rye_file_system_grep', { pattern: 'one|two' }]],
    /v\.txt:1:two/,
  ],
] as const)(
  'the second call of an answer sees what the first did: %s',
  async (_, both, expected) => {
    const { here, run } = await lab((_previous, index) =>
      index === 0
        ? calls(...both.map(([name, input], at) => toolUse(name, input, `call-${at}`)))
        : reply('Done.'),
    );
    writeFileSync(path.join(here.project, 'v.txt'), 'one\n');
    const [result] = await run();
    expect(result).toMatch(expected);
  },
);

test('a command shows errors where they occur', async () => {
  const command = 'for i in 1 2 3; do echo out$i; echo err$i >&2; done; echo "$0 $#"';
  const { run } = await lab((_previous, index) =>
    index === 0 ? calls(toolUse('rye_bash', { command })) : reply('Done.'),
  );
  const [result = ''] = await run();
  expect(result).toMatch(/^out1\nerr1\nout2\nerr2\nout3\nerr3\n\/bin\/(?:ba)?sh 0\n/);
});
