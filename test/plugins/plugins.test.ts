import { createHash } from 'node:crypto';
import { readFileSync, rmSync } from 'node:fs';
import path from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { runCli } from '../helpers/run-cli.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';

let lab: Lab;
beforeEach(async () => {
  lab = await openLab();
});
afterEach(async () => {
  await lab.remove();
});

const MEMBERS = 'commands, events, gates, subscribers, tables, tools';

/** Writes a plug-in and the signed file that vouches for it. */
function install(source: string, { may = MEMBERS, sha256 = sha256Of(source), file = FILE } = {}) {
  lab.write(FILE.slice('.ai/'.length), source);
  lab.signed(
    'config/plugins.yaml',
    `plugins:\n  - file: ${file}\n    sha256: ${sha256}\n    may: [${may}]\n`,
  );
}

const FILE = '.ai/plugins/one.mjs';
const sha256Of = (text: string): string => createHash('sha256').update(text).digest('hex');
const returning = (members: string): string => `export const plugin = () => ({${members}});\n`;

const rye = async (...args: readonly string[]) =>
  await runCli(args, { cwd: lab.project, env: lab.env });

const WHOLE = `
export const plugin = ({ rows, projectPath }) => ({
  name: 'one',
  tables: ['CREATE TABLE seen (type TEXT)'],
  subscribers: [({ event_type: type }) => void rows.run('INSERT INTO seen VALUES (?)', type)],
  tools: {
    'one/place': {
      description: 'The place.',
      inputSchema: { type: 'object' },
      traits: { reads_only: true, network: false, risk: 'safe' },
      execute: () => projectPath,
    },
  },
  gates: [({ tool }) => (tool === 'rye/file-system/write' ? { block: 'one says no' } : undefined)],
  events: { 'one/note': ({ text }) => { if (text === 'bad') throw new Error('x'); return 'note: ' + text; } },
  commands: [
    {
      name: 'seen',
      summary: 'Print what was seen',
      run: async ({ words, json, print, rye }) => {
        if (words[0] === 'note') return void (await rye.trees.appendCustom(words[1], 'one/note', { text: words[2] }));
        const [{ n }] = rows.all('SELECT count(*) AS n FROM seen WHERE type = ?', words.at(-1));
        print(json ? JSON.stringify({ n }) : 'seen ' + n + ' with ' + words.join(' '));
        return n === 0 ? 4 : 0;
      },
    },
  ],
});
`;

async function runNote(answers: Parameters<Lab['model']>[0], tools = ['one/place']) {
  await lab.model(answers);
  lab.signed(
    'directives/note.md',
    directive('note', {
      limits: 'turns="4" spend="0.50"',
      permissions: `<execute>${['rye/file-system/write', ...tools].map((id) => `<tool>${id}</tool>`).join('')}</execute>`,
      body: 'Write notes.',
    }),
  );
  return await lab.run('note', { threadId: 'n' });
}

