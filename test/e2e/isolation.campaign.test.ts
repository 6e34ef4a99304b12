import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { expect, it } from 'vitest';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

interface Desk extends Workspace {
  readonly git: (...args: readonly string[]) => string;
  readonly put: (file: string, content: string) => void;
  readonly get: (file: string) => string | null;
  /** Writes and signs a directive of steps. */
  readonly steps: (name: string, process: string, more?: string) => Promise<void>;
  readonly worktrees: () => readonly string[];
}

/** A project that is a repository with one commit of `a.txt`, and directives of steps. */
async function repository(): Promise<Desk> {
  const here = await workspace();
  const at = (file: string): string => path.join(here.project, file);
  const identity = ['-c', 'user.name=t', '-c', 'user.email=t@example.com'];
  const desk: Desk = {
    ...here,
    git: (...args) =>
      execFileSync('git', [...identity, ...args], { cwd: here.project, encoding: 'utf8' }),
    put: (file, content) => {
      mkdirSync(path.dirname(at(file)), { recursive: true });
      writeFileSync(at(file), content);
    },
    get: (file) => (existsSync(at(file)) ? readFileSync(at(file), 'utf8') : null),
    steps: async (name, process, more = '') => {
      desk.put(`.ai/directives/${name}.md`, directive(name, process, more));
      const { code, stderr } = await here.rye(['sign', 'directive', name]);
      expect([code, stderr]).toEqual([0, expect.any(String)]);
    },
    worktrees: () => {
      const folder = at('.ai/state/worktrees');
      return existsSync(folder) ? readdirSync(folder).filter((name) => name !== '.gitignore') : [];
    },
  };
  desk.put('a.txt', 'one\ntwo\nthree\n');
  desk.git('init', '--quiet');
  desk.git('add', '--all');
  desk.git('commit', '--quiet', '-m', 'first');
  return desk;
}

const directive = (name: string, process: string, more: string): string => `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0">
<metadata><description>Work.</description><category></category><author>me</author><model provider="literal"/>
<limits turns="40" spend="0.10" spawns="10" depth="4"/>
<permissions><execute><tool>*</tool><directive>*</directive></execute><acknowledge risk="elevated">test</acknowledge></permissions></metadata>
${more}<process>${process}</process>
</directive>
\`\`\`
`;

const step = (
  name: string,
  attributes: string,
  parameters: Record<string, string> = {},
): string => {
  const given = Object.entries(parameters).map(
    ([key, value]) => `<param name="${key}">${value}</param>`,
  );
  return `<step name="${name}"><execute ${attributes}>${given.join('')}</execute></step>`;
};
const bash = (name: string, command: string): string =>
  step(name, 'item_type="tool" item_id="rye/bash"', { command });
const ask = (name: string, parameters: Record<string, string>): string =>
  step(name, 'item_type="tool" item_id="rye/agent/threads/orchestrator"', parameters);

const EDIT = bash('edit', 'sed -i s/two/TWO/ a.txt; echo new &gt; b.txt');

it('a parent and a person read the changes of a background child wherever they look', async () => {
  const here = await repository();
  await here.steps('child', EDIT);
  await here.steps(
    'parent',
    [
      step('start', 'item_type="directive" item_id="child" async="true" isolation="worktree"'),
      ask('wait', { operation: 'wait_threads', thread_ids: '["${steps.start.data.thread_id}"]' }),
      ask('status', { operation: 'get_status', thread_id: '${steps.start.data.thread_id}' }),
      ask('all', {
        operation: 'aggregate_results',
        thread_ids: '["${steps.start.data.thread_id}"]',
      }),
    ].join(''),
    `<outputs><output name="wait" type="array" from="\${steps.wait.data.threads}">W.</output>
<output name="status" type="object" from="\${steps.status.data}">S.</output>
<output name="all" type="array" from="\${steps.all.data.results}">A.</output></outputs>`,
  );
  const ran = await here.json(['run', 'parent']);
  expect(ran).toMatchObject({ success: true });
  const changes = {
    status: 'patch',
    base: here.git('rev-parse', 'HEAD').trim(),
    files: [
      { path: 'a.txt', change: 'modified' },
      { path: 'b.txt', change: 'added' },
    ],
  };
  expect(ran['outputs']).toMatchObject({
    wait: [{ changes }],
    status: { changes },
    all: [{ changes }],
  });
  const [id] = ran['children'] as readonly string[];
  expect(await here.json(['threads', 'wait', id ?? ''])).toMatchObject({ threads: [{ changes }] });
  expect((await here.rye(['threads', 'wait', id ?? ''])).stdout).toMatch(
    /2 changed files in the worktree, not applied; the patch is \S+-changes\.patch/,
  );
  expect((await here.rye(['threads', 'show', id ?? ''])).stdout).toMatch(
    /changes +2 changed files in the worktree, not applied; the patch is /,
  );
  expect(await here.json(['threads', 'show', id ?? ''])).toMatchObject({ document: { changes } });
  expect([here.get('b.txt'), here.worktrees()]).toEqual([null, []]);
});

