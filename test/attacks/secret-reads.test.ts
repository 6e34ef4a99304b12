// Requirement: secrets-are-not-read
import { execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import { createBuiltinTools } from '../../src/kernel/tools/builtin/builtin-tools.ts';
import { deniesRead } from '../../src/kernel/tools/deny-read.ts';
import { runCli } from '../helpers/run-cli.ts';
import { sandboxWorks } from '../helpers/sandbox.ts';
import { calls, reply, toolUse } from '../helpers/wire-server.ts';
import { directive, inLab, type Lab, shellTool } from './lab.ts';

const SECRET = 'swordfish-1234';

/** A project and a home that have secrets in the usual places. */
function plant({ project, home, env }: Lab): void {
  const put = (folder: string, name: string): void => {
    mkdirSync(join(folder, name, '..'), { recursive: true });
    writeFileSync(join(folder, name), `key=${SECRET}\n`);
  };
  for (const name of [
    '.env',
    '.env.local',
    '.ENV.production',
    'app/.env',
    'deploy.pem',
    'keys/id_ed25519',
    'server.key',
    'own/token.txt',
    '.git/config',
  ]) {
    put(project, name);
  }
  writeFileSync(join(project, '.env.example'), 'key=example\n');
  for (const name of [
    '.ssh/config',
    '.aws/credentials',
    '.netrc',
    '.npmrc',
    '.docker/config.json',
    '.config/gh/hosts.yml',
  ]) {
    put(home, name);
  }
  symlinkSync('.env', join(project, 'innocent.txt'));
  symlinkSync('app', join(project, 'src'));
  env['HOME'] = home;
}

const READS: readonly (readonly [tool: string, ...params: string[]])[] = [
  ['read', 'path=.env'],
  ['read', 'path=./.env'],
  ['read', 'path=.env/'],
  ['read', 'path=app/../.env'],
  ['read', 'path=innocent.txt'],
  ['read', 'path=src/.env'],
  ['read', 'path=.ENV.production'],
  ['read', 'path=.env.local'],
  ['read', 'path=deploy.pem'],
  ['read', 'path=keys/id_ed25519'],
  ['read', 'path=server.key'],
  ['read', 'path=own/token.txt'],
  ['read', 'path=.git/config'],
  ['read', 'path=HOME/.ssh/config'],
  ['read', 'path=HOME/.aws/credentials'],
  ['read', 'path=HOME/.netrc'],
  ['read', 'path=HOME/.npmrc'],
  ['read', 'path=HOME/.docker/config.json'],
  ['read', 'path=HOME/.config/gh/hosts.yml'],
  ['grep', 'pattern=key'],
  ['grep', 'pattern=key', 'path=.env'],
  ['grep', 'pattern=key', 'path=app'],
  ['grep', 'pattern=key', 'path=own'],
  ['grep', 'pattern=key', 'glob=.env*', 'include_ignored=true'],
  ['grep', 'pattern=swordfish', 'output_mode=files'],
  ['glob', 'pattern=**/.env*'],
  ['ls', 'path=own'],
  ['ls', 'path=HOME/.ssh'],
  ['edit', 'path=.env', 'old_string=key=s', 'new_string=x'],
  ['write', 'path=.env', 'content=x'],
];

it('no file tool reads what tools.deny_read covers, by any path, link or search', async () => {
  await inLab(async (lab) => {
    plant(lab);
    const tools = createBuiltinTools({
      env: lab.env,
      allowedPaths: [lab.home],
      denies: deniesRead(['own/'], [lab.home]),
    });
    const outputOf = async (name: string, input: JsonObject): Promise<string> => {
      const tool = tools.find(({ id }) => id === `rye/file-system/${name}`);
      const context = {
        projectPath: lab.project,
        threadId: 't',
        callId: 'c',
        signal: new AbortController().signal,
        progress: () => {},
      };
      return JSON.stringify(await tool?.execute(input, context));
    };
    for (const [tool, ...params] of READS) {
      const members = params.map((one) => one.replace('HOME', lab.home).split(/=(.*)/s));
      const input = Object.fromEntries(
        members.map(([name, value]) => [name, value === 'true' || value]),
      );
      const output = await outputOf(tool, input as JsonObject);
      expect(output, params.join(' ')).not.toContain(SECRET);
      if (!output.includes('path_denied')) expect(output).not.toMatch(/\.env["':]|token\.txt/);
    }
    expect(await outputOf('read', { path: '.env.example' })).toContain('key=example');
    expect(await outputOf('grep', { pattern: 'key' })).toContain('.env.example');
  });
});

it('a signed exception opens what the defaults cover', async () => {
  await inLab(async (lab) => {
    plant(lab);
    lab.signed(
      'config/agent/resilience.yaml',
      JSON.stringify({ tools: { deny_read: ['!deploy.pem'] } }),
    );
    const read = async (path: string) =>
      await runCli(['execute', 'tool', 'rye/file-system/read', '--param', `path=${path}`], {
        cwd: lab.project,
        env: lab.env,
      });
    const opened = await read('deploy.pem');
    expect(opened.stdout, opened.stderr).toContain(SECRET);
    expect((await read('.env')).stderr).toContain('tools.deny_read');
    lab.write('config/agent/resilience.yaml', JSON.stringify({ tools: { deny_read: ['!.env'] } }));
    expect((await read('.env')).stdout).not.toContain(SECRET);
  });
});

it('a file that the command line names does not reach a model from there', async () => {
  await inLab(async (lab) => {
    plant(lab);
    writeFileSync(join(lab.home, 'private.txt'), SECRET);
    symlinkSync(join(lab.home, 'private.txt'), join(lab.project, 'README.md'));
    symlinkSync(lab.home, join(lab.project, 'docs'));
    execFileSync('mkfifo', [join(lab.project, 'pipe')]);
    const bodies: string[] = [];
    await lab.model(({ body }) => {
      bodies.push(JSON.stringify(body));
      return reply('done');
    });
    for (const [args, reason] of [
      [['ask', 'Q', 'README.md'], 'outside the project'],
      [['ask', 'Q', 'docs/private.txt'], 'outside the project'],
      [['ask', 'Q', '.env'], 'tools.deny_read'],
      [['ask', 'Q', 'innocent.txt'], 'tools.deny_read'],
      [['ask', 'Q', 'pipe'], 'named pipe'],
      [['ask', 'Q', join(lab.home, '.ssh/config')], 'tools.deny_read'],
      [['run', 'hello', '--input', 'who=@README.md'], 'outside the project'],
      [['run', 'hello', '--input', 'who=@.env'], 'tools.deny_read'],
      [['run', 'hello', '--inputs', '@deploy.pem'], 'tools.deny_read'],
      [['chat', 'hello', '--input', 'who=@.env'], 'tools.deny_read'],
    ] as const) {
      const { code, stdout, stderr } = await runCli([...args], { cwd: lab.project, env: lab.env });
      expect(stderr, `${args.join(' ')} ${stdout}`).toContain(reason);
      expect(code, args.join(' ')).not.toBe(0);
    }
    expect(bodies.join('')).not.toContain(SECRET);
  });
}, 60_000);

it('a pattern of the settings holds for files that the command line names, and an exception opens one', async () => {
  await inLab(async (lab) => {
    plant(lab);
    const settings = JSON.stringify({ tools: { deny_read: ['own/', '!deploy.pem'] } });
    lab.signed('config/agent/resilience.yaml', settings);
    const bodies: string[] = [];
    await lab.model(({ body }) => {
      bodies.push(JSON.stringify(body));
      return reply('done');
    });
    const cli = async (...args: readonly string[]) =>
      await runCli(args, { cwd: lab.project, env: lab.env });
    symlinkSync('own/token.txt', join(lab.project, 'plain.txt'));
    for (const args of [
      ['ask', 'Q', 'own/token.txt'],
      ['ask', 'Q', 'plain.txt'],
      ['run', 'hello', '--input', 'who=@./own/../own/token.txt'],
      ['run', 'hello', '--inputs', '@own/token.txt'],
      ['chat', 'hello', '--input', 'who=@own/token.txt'],
      ['run', '-C', lab.project, 'hello', '--input', 'who=@own/token.txt'],
    ]) {
      const { code, stdout, stderr } = await cli(...args);
      expect(stderr, `${args.join(' ')} ${stdout}`).toContain('tools.deny_read');
      expect(code).not.toBe(0);
    }
    expect(bodies.join('')).not.toContain(SECRET);
    const opened = await cli('ask', 'Q', 'deploy.pem');
    expect(opened.code, opened.stderr).toBe(0);
    expect(bodies.join('')).toContain(SECRET);
    const unsigned = JSON.stringify({ tools: { deny_read: ['!.env'] } });
    lab.write('config/agent/resilience.yaml', unsigned);
    expect((await cli('ask', 'Q', '.env')).stderr).toContain('tools.deny_read');
  });
}, 60_000);

it('a skill is not read and run with files that it covers', async () => {
  await inLab(async (lab) => {
    const settings = JSON.stringify({ tools: { deny_read: ['inner/'] } });
    lab.signed('config/agent/resilience.yaml', settings);
    lab.write('skills/x/SKILL.md', '---\nname: x\ndescription: A skill.\n---\nRead a.txt.\n');
    for (const name of ['key.pem', '.env', 'inner/a.txt']) lab.write(`skills/x/${name}`, SECRET);
    lab.write('skills/x/a.txt', 'plain');
    lab.write(
      'skills/x/all.sh',
      'cat "$(dirname "$0")"/key.pem "$(dirname "$0")"/inner/a.txt; ls -a "$(dirname "$0")"',
    );
    symlinkSync('key.pem', join(lab.project, '.ai/skills/x/b.txt'));
    await lab.sign('skill', 'x');
    const permissions =
      '<fetch><skill>x</skill></fetch><execute><skill>x</skill></execute><acknowledge risk="elevated">a test</acknowledge>';
    lab.signed('directives/job.md', directive('job', { permissions }));
    const read = (path: string) => toolUse('skills_read', { name: 'x', path }, path);
    const bodies: string[] = [];
    const script = [
      calls(toolUse('skills_use', { name: 'x' })),
      calls(...['key.pem', '.env', 'inner/a.txt', 'b.txt', './key.pem', 'a.txt'].map(read)),
      calls(toolUse('skills_run_script', { name: 'x', path: 'all.sh' })),
    ];
    await lab.model(({ body }) => {
      bodies.push(JSON.stringify(body));
      return script.shift() ?? reply('done');
    });
    await lab.run('job');
    const seen = bodies.join('');
    expect(seen).toContain('plain');
    expect(seen).toContain('all.sh');
    expect(seen).toContain('tools.deny_read covers it');
    expect(seen).not.toContain(SECRET);
    expect(bodies[1]).not.toContain('key.pem');
  });
});

it.runIf(await sandboxWorks())(
  'a confined command does not read it',
  async () => {
    await inLab(async (lab) => {
      plant(lab);
      lab.signed(
        'config/agent/resilience.yaml',
        JSON.stringify({ tools: { sandbox: 'required' } }),
      );
      const command = 'cat .env app/.env innocent.txt deploy.pem keys/* .env.example; true';
      const { stdout, stderr } = await runCli(
        [
          'execute',
          'tool',
          'rye/bash',
          '--param',
          `command=${command}`,
          '--acknowledge',
          'elevated',
        ],
        { cwd: lab.project, env: lab.env },
      );
      expect(`${stdout}${stderr}`).not.toContain(SECRET);
      expect(stdout, stderr).toContain('key=example');
    });
  },
  60_000,
);

it('no item that tools.deny_read covers is fetched or found by a model', async () => {
  await inLab(async (lab) => {
    const note = (name: string, words: string) =>
      `---\nname: ${name}\ntitle: ${words}\nentry_type: reference\ncategory: ${name.includes('/') ? name.slice(0, name.lastIndexOf('/')) : ''}\nversion: 1.0.0\n---\n\nzebra ${words}\n`;
    const notes = { 'own/token': `own ${SECRET}`, plain: 'plain words' };
    for (const [name, words] of Object.entries(notes))
      lab.signed(`knowledge/${name}.md`, note(name.split('/').at(-1) ?? '', words));
    const deny = ['.ai/knowledge/own/', '.ai/tools/secret/**'];
    lab.signed('config/agent/resilience.yaml', JSON.stringify({ tools: { deny_read: deny } }));
    mkdirSync(join(lab.project, '.ai/tools/secret'), { recursive: true });
    lab.signed('tools/secret/key.sh', shellTool(`echo zebra ${SECRET}`));
    lab.signed(
      'directives/reader.md',
      directive('reader', {
        limits: 'turns="4" spend="0.10"',
        permissions: '<execute><tool>rye/search</tool></execute><fetch>*</fetch>',
      }),
    );
    const bodies: string[] = [];
    await lab.model(({ body }) => {
      bodies.push(JSON.stringify(body));
      if (bodies.length > 1) return reply('done');
      return calls(
        toolUse('rye_fetch', { item_type: 'knowledge', item_id: 'own/token' }),
        toolUse('rye_fetch', { item_type: 'tool', item_id: 'secret/key' }),
        toolUse('rye_fetch', { item_type: 'knowledge', item_id: 'plain' }),
        toolUse('rye_search', { query: 'zebra' }),
        toolUse('rye_search', { query: 'swordfish' }),
      );
    });
    const result = await lab.run('reader');
    expect(result.status, JSON.stringify(result)).toBe('completed');
    const seen = bodies.slice(1).join('\n');
    expect(seen).toContain('plain words');
    expect(seen).toContain('tools.deny_read');
    expect(seen).not.toContain(SECRET);
    expect(seen).not.toContain('own/token\\\\\\"');
  });
});