describe('a plug-in', () => {
  it('adds a tool, a gate, a table, a subscriber, a command and words, from signed configuration', async () => {
    install(WHOLE);
    const result = await runNote([
      calls(
        toolUse('one_place', {}, 'a'),
        toolUse('rye_file_system_write', { path: 'x.txt', content: 'x' }, 'b'),
      ),
      reply('Done.'),
    ]);
    expect(result.status).toBe('completed');
    const settled = (await lab.events('n')).flatMap((event) =>
      event.event_type === 'tool_settled' ? [JSON.stringify(event.payload)] : [],
    );
    expect(settled.find((one) => one.includes('one/place'))).toContain('"outcome":"ok"');
    expect(settled.find((one) => one.includes('file-system/write'))).toContain('blocked');
    expect(JSON.stringify(await lab.events('n'))).toContain('one says no');
    // an option that rye does not know is the command's
    expect(await rye('seen', '--type', 'tool_settled')).toMatchObject({
      stdout: 'seen 2 with --type tool_settled\n',
      code: 0,
    });
    expect(await rye('seen', 'nothing')).toMatchObject({ code: 4 });
    expect(JSON.parse((await rye('seen', 'tool_settled', '--json')).stdout)).toEqual({ n: 2 });
    await rye('seen', 'note', 'n', 'fine');
    await rye('seen', 'note', 'n', 'bad');
    const logs = (await rye('logs', 'n')).stdout;
    expect(logs).toContain('note: fine');
    // words that fail leave the entry as it is
    expect(logs).toContain('one/note text=bad');
    expect((await rye('threads', 'export', 'n', '--format', 'html')).stdout).toContain(
      'note: fine',
    );
    expect((await rye('list', 'tool')).stdout).toContain('one/place');
    expect((await rye('doctor')).stdout).toMatch(/plug-ins: one \(rye seen, .*gates.*\)/);
    expect((await rye('execute', 'tool', 'one/place')).stdout).toContain(lab.project);
  });

  it('shows its entries as lines, made safe, in the run, the log, the tree and the page', async () => {
    install(`
export const plugin = ({ projectPath }) => ({
  name: 'one',
  events: {
    'one/board': ({ rows }) => ['board of ' + rows.length, ...rows, '\\u001b[31m<b>red</b>'],
    'one/said': (details, content) => ['by ' + details.by + ':', content.toUpperCase()],
  },
  commands: [{
    name: 'board',
    summary: 'Put a board',
    run: async ({ words: [id, ...rows], rye }) => {
      await rye.trees.append(id, { type: 'custom', customType: 'one/board', data: { rows } });
      const said = { customType: 'one/said', content: 'hello', display: true, details: { by: 'Ada' } };
      await rye.trees.append(id, { type: 'custom_message', ...said });
    },
  }],
});
`);
    let go = (): void => undefined;
    const held = new Promise<void>((resolve) => {
      go = resolve;
    });
    const server = await lab.model([
      calls({ kind: 'wait', until: held }, toolUse('rye_file_system_ls', {}, 'a')),
      reply('Done.'),
    ]);
    const permissions = '<execute><tool>rye/file-system/*</tool></execute>';
    lab.signed('directives/note.md', directive('note', { permissions }));
    const running = rye('run', 'note', '--thread-id', 'n', '--model', 'claude-haiku-5-5');
    await server.request(0);
    expect((await rye('board', 'n', 'first', 'second')).code).toBe(0);
    go();
    const { code, stderr } = await running;
    expect(code).toBe(0);
    const outputs = [
      stderr,
      (await rye('logs', 'n')).stdout,
      (await rye('threads', 'entries', 'n', '--filter', 'all')).stdout,
      (await rye('threads', 'export', 'n', '--format', 'html')).stdout,
    ];
    for (const output of outputs) {
      expect(output).toContain('board of 2');
      expect(output).not.toContain('\u001B[31m');
    }
    const [run = '', log = '', , page = ''] = outputs;
    for (const text of ['first', 'second', 'by Ada:', 'HELLO']) expect(run).toContain(text);
    expect(log).toContain('by Ada:\u240aHELLO');
    expect(page).toContain('second');
    expect(page).not.toContain('<b>red');
    expect(page).toContain('HELLO');
  });

  it('is found by a child and by a resumed thread, which need no program', async () => {
    install(WHOLE);
    await runNote([calls(toolUse('one_place', {}, 'a')), reply('Done.'), reply('Again.')]);
    const { success } = await lab.rye().recovery.resume({ threadId: 'n', message: 'More.' });
    expect(success).toBe(true);
    const plan = JSON.parse(readFileSync(lab.path('state/threads/n/plan.json'), 'utf8')) as object;
    expect(plan).not.toHaveProperty('program');
  });

  it('has the rights of its user: ~/.ai/config/plugins.yaml counts in every project', async () => {
    lab.write('~/mine.mjs', returning("name: 'mine', commands: []"));
    const source = readFileSync(path.join(lab.home, 'mine.mjs'), 'utf8');
    lab.signed(
      '~/.ai/config/plugins.yaml',
      `plugins:\n  - {file: mine.mjs, sha256: ${sha256Of(source)}, may: [commands]}\n`,
    );
    expect((await lab.rye().plugins()).map(({ name }) => name)).toEqual(['mine']);
  });
});