/** An MCP server with one tool, which writes a file into its working directory and returns the directory. */
const SERVER = `
import { writeFileSync } from 'node:fs';
import { createInterface } from 'node:readline';
const answers = {
  initialize: ({ protocolVersion }) => ({ protocolVersion, capabilities: { tools: {} }, serverInfo: { name: 'w', version: '1' } }),
  'tools/list': () => ({ tools: [{ name: 'mark', description: 'Marks.', inputSchema: { type: 'object', properties: {} } }] }),
  'tools/call': () => {
    writeFileSync('marked.txt', 'by the server\\n');
    return { content: [{ type: 'text', text: process.cwd() }] };
  },
};
createInterface({ input: process.stdin }).on('line', (line) => {
  const { id, method, params } = JSON.parse(line);
  const result = answers[method]?.(params);
  if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, result }));
});
`;

it('the MCP servers of an isolated child work in its worktree, with the program of the project', async () => {
  const here = await repository();
  // no commit has the program, so that a worktree lacks it
  here.put('.gitignore', 'mcp/\n');
  here.put('mcp/where.mjs', SERVER);
  const servers = { where: { command: process.execPath, args: ['mcp/where.mjs'] } };
  here.put('.ai/config/mcp.yaml', JSON.stringify({ servers }));
  expect(await here.rye(['sign', 'config', 'mcp'])).toMatchObject({ code: 0 });
  await here.steps('child', step('mark', 'item_type="tool" item_id="mcp/where/mark"'));
  await here.steps(
    'parent',
    step('one', 'item_type="directive" item_id="child" isolation="worktree"') +
      step('two', 'item_type="directive" item_id="child"'),
    `<outputs><output name="one" type="object" from="\${steps.one.data}">O.</output>
<output name="two" type="object" from="\${steps.two.data}">T.</output></outputs>`,
  );
  const ran = await here.json(['run', 'parent']);
  const files = [{ path: 'marked.txt', change: 'added' }];
  expect(ran['error']).toBe(undefined);
  expect(ran).toMatchObject({
    success: true,
    outputs: { one: { changes: { status: 'patch', files } }, two: { status: 'completed' } },
  });
  const texts = JSON.stringify(
    (ran['children'] as readonly string[]).map((id) =>
      here.get(`.ai/state/threads/${id}/transcript.jsonl`),
    ),
  );
  expect(texts).toMatch(/\.ai\/state\/worktrees\/[0-9a-f-]{36}/);
  // the second child has no worktree
  expect([here.get('marked.txt'), here.worktrees()]).toEqual(['by the server\n', []]);
});

const isolated = (name: string, child: string, result = 'merge'): string =>
  step(
    name,
    `item_type="directive" item_id="${child}" isolation="worktree" isolation_result="${result}"`,
  );
const write = (name: string, file: string, content: string): string =>
  step(name, 'item_type="tool" item_id="rye/file-system/write"', { path: file, content });

it('a worktree in a worktree merges into it, and reaches the project with it', async () => {
  const here = await repository();
  await here.steps('inner', write('deep', 'deep.txt', 'deep'));
  await here.steps(
    'outer',
    write('early', 'early.txt', 'early') + isolated('in', 'inner') + bash('see', 'cat deep.txt'),
  );
  await here.steps('kept', isolated('out', 'outer', 'patch'));
  const kept = await here.json(['run', 'kept', '--thread-id', 'kept']);
  expect(kept).toMatchObject({ success: true });
  expect([here.get('early.txt'), here.get('deep.txt'), here.worktrees()]).toEqual([null, null, []]);
  // what was merged into the worktree of a child has not changed the project, even if a person changed the file since
  here.put('deep.txt', 'mine');
  expect(await here.json(['threads', 'undo', 'kept'])).toMatchObject({ success: true, files: [] });
  rmSync(path.join(here.project, 'deep.txt'));
  await here.steps('merged', isolated('out', 'outer'));
  const merged = await here.json(['run', 'merged', '--thread-id', 'merged']);
  expect(merged).toMatchObject({ success: true });
  expect([here.get('early.txt'), here.get('deep.txt')]).toEqual(['early', 'deep']);
  const undone = await here.json(['threads', 'undo', 'merged']);
  expect(undone['files']).toMatchObject([{ path: 'deep.txt' }, { path: 'early.txt' }]);
  expect([here.get('early.txt'), here.get('deep.txt'), here.worktrees()]).toEqual([null, null, []]);
});

