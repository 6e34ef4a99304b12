import { existsSync, readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { expect, vi } from 'vitest';
import { directive } from '../attacks/lab.ts';
import { calls, type House, house, toolUse } from './house.ts';

/** A server whose tool asks the person during a call. */
export const PROGRAM = resolve(import.meta.dirname, '../fixtures/mcp/asking.mjs');

export interface Setup {
  readonly input?: object;
  /** Number of calls in the model's answer. */
  readonly parallel?: number;
  readonly timeout?: number;
  readonly policy?: object;
  /** Members of the server that replace its command. */
  readonly server?: (file: string) => Promise<object>;
  /** Runs the directive in a separate process. */
  readonly spawned?: boolean;
}

/** A house whose model calls the tool of a server that asks, with the answers that the server got. */
export async function asking({
  input = {},
  parallel = 1,
  timeout = 120,
  policy,
  server,
}: Setup = {}) {
  const uses = Array.from({ length: parallel }, (_, at) =>
    toolUse('mcp_gate_deploy', input, `deploy-${at}`),
  );
  const here = await house(calls(...uses));
  const file = join(here.project, 'answers');
  const started = (await server?.(file)) ?? { command: process.execPath, args: [PROGRAM, file] };
  const gate = { ...started, timeout_seconds: timeout, parallel: parallel > 1 };
  here.signed('config/mcp.yaml', JSON.stringify({ servers: { gate } }));
  const permissions =
    '<execute><tool>mcp/gate/*</tool></execute><acknowledge risk="elevated">Deploys.</acknowledge>';
  here.signed(
    'directives/deployer.md',
    directive('deployer', { limits: 'turns="6" spend="0.10"', permissions }),
  );
  if (policy) here.policy({ rules: [], ...policy });
  const answers = (): readonly unknown[] =>
    existsSync(file)
      ? readFileSync(file, 'utf8')
          .trim()
          .split('\n')
          .map((line) => JSON.parse(line) as unknown)
      : [];
  return { here, answers };
}

/** Runs until the server has asked; `ended` is the end of the run. */
export async function pendingQuestion({ spawned = false, ...setup }: Setup = {}) {
  const { here, answers } = await asking({ policy: { wait_inline: '120s' }, ...setup });
  const ended = here.cli(['run', 'deployer', '--json'], { spawned });
  await vi.waitUntil(async () => (await here.waiting()).length > 0, 60_000);
  const [request] = await here.waiting();
  if (!request) throw new Error('nothing waits');
  return { here, answers, ended, request };
}

export async function expectCompleted(
  here: House,
  ended: ReturnType<House['cli']>,
): Promise<string> {
  const { code, stdout, stderr } = await ended;
  const result = JSON.parse(stdout) as { status: string; thread_id: string };
  expect([code, result.status], stdout + stderr).toEqual([0, 'completed']);
  expect(await here.json(['verify', 'thread', result.thread_id])).toMatchObject({ success: true });
  expect(await here.waiting()).toEqual([]);
  return result.thread_id;
}
