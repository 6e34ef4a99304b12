import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { expect, onTestFinished } from 'vitest';
import { readToken, tokenText } from '../../src/features/fleet/token.ts';
import type { PostgresServer } from '../helpers/postgres.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { cliPackage } from '../helpers/run-cli.ts';
import { startWireServer } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

let count = 0;

/** A worker in a separate process. */
export interface RunningWorker {
  readonly process: ChildProcess;
  /** The home of its user. */
  readonly home: string;
  /** Returns the text that it printed so far. */
  output(): string;
  /** Its ID in the fleet, once it is printed. */
  id(): Promise<string>;
  /** Kills the worker, not the processes of its legs. */
  kill(): Promise<void>;
  /** Sends SIGTERM and waits for its end; returns the exit status. */
  leave(): Promise<number | null>;
}

/** A fleet of a person on one machine, with its database. */
export interface FleetLab {
  readonly here: Workspace;
  readonly sql: Client;
  readonly url: string;
  /** Environment of all commands and workers. */
  readonly env: Record<string, string>;
  /** Starts a worker with a new token in an empty folder. */
  worker(options?: WorkerStart): Promise<RunningWorker>;
  /** Waits until a query gives true in its first column. */
  until(text: string, values?: readonly unknown[]): Promise<void>;
}

interface WorkerStart {
  readonly label?: string;
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** Makes another address of the store, such as one by way of a proxy. */
  readonly urlOf?: (url: string) => string;
  /** True: its token is one of an older version, without the key that secret inputs are sealed to. */
  readonly isOlder?: boolean;
  /** False: a worker that trusts no key of a person. */
  readonly trusts?: boolean;
  /** The folder of another build of the program. */
  readonly build?: string;
}

const LIMIT_MS = 60_000;

/** A {@link fleetLab} whose workers ask a scripted model. */
export async function modelledLab(
  server: PostgresServer,
  script: Parameters<typeof startWireServer>[0],
): Promise<FleetLab> {
  const model = await startWireServer(script);
  onTestFinished(async () => await model.close());
  return await fleetLab(server, {
    ANTHROPIC_API_KEY: 'sk-ant-fleet-0123456789',
    ANTHROPIC_BASE_URL: model.url,
  });
}

/** Makes a fleet with a new database on a server, through the built program. */
export async function fleetLab(
  server: PostgresServer,
  env: Record<string, string> = {},
): Promise<FleetLab> {
  const here = await workspace();
  // the tools of these tests write outside of their project, which a worker makes
  const configuration = path.join(here.home, '.ai', 'config', 'agent');
  mkdirSync(configuration, { recursive: true });
  writeFileSync(path.join(configuration, 'resilience.yaml'), 'tools: {sandbox: off}\n');
  count += 1;
  const url = await server.url(`fleet${process.pid}_${count}`);
  const made = await here.rye(['fleet', 'init', '--database', url]);
  expect(made).toMatchObject({ code: 0 });
  const sql = new Client({ connectionString: url, options: '-c search_path=rye' });
  sql.on('error', () => undefined);
  await sql.connect();
  onTestFinished(async () => await sql.end());
  const { stdout: pem } = await here.rye(['keys', 'export']);
  const printed: (() => string)[] = [];
  const lab: FleetLab = {
    here,
    sql,
    url,
    env,
    worker: async (options) => {
      const worker = await startWorker(lab, pem, options);
      printed.push(worker.output);
      return worker;
    },
    until: async (text, values = []) => {
      const end = Date.now() + LIMIT_MS;
      for (;;) {
        const { rows } = await sql.query(text, [...values]);
        if (Object.values((rows[0] as object | undefined) ?? {})[0] === true) return;
        if (Date.now() > end)
          throw new Error(`never true: ${text}\n${await stateOf(sql, printed)}`);
        await delay(20);
      }
    },
  };
  return lab;
}

/** Returns the rows and outputs that explain why a fleet does not come to its end. */
async function stateOf(sql: Client, printed: readonly (() => string)[]): Promise<string> {
  const { rows } = await sql.query('SELECT thread_id, status, epoch, worker, error FROM threads');
  return [...rows.map((row) => JSON.stringify(row)), ...printed.map((output) => output())].join(
    '\n',
  );
}

