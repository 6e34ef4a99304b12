import { readFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { Client } from 'pg';
import { expect, onTestFinished } from 'vitest';
import type { PostgresServer } from '../helpers/postgres.ts';
import { startWireServer, type WireBody, type WireTurn } from '../helpers/wire-server.ts';
import { type CheckOptions, checkFleet, type FleetCheck } from './checker.ts';
import { type FleetLab, fleetLab } from './lab.ts';

const LIMIT_MS = 60_000;

/** A request to the model: who asks, and how many results of calls the conversation has. */
export interface Asked {
  /** The word after `I am` in the first message. */
  readonly name: string;
  readonly results: number;
}

/** A fleet whose model answers by the conversation alone, so that a leg that repeats a request gets the same answer. */
export async function answeredFleet(
  server: PostgresServer,
  answer: (asked: Asked) => WireTurn | Promise<WireTurn>,
): Promise<FleetLab> {
  const model = await startWireServer(async ({ body }) => await answer(askedIn(body)));
  onTestFinished(async () => await model.close());
  return await fleetLab(server, {
    ANTHROPIC_API_KEY: 'sk-ant-fleet-0123456789',
    ANTHROPIC_BASE_URL: model.url,
  });
}

function askedIn({ messages }: WireBody): Asked {
  const text = JSON.stringify(messages);
  return {
    name: /I am (\w+)/.exec(text)?.[1] ?? '',
    results: text.split('"type":"tool_result"').length - 1,
  };
}

/** Checks the store of a fleet, which must be as it has to be. */
export async function proveFleet({
  here,
  sql,
}: Pick<FleetLab, 'here'> & Pick<CheckOptions, 'sql'>): Promise<FleetCheck> {
  const check = await checkFleet({
    sql,
    verify: async (id) => (await here.json(['verify', 'thread', id]))['success'] === true,
  });
  expect(check.problems).toEqual([]);
  return check;
}

/** Everything that the store holds of a thread, as text. */
export async function storedThread({ sql }: FleetLab, threadId: string): Promise<string> {
  const parts: unknown[] = [];
  for (const table of [
    'threads',
    'log_heads',
    'log_pieces',
    'budget_ledger',
    'thread_files',
    'runs',
  ])
    parts.push(
      (
        await sql.query(
          `SELECT t::text AS row FROM rye.${table} AS t WHERE thread_id = $1 ORDER BY 1`,
          [threadId],
        )
      ).rows,
    );
  return JSON.stringify(parts, null, 1);
}

/** A connection of a test, which ends with it. */
export async function client(url: string): Promise<Client> {
  const sql = new Client({ connectionString: url, options: '-c search_path=rye' });
  sql.on('error', () => undefined);
  await sql.connect();
  onTestFinished(async () => await sql.end());
  return sql;
}

/** Waits until something is so. */
export async function untilTrue(
  what: string,
  isTrue: () => boolean | Promise<boolean>,
): Promise<void> {
  const end = Date.now() + LIMIT_MS;
  while (!(await isTrue())) {
    if (Date.now() > end) throw new Error(`never true: ${what}`);
    await delay(20);
  }
}

/** The lines of a file; none if it does not exist. */
export function linesOf(file: string): readonly string[] {
  try {
    return readFileSync(file, 'utf8').split('\n').filter(Boolean);
  } catch {
    return [];
  }
}

/** True while a process runs or is stopped; a dead one whose parent has not looked counts as gone. */
export function isProcess(pid: number): boolean {
  try {
    return !/^\d+ \(.*\) [ZX] /s.test(readFileSync(`/proc/${pid}/stat`, 'utf8'));
  } catch {
    return false;
  }
}
