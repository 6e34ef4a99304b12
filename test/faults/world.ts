import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { cpSync, existsSync, mkdtempSync, realpathSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { expect } from 'vitest';
import type { Rye } from '../../src/kernel/app/api/rye.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import { isActive } from '../../src/kernel/core/thread.ts';
import { toMicroUsd } from '../../src/kernel/core/usage.ts';
import { foldContext } from '../../src/kernel/log/context.ts';
import { buildTree, isKnown } from '../../src/kernel/log/tree.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { openRye } from '../../src/open-rye.ts';
import { type CliResult, cliPackage, runCli } from '../helpers/run-cli.ts';

/** A project and a home that a fault is injected into. */
export interface World {
  readonly project: string;
  readonly home: string;
  readonly env: Readonly<Record<string, string>>;
}

/** A copy of a prepared workspace, so that each fault starts from the same state. */
export function copyOf(
  prepared: { readonly project: string; readonly home: string },
  url: string,
): World {
  const root = realpathSync(mkdtempSync(path.join(tmpdir(), 'rye-fault-')));
  const project = path.join(root, 'project');
  const home = path.join(root, 'home');
  cpSync(prepared.project, project, { recursive: true });
  cpSync(prepared.home, home, { recursive: true });
  return { project, home, env: { ANTHROPIC_API_KEY: 'test-key', ANTHROPIC_BASE_URL: url } };
}

export interface RunningCli {
  readonly child: ChildProcess;
  readonly done: Promise<{
    readonly code: number | null;
    readonly stdout: string;
    readonly stderr: string;
  }>;
}

/** Runs `rye` in the world, in this process. */
export async function ryeIn(
  { project, home, env }: World,
  ...args: readonly string[]
): Promise<CliResult> {
  return await runCli(args, { cwd: project, env: { HOME: home, ...env } });
}

/** Starts the built program in the world. */
export async function startCli(
  world: World,
  args: readonly string[],
  {
    preload = false,
    extra = {},
  }: { preload?: boolean; extra?: Readonly<Record<string, string>> } = {},
): Promise<RunningCli> {
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  const inject = preload ? ['--import', path.resolve(import.meta.dirname, 'crash-points.mjs')] : [];
  return startNode(world, [...inject, program, ...args], extra);
}

/** Starts Node in the world. */
export function startNode(
  { project, home, env }: World,
  args: readonly string[],
  extra: Readonly<Record<string, string>>,
): RunningCli {
  const child = spawn(process.execPath, args, {
    cwd: project,
    env: { PATH: process.env['PATH'], HOME: home, ...env, ...extra },
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let stdout = '';
  let stderr = '';
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    stderr += text;
  });
  const done = once(child, 'close').then(() => ({ code: child.exitCode, stdout, stderr }));
  return { child, done };
}

/** The library on the world's project, in this process; `program` is what it starts threads with. */
export function openWorld({ project, home, env }: World, program?: readonly string[]): Rye {
  return openRye({
    projectPath: project,
    userSpacePath: home,
    env: { PATH: process.env['PATH'], ...env },
    ...(program ? { program } : {}),
  });
}

/** True if a thread has written anything. */
export function hasLog({ project }: World, threadId: string): boolean {
  return existsSync(path.join(project, '.ai', 'state', 'threads', threadId, 'transcript.jsonl'));
}

/**
 * Checks the state after every recovery: no thread without an owner is active, every claim on a budget has ended and what it
 * records as spent matches the thread, and every signature verifies.
 */
export async function expectLegal(world: World, rye: Rye): Promise<void> {
  const store = openStore({ projectPath: world.project, clock: systemClock, ids: systemIds });
  try {
    const threads = await store.registry.list({});
    expect(threads.filter(({ status }) => isActive(status))).toEqual([]);
    expect(await store.ledger.rows({ status: 'active' })).toEqual([]);
    const spent = new Map(
      threads.map(({ thread_id, cost }) => [thread_id, toMicroUsd(cost.spend)]),
    );
    for (const { thread_id, actual, reserved, max, parent_id } of await store.ledger.rows()) {
      expect([thread_id, actual]).toEqual([thread_id, spent.get(thread_id) ?? 0]);
      expect(actual).toBeLessThanOrEqual(max);
      if (parent_id !== null) expect(reserved).toBeLessThanOrEqual(max);
    }
    for (const { thread_id: id } of threads) {
      if (!existsSync(path.join(world.project, '.ai', 'state', 'threads', id))) continue;
      const { checks } = await rye.threads.verify(id);
      expect(checks.filter(({ ok }) => !ok)).toEqual([]);
      if (!hasLog(world, id)) continue;
      const { events, problems } = await store.logs.read(id);
      expect(problems).toEqual([]);
      // every call has its result on record: the fold has nothing to make up
      expect(foldContext(buildTree(events)).sources).not.toContain(null);
      // nothing that was started and not recorded as done is claimed done
      const settledOk = events.flatMap((event) =>
        isKnown(event, 'tool_settled') && event.payload.outcome === 'ok'
          ? [event.payload.call_id]
          : [],
      );
      const resultsOk = events.flatMap((event) =>
        isKnown(event, 'message') &&
        event.payload.message.role === 'tool_result' &&
        event.payload.message.outcome === 'ok' &&
        !events.some((one) => isKnown(one, 'thread_continued'))
          ? [event.payload.message.call_id]
          : [],
      );
      expect(settledOk).toEqual(expect.arrayContaining(resultsOk));
    }
  } finally {
    store.close();
  }
}