it('a worktree holds what the background children of its thread do there', async () => {
  const here = await repository();
  await here.steps('late', bash('late', 'sleep 2; echo late &gt; late.txt'));
  await here.steps(
    'outer',
    step('go', 'item_type="directive" item_id="late" async="true"') +
      write('early', 'early.txt', 'early'),
  );
  const ran = await here.json(['run', 'outer', '--isolation', 'worktree']);
  expect(ran).toMatchObject({
    success: true,
    changes: { status: 'patch', files: [{ path: 'early.txt' }, { path: 'late.txt' }] },
  });
  expect(here.worktrees()).toEqual([]);
});

it.runIf(await sandboxWorks())(
  'the sandbox of an isolated thread confines commands to its worktree',
  async () => {
    const here = await repository();
    here.put(
      '.ai/config/agent/resilience.yaml',
      JSON.stringify({ tools: { sandbox: 'required' } }),
    );
    expect(await here.rye(['sign', 'config', 'agent/resilience'])).toMatchObject({ code: 0 });
    await here.steps(
      'child',
      bash(
        'try',
        `echo in &gt; in.txt; git status --porcelain; (echo out &gt; ${here.project}/out.txt) 2&gt;&amp;1; true`,
      ),
    );
    const ran = await here.json(['run', 'child', '--isolation', 'worktree']);
    expect([ran['error'], ran['changes']]).toMatchObject([
      undefined,
      { files: [{ path: 'in.txt' }] },
    ]);
    expect([here.get('out.txt'), here.get('in.txt'), here.worktrees()]).toEqual([null, null, []]);
    expect(ran['result']).toContain('Read-only file system');
  },
);

// Requirement: isolation-keeps-every-byte
it.each([
  ['an ignored file', 'echo x &gt; a.log', ['a.log'], []],
  ['an ignored folder', 'mkdir -p dist/in; echo x &gt; dist/in/x', ['dist/'], []],
  ['a file in an empty submodule', 'echo x &gt; sub/new.txt', ['sub/'], []],
  ['a nested repository', 'git init -q nest; echo x &gt; nest/x', ['nest/'], []],
  [
    'a nested repository with a commit',
    'git init -q in/nest; cd in/nest; echo x &gt; x; git add x; git -c user.name=t -c user.email=t@e commit -qm x; echo y &gt; ../y',
    ['in/nest/'],
    ['in/y'],
  ],
  ['beside a change', 'echo x &gt; a.log; echo b &gt; b.txt', ['a.log'], ['b.txt']],
  ['only an empty folder', 'mkdir empty', undefined, []],
  ['only a change', 'echo b &gt; b.txt', undefined, ['b.txt']],
])('a worktree keeps what no patch has: %s', async (_, command, leftOut, files) => {
  const here = await repository();
  here.put('.gitignore', '*.log\ndist/\n');
  await here.steps('work', bash('work', command));
  here.git('add', '--all');
  const commit = here.git('rev-parse', 'HEAD').trim();
  here.git('update-index', '--add', '--cacheinfo', `160000,${commit},sub`);
  here.git('commit', '--quiet', '-m', 'second');
  const { stdout, stderr } = await here.rye(['run', 'work', '--isolation', 'worktree', '--json']);
  const { changes } = JSON.parse(stdout) as {
    changes: { files: { path: string }[]; left_out?: { paths: string[]; worktree: string } };
  };
  expect(changes.files.map(({ path: file }) => file)).toEqual(files);
  expect(changes.left_out?.paths).toEqual(leftOut);
  if (changes.left_out) {
    const { paths, worktree } = changes.left_out;
    expect(stderr).toContain(`the patch does not have ${paths.join(', ')}, kept in ${worktree}`);
    for (const left of paths)
      expect(existsSync(path.join(here.project, worktree, left))).toBe(true);
    await here.rye(['threads', 'gc']);
    expect(existsSync(path.join(here.project, worktree))).toBe(true);
  } else expect(here.worktrees()).toEqual([]);
});

it('a cancelled child keeps what it did as a patch, and leaves no worktree', async () => {
  const here = await repository();
  await here.steps('child', `${write('early', 'early.txt', 'early')}${bash('long', 'sleep 600')}`);
  const started = await here.json(['run', 'child', '--isolation', 'worktree', '--async']);
  const id = String(started['thread_id']);
  const folder = path.join(here.project, '.ai/state/worktrees');
  await expect
    .poll(() => here.worktrees().some((name) => existsSync(path.join(folder, name, 'early.txt'))), {
      timeout: 60_000,
    })
    .toBe(true);
  await here.rye(['threads', 'cancel', id]);
  expect(await here.json(['threads', 'wait', id])).toMatchObject({
    threads: [
      { status: 'cancelled', changes: { status: 'patch', files: [{ path: 'early.txt' }] } },
    ],
  });
  await expect.poll(here.worktrees, { timeout: 60_000 }).toEqual([]);
  expect(here.get('early.txt')).toBe(null);
});