/** Starts a worker with a token of `here`, that trusts the key of a person in PEM form. */
export async function startWorker(
  { here, env }: Pick<FleetLab, 'here' | 'env'>,
  pem: string,
  {
    label = 'w',
    args = [],
    env: more = {},
    urlOf = (url) => url,
    isOlder = false,
    trusts = true,
    build,
  }: WorkerStart = {},
): Promise<RunningWorker> {
  const root = mkdtempSync(path.join(tmpdir(), 'rye-worker-'));
  onTestFinished(() => removeFolder(root));
  const folder = path.join(root, 'empty');
  const home = path.join(root, 'home');
  for (const one of [folder, home]) mkdirSync(one);
  const { stdout: token } = await here.rye(['fleet', 'enroll', '--label', label]);
  const { pool = [], ...read } = readToken(token);
  const given = { ...read, url: urlOf(read.url), ...(isOlder ? {} : { pool }) };
  writeFileSync(path.join(root, 'token'), tokenText(given));
  writeFileSync(path.join(root, 'person.pem'), pem);
  const program = path.join(build ?? (await cliPackage()), 'bin', 'rye.js');
  const environment = { PATH: process.env['PATH'], HOME: home, ...env, ...more };
  const options = { cwd: folder, env: environment } as const;
  if (trusts) {
    const words = ['keys', 'trust', path.join(root, 'person.pem'), '--for', 'sign,approve', '-y'];
    const trusting = spawn(process.execPath, [program, ...words], { ...options, stdio: 'ignore' });
    await once(trusting, 'close');
    expect(trusting.exitCode).toBe(0);
  }
  const child = spawn(
    process.execPath,
    [
      program,
      'worker',
      '--token',
      path.join(root, 'token'),
      '-c',
      'resilience.tools.sandbox=off',
      ...args,
    ],
    { ...options, stdio: ['ignore', 'pipe', 'pipe'] },
  );
  let output = '';
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      output += text;
    });
  const closed = once(child, 'close');
  const end = async (signal: NodeJS.Signals): Promise<number | null> => {
    child.kill('SIGCONT');
    child.kill(signal);
    await closed;
    return child.exitCode;
  };
  onTestFinished(async () => {
    await end('SIGKILL');
  });
  return {
    process: child,
    home,
    output: () => output,
    id: async () => {
      const limit = Date.now() + LIMIT_MS;
      while (Date.now() < limit) {
        const id = /^worker (\S+)/m.exec(output)?.[1];
        if (id !== undefined) return id;
        if (child.exitCode !== null) break;
        await delay(20);
      }
      throw new Error(`the worker did not start: ${output}`);
    },
    kill: async () => {
      await end('SIGKILL');
    },
    leave: async () => await end('SIGTERM'),
  };
}

/** Writes and signs a directive for the scripted model; not `isSigned`: the caller signs several at once. */
export async function writeDirective(
  here: Workspace,
  id: string,
  { permissions = '', turns = 10, spend = '0.50', body = 'Do it.', isSigned = true } = {},
): Promise<void> {
  mkdirSync(path.join(here.project, '.ai', 'directives'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai', 'directives', `${id}.md`),
    `# ${id}

\`\`\`xml
<directive name="${id}" version="1.0.0">
  <metadata>
    <description>Test.</description>
    <category></category>
    <author>me</author>
    <model tier="general" provider="anthropic" />
    <limits turns="${turns}" spend="${spend}" />
    <permissions>${permissions}</permissions>
  </metadata>
</directive>
\`\`\`

${body}
`,
  );
  if (isSigned) expect(await here.rye(['sign', 'directive', id])).toMatchObject({ code: 0 });
}

/** Writes and signs a tool in shell. */
export async function writeTool(
  here: Workspace,
  id: string,
  script: string,
  { parameters = [] as readonly string[] } = {},
): Promise<void> {
  mkdirSync(path.join(here.project, '.ai', 'tools'), { recursive: true });
  writeFileSync(
    path.join(here.project, '.ai', 'tools', `${id}.sh`),
    `# rye:tool
# version: 1.0.0
# description: Test.
# parameters: [${parameters.map((name) => `{name: ${name}, type: string, required: true}`).join(', ')}]
# traits: {reads_only: false, network: false, timeout_seconds: 60, risk: safe}
# /rye:tool
${script}
`,
  );
  expect(await here.rye(['sign', 'tool', id])).toMatchObject({ code: 0 });
}