const GATED = returning("name: 'one', gates: [() => { throw new Error('broken'); }]");

describe('no run starts with a plug-in that', () => {
  const refused = async (code: string, words: string | RegExp = ''): Promise<void> => {
    const error = await lab.run('hello', { inputs: { who: 'Ada' } }).then(
      (result) => result.error,
      (thrown: unknown) => thrown,
    );
    expect(error).toMatchObject({ code });
    expect((error as Error).message).toMatch(words);
  };

  it('no trusted key vouches for', async () => {
    lab.write('plugins/one.mjs', WHOLE);
    lab.write('config/plugins.yaml', 'plugins: []\n');
    await refused('unsigned', 'plug-ins are refused');
    lab.signed('config/plugins.yaml', 'plugins: []\n', lab.stranger);
    await refused('key_untrusted', 'plug-ins are refused');
  });

  it('was changed', async () => {
    install(WHOLE);
    lab.write('plugins/one.mjs', `${WHOLE}//`);
    await refused('plugin_modified', 'is not the one of plugins.yaml');
  });

  it.each([
    ['brings what is not granted', returning("name: 'one', tools: {}"), 'brings tools'],
    ['has an unknown member', returning("name: 'one', hooks: []"), 'unknown member "hooks"'],
    ['has a bad name', returning("name: '../one'"), 'its name is not'],
    ['returns nothing', 'export const plugin = () => undefined;', 'returns no object'],
    ['exports nothing', 'export const other = 1;', 'exports no function'],
    ['fails', 'throw new Error("boom");', 'boom'],
    ['fails in its function', 'export const plugin = () => { throw new Error("boom"); };', 'boom'],
    ['has a command that cannot run', returning("name: 'one', commands: [{ name: 'x' }]"), '"run"'],
    ['has tables that are no SQL', returning("name: 'one', tables: [1]"), 'SQL'],
    ['has a gate that is no list', returning("name: 'one', gates: () => ({})"), 'not a list'],
    ['has events that are no object', returning("name: 'one', events: []"), 'not an object'],
    [
      'inherits what is not granted',
      "class One { name = 'one'; get tools() { return {}; } } export const plugin = () => new One();",
      'brings tools',
    ],
    ['is no JavaScript', 'export const = 1;', 'cannot be used'],
    ['imports a file', "import './two.mjs';", 'two.mjs'],
    ['uses rows too early', 'export const plugin = ({ rows }) => rows.all("SELECT 1");', 'before'],
    ['words entries of others', returning("name: 'one', events: { 'two/x': () => '' }"), 'one/'],
  ])('%s', async (_, source, words) => {
    install(source, { may: 'commands, events, gates, tables' });
    await refused('plugin_invalid', words);
  });

  it('is gone, is a second of its name, or lies outside of the project', async () => {
    install(GATED);
    rmSync(lab.path('plugins/one.mjs'));
    await refused('plugin_invalid', 'no such file');
    install(GATED, { file: '../home/.ai/config/keys/signing/private_key.pem' });
    await refused('path_denied');
    const entry = `  - {file: ${FILE}, sha256: ${sha256Of(GATED)}, may: [gates]}\n`;
    lab.write('plugins/one.mjs', GATED);
    lab.signed('config/plugins.yaml', `plugins:\n${entry}${entry}`);
    await refused('plugin_invalid', 'another plug-in is called one');
  });

  it.each([
    ['plugins: 3', 'is not a list'],
    ['plugins: [{file: a.mjs, sha256: x, may: []}]', 'not the SHA-256'],
    [`plugins: [{file: a.mjs, sha256: ${'a'.repeat(64)}, may: [all]}]`, 'not one of commands'],
    [`plugins: [{file: a.mjs, sha256: ${'a'.repeat(64)}}]`, 'is missing'],
    ['plugin: []', 'plugin'],
  ])('%s names wrongly', async (text, words) => {
    lab.signed('config/plugins.yaml', `${text}\n`);
    await refused('config_invalid', words);
    const { stdout, code } = await rye('validate', 'config', 'plugins');
    expect([code, stdout]).toEqual([2, expect.stringContaining(words)]);
  });

  it('was signed for: another file, none, or one outside is refused when it is signed', async () => {
    for (const [entry, words] of [
      [{ sha256: 'a'.repeat(64) }, 'is not the one'],
      [{ file: '.ai/plugins/two.mjs' }, 'no such file'],
      [{ file: '../home/.ai/config/keys/signing/private_key.pem' }, 'leads out'],
    ] as const) {
      install(GATED, entry);
      for (const verb of ['validate', 'sign'] as const) {
        const { code, stdout, stderr } = await rye(verb, 'config', 'plugins');
        expect([verb, code === 0, stdout + stderr]).toEqual([
          verb,
          false,
          expect.stringContaining(words),
        ]);
      }
    }
  });

  it('an option names', async () => {
    await expect(
      lab.rye({ configOverrides: ['plugins.plugins=[]'] }).threads.execute({
        directiveId: 'hello',
        inputs: { who: 'Ada' },
      }),
    ).rejects.toMatchObject({ code: 'usage' });
  });
});

