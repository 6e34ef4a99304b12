import { existsSync, mkdirSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { Client } from 'pg';
import { expect, onTestFinished } from 'vitest';
import type { PostgresServer } from '../helpers/postgres.ts';
import { calls, reply, startWireServer, toolUse } from '../helpers/wire-server.ts';
import { type Workspace, workspace } from '../helpers/workspace.ts';

let count = 0;

/** Writes and signs the configuration file that names a store. */
export async function useStore(here: Workspace, url: string): Promise<void> {
  mkdirSync(path.join(here.project, '.ai', 'config'), { recursive: true });
  writeFileSync(path.join(here.project, '.ai', 'config', 'store.yaml'), `url: ${url}\n`);
  expect(await here.rye(['sign', 'config', 'store'])).toMatchObject({ code: 0 });
}

/** A new database with a client. */
async function database(
  server: PostgresServer,
): Promise<{ readonly url: string; readonly sql: Client }> {
  count += 1;
  const url = await server.url(`machines${process.pid}_${count}`);
  const sql = new Client({ connectionString: `${url}?options=-c%20search_path%3Drye` });
  sql.on('error', () => undefined);
  await sql.connect();
  onTestFinished(async () => await sql.end());
  return { url, sql };
}

/** Makes `reader` trust what `writer` signs. */
export async function trust(reader: Workspace, writer: Workspace): Promise<void> {
  const { stdout: pem } = await writer.rye(['keys', 'export']);
  const file = path.join(reader.home, 'other.pem');
  writeFileSync(file, pem);
  const options = ['--owner', 'other', '--for', 'sign', '-y'];
  expect(await reader.rye(['keys', 'trust', file, ...options])).toMatchObject({ code: 0 });
}

/** Two people's machines with one store; the second one trusts the key of the first. */
export async function twoMachines(server: PostgresServer) {
  const { url, sql } = await database(server);
  const here = await workspace();
  const there = await workspace();
  for (const machine of [here, there]) await useStore(machine, url);
  await trust(there, here);
  return { here, there, sql, url };
}

const READER = `# Reader

\`\`\`xml
<directive name="reader" version="1.0.0">
  <metadata>
    <description>Count the lines.</description>
    <category></category>
    <author>me</author>
    <model tier="general" provider="anthropic" />
    <limits turns="5" spend="0.50" />
    <permissions><execute><tool>lines</tool></execute></permissions>
  </metadata>
</directive>
\`\`\`

Print the lines.
`;

const LINES = `# rye:tool
# version: 1.0.0
# description: Print many lines.
# traits: {reads_only: true, network: false, timeout_seconds: 60, risk: safe}
# /rye:tool
seq 1 20000
`;

/** Environment and arguments with which `run` of {@link readingThread} calls a scripted model. */
export interface Scripted {
  readonly env: Readonly<Record<string, string>>;
  readonly run: readonly string[];
}

/** Writes a directive whose model calls a tool with a result that is too large for the context: it becomes an artifact. */
export async function readingThread(here: Workspace): Promise<Scripted> {
  const read = calls(toolUse('lines', {}, 'toolu_large'));
  const model = await startWireServer([read, reply('It is large.'), reply('It still is.')]);
  onTestFinished(async () => await model.close());
  for (const folder of ['directives', 'tools'])
    mkdirSync(path.join(here.project, '.ai', folder), { recursive: true });
  writeFileSync(path.join(here.project, '.ai', 'directives', 'reader.md'), READER);
  writeFileSync(path.join(here.project, '.ai', 'tools', 'lines.sh'), LINES);
  expect(await here.rye(['sign', 'tool', 'lines'])).toMatchObject({ code: 0 });
  expect(await here.rye(['sign', 'directive', 'reader'])).toMatchObject({ code: 0 });
  return {
    env: { ANTHROPIC_API_KEY: 'sk-ant-machines-0123456', ANTHROPIC_BASE_URL: model.url },
    run: ['run', 'reader', '--json'],
  };
}

/** Path of a file in the folder of a thread. */
export function threadFile(machine: Workspace, id: string, name: string): string {
  return path.join(machine.project, '.ai', 'state', 'threads', id, name);
}

export function isThere(machine: Workspace, id: string, name: string): boolean {
  return existsSync(threadFile(machine, id, name));
}
