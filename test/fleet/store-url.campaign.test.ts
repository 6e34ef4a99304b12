import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { createServer, type Socket } from 'node:net';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { type PostgresServer, startPostgres } from '../helpers/postgres.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer, text } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

let server: PostgresServer;
let count = 0;

beforeAll(async () => {
  server = await startPostgres(['-c', 'fsync=off']);
});

afterAll(async () => {
  await server.stop();
});

const PASSWORD = 'open-sesame-71';

/** Writes and signs the configuration file that names a store. */
async function useStore(here: Workspace, url: string): Promise<void> {
  mkdirSync(path.join(here.project, '.ai', 'config'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai', 'config', 'store.yaml'), `url: ${url}\n`);
  expect(await here.rye(['sign', 'config', 'store'])).toMatchObject({ code: 0 });
}

/** A project whose threads are in a new database; the URL has a password that the server does not ask for. */
async function project(): Promise<Workspace> {
  const here = await workspace();
  count += 1;
  const url = await server.url(`wired${process.pid}_${count}`);
  await useStore(here, url.replace('rye@', `rye:${PASSWORD}@`));
  return here;
}

const MODEL = `<directive name="story" version="1.0.0">
  <metadata>
    <description>Tell a story.</description>
    <category></category>
    <author>me</author>
    <model tier="general" provider="anthropic" />
    <limits turns="3" spend="0.50" />
    <permissions><execute><tool>rye/core/greet</tool></execute></permissions>
  </metadata>
</directive>
`;

/** Writes a directive for a model, and returns the environment in which it talks to a scripted one. */
async function story(here: Workspace, script: Parameters<typeof startWireServer>[0]) {
  const model = await startWireServer(script);
  onTestFinished(async () => await model.close());
  mkdirSync(path.join(here.project, '.ai', 'directives'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai', 'directives', 'story.md'),
    `# Story\n\n\`\`\`xml\n${MODEL}\`\`\`\n\nTell a story.\n`,
  );
  expect(await here.rye(['sign', 'directive', 'story'])).toMatchObject({ code: 0 });
  return { ANTHROPIC_API_KEY: 'sk-ant-store-0123456789', ANTHROPIC_BASE_URL: model.url };
}

it('every reading command finds the thread of a run in the database, and the project keeps no database itself', async () => {
  const here = await project();
  const run = await here.json(['run', 'hello', '--input', 'who=Ada']);
  expect(run).toMatchObject({ success: true, status: 'completed' });
  const id = String(run['thread_id']);

  const list = await here.json(['threads', 'list']);
  expect(list['threads']).toMatchObject([{ thread_id: id, status: 'completed' }]);
  expect((await here.rye(['threads', 'list'])).stdout).toContain(id);
  expect(await here.json(['threads', 'show', id])).toMatchObject({ success: true });
  const logs = await here.rye(['threads', 'logs', id]);
  expect(logs).toMatchObject({ code: 0 });
  expect(logs.stdout).toContain('Hello, Ada!');
  expect(await here.json(['threads', 'wait', id])).toMatchObject({ success: true });
  expect(await here.json(['verify', 'thread', id])).toMatchObject({ success: true });
  const search = await here.json(['search', 'all', 'Ada']);
  expect(JSON.stringify(search)).toContain(id);
  expect((await here.json(['threads', 'cancel', id]))['success']).toBeTypeOf('boolean');

  const state = path.join(here.project, '.ai', 'state', 'threads');
  expect(existsSync(path.join(state, 'registry.db'))).toBe(false);
  expect(existsSync(path.join(state, 'budget_ledger.db'))).toBe(false);
  expect(existsSync(path.join(state, id, 'transcript.jsonl'))).toBe(false);
});

it('a run that was killed is resumed from its log in the database', async () => {
  const here = await project();
  const never = new Promise<never>(() => undefined);
  let asked = 0;
  const env = await story(here, () => {
    asked += 1;
    return asked === 1
      ? { steps: [text('Once '), { kind: 'wait', until: never }] }
      : { steps: [text('Once upon a time.')] };
  });
  const process = await start(here, ['run', 'story', '--thread-id', 'tale'], env);
  await until(() => asked === 1);
  process.kill('SIGKILL');
  await once(process, 'exit');

  // the killed call is booked at its worst case
  const resumed = await here.rye(['threads', 'resume', 'tale', '--limit', 'spend=0.5', '--json'], {
    env,
  });
  expect(JSON.parse(resumed.stdout)).toMatchObject({ success: true, thread_id: 'tale' });
  expect(await here.json(['verify', 'thread', 'tale'])).toMatchObject({ success: true });
});

it('the password is in no output, no file of a thread and no environment of a tool', async () => {
  const here = await project();
  const outputs = [
    await here.rye(['config', 'show']),
    await here.rye(['config', 'get', 'store.url', '--json']),
    await here.rye(['run', 'hello', '--input', 'who=Ada', '--thread-id', 'quiet']),
    await here.rye(['doctor']),
    await here.rye(['threads', 'list', '--verbose']),
  ];
  for (const { stdout, stderr } of outputs) expect(stdout + stderr).not.toContain(PASSWORD);
  expect(outputs[1]?.stdout).toContain('rye:***@127.0.0.1');
  const logs = await here.rye(['threads', 'logs', 'quiet', '--json']);
  expect(logs.stdout).not.toContain(PASSWORD);
  const document = path.join(here.project, '.ai/state/threads/quiet/thread.json');
  expect(readFileSync(document, 'utf8')).not.toContain(PASSWORD);

  const argument = `store.url=postgres://rye:${PASSWORD}@127.0.0.1:1/x`;
  const refused = await here.rye(['-c', argument, 'threads', 'list']);
  expect(refused).toMatchObject({ code: 2 });
  expect(refused.stdout + refused.stderr).not.toContain(PASSWORD);
});

it.each([
  ['refuses connections', false, ['threads', 'list']],
  ['refuses connections', false, ['run', 'hello']],
  ['never answers', true, ['run', 'hello']],
] as const)(
  'a server that %s (open: %s) ends `rye %j` with a code and the next command',
  async (_name, isOpen, words) => {
    const here = await workspace();
    await useStore(here, `postgres://rye:${PASSWORD}@127.0.0.1:${await deafPort(isOpen)}/none`);
    const { code, stdout, stderr } = await here.rye([...words, '--json']);
    expect(code).toBe(1);
    expect(JSON.parse(stdout)).toMatchObject({
      error: { code: 'fleet_unavailable', hint: expect.stringContaining('rye config get') },
    });
    expect(stdout + stderr).not.toContain(PASSWORD);
  },
);

it('refuses a store that the project names without a trusted signature', async () => {
  const here = await workspace();
  const file = path.join(here.project, '.ai', 'config', 'store.yaml');
  mkdirSync(path.dirname(file), { recursive: true });
  writeFileSync(file, 'url: postgres://rye@127.0.0.1:1/none\n');
  const { code, stderr } = await here.rye(['threads', 'list']);
  expect({ code, stderr }).toMatchObject({
    code: 3,
    stderr: expect.stringContaining('rye sign config store'),
  });
});

it('names a URL that is none without repeating it', async () => {
  const here = await workspace();
  await useStore(here, `mysql://root:${PASSWORD}@127.0.0.1/x`);
  const { code, stdout, stderr } = await here.rye(['threads', 'list']);
  expect(code).toBe(2);
  expect(stderr).toContain('postgres://USER@HOST');
  expect(stdout + stderr).not.toContain(PASSWORD);
});

async function start(
  here: Workspace,
  args: readonly string[],
  env: Readonly<Record<string, string>>,
): Promise<ChildProcess> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const child = spawn(process.execPath, [program, ...args], {
    cwd: here.project,
    env: { PATH: process.env['PATH'], HOME: here.home, ...env },
    stdio: 'ignore',
  });
  onTestFinished(() => void child.kill('SIGKILL'));
  return child;
}

async function until(condition: () => boolean): Promise<void> {
  while (!condition()) await delay(20);
}

/** The port of a server that accepts and never answers, or of none. */
async function deafPort(isOpen: boolean): Promise<number> {
  const sockets = new Set<Socket>();
  const listener = createServer((socket) => {
    sockets.add(socket.on('error', () => undefined));
  });
  listener.listen(0, '127.0.0.1');
  await once(listener, 'listening');
  const address = listener.address();
  if (address === null || typeof address === 'string') throw new Error('no port');
  const close = async (): Promise<void> => {
    listener.close();
    for (const socket of sockets) socket.destroy();
    await once(listener, 'close');
  };
  if (isOpen) onTestFinished(close);
  else await close();
  return address.port;
}