describe('a plug-in that cannot be used', () => {
  it('is loaded again by the same rye once it is corrected', async () => {
    const opened = lab.rye();
    install(returning("name: 'one', hooks: []"));
    await expect(opened.plugins()).rejects.toMatchObject({ code: 'plugin_invalid' });
    install(returning("name: 'one'"));
    expect(await opened.plugins()).toEqual([{ name: 'one' }]);
  });

  it('fails its command by name: tables with wrong SQL, a result that is no exit status', async () => {
    const commands = (run: string) =>
      `commands: [{ name: 'do', summary: '', run: async () => ${run} }]`;
    install(
      `export const plugin = ({ rows }) => ({ name: 'one', tables: ['CREATE'], ${commands("rows.all('SELECT 1')")} });`,
    );
    const broken = await rye('do');
    expect([broken.code, broken.stderr]).toEqual([2, expect.stringContaining('tables cannot be')]);
    for (const result of ["'x'", '900', '-1', '1.5', 'null']) {
      install(returning(`name: 'one', ${commands(result)}`));
      const { code, stderr } = await rye('do');
      expect([result, code, stderr]).toEqual([result, 2, expect.stringContaining('exit status')]);
    }
  });

  it('does not keep people from reading, listing, verifying and signing', async () => {
    await runNote([reply('Done.')], []);
    install(returning("name: 'one', hooks: []"));
    for (const args of [
      ['logs', 'n'],
      ['threads', 'show', 'n'],
      ['verify', 'thread', 'n'],
      ['list', 'tool'],
      ['sign', 'directive', 'note'],
      ['validate'],
    ]) {
      expect([args, (await rye(...args)).code]).toEqual([args, 0]);
    }
    expect((await rye('doctor')).stdout).toContain('unknown member "hooks"');
  });

  it('refuses the calls that its failing gate should judge', async () => {
    install(GATED);
    await runNote(
      [
        calls(toolUse('rye_file_system_write', { path: 'x.txt', content: 'x' }, 'a')),
        reply('Done.'),
      ],
      [],
    );
    expect(JSON.stringify(await lab.events('n'))).toContain('broken');
    expect(() => readFileSync(path.join(lab.project, 'x.txt'))).toThrow('ENOENT');
  });
});
