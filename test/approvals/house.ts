import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import type { ListedApproval } from '../../src/app/api/approvals.ts';
import type { LogEvent } from '../../src/core/events.ts';
import { directive, type Lab, openLab } from '../attacks/lab.ts';
import { type CliOptions, type CliResult, runCli } from '../helpers/run-cli.ts';
import { calls, reply, toolUse, type WireBody, type WireTurn } from '../helpers/wire-server.ts';

/** A project whose model follows a script, driven through the built program. */
export interface House extends Lab {
  readonly bodies: WireBody[];
  /** Runs the built `rye` in the project. */
  cli(args: readonly string[], options?: Omit<CliOptions, 'cwd'>): Promise<CliResult>;
  /** Runs `rye --json`; throws with the output unless the exit code is `code`. */
  json(args: readonly string[], code?: number): Promise<Record<string, unknown>>;
  /** Lists the pending requests. */
  waiting(): Promise<readonly ListedApproval[]>;
  /** Waits until the thread has this status. */
  until(threadId: string, status: string): Promise<void>;
  log(threadId: string): readonly LogEvent[];
  file(name: string): string | undefined;
  /** Signs an approval policy; `me` is the user. */
  policy(file: object): void;
}

/** A bash call that leaves a mark, so that it is seen how often it ran. */
export function marks(file: string): ReturnType<typeof toolUse> {
  return toolUse('rye_bash', { command: `echo ran >> ${file}` });
}

const PUSHER = directive('pusher', {
  permissions:
    '<execute><tool ask="true" reason="It pushes.">rye/bash</tool></execute><execute><tool>rye/file-system/*</tool></execute><acknowledge risk="elevated">Pushes.</acknowledge>',
});

/** Opens a house whose model gives these answers in order, then reports that it is done. */
export async function house(...turns: readonly WireTurn[]): Promise<House> {
  const lab = await openLab();
  onTestFinished(async () => await lab.remove());
  const bodies: WireBody[] = [];
  const script = [...turns];
  await lab.model(({ body }) => {
    bodies.push(body);
    return script.shift() ?? reply('done');
  });
  lab.signed('directives/pusher.md', PUSHER);
  const cli: House['cli'] = async (args, { env = {}, ...rest } = {}) =>
    await runCli(args, { cwd: lab.project, env: { ...lab.env, ...env }, ...rest });
  const json: House['json'] = async (args, code = 0) => {
    const result = await cli([...args, '--json']);
    if (result.code !== code) {
      throw new Error(
        `${args.join(' ')}: exit ${String(result.code)}\n${result.stdout}${result.stderr}`,
      );
    }
    return JSON.parse(result.stdout) as Record<string, unknown>;
  };
  const made = {
    bodies,
    cli,
    json,
    waiting: async () =>
      (await json(['approvals', 'list']))['approvals'] as readonly ListedApproval[],
    until: async (threadId: string, status: string) => {
      for (let look = 0; look < 600; look += 1) {
        const { thread } = (await json(['threads', 'show', threadId])) as {
          thread: { status: string; error?: unknown };
        };
        if (thread.status === status) return;
        if (look === 599) throw new Error(`${threadId} is ${JSON.stringify(thread)}`);
        await delay(100);
      }
    },
    log: (threadId: string) =>
      readFileSync(join(lab.project, '.ai/state/threads', threadId, 'transcript.jsonl'), 'utf8')
        .trim()
        .split('\n')
        .slice(1)
        .map((line) => JSON.parse(line) as LogEvent),
    policy: (file: object) => {
      const approvers = { me: { key: lab.key().keyId } };
      lab.signed('config/agent/approvals.yaml', `${JSON.stringify({ approvers, ...file })}\n`);
    },
    file: (name: string) => {
      const path = join(lab.project, name);
      return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
    },
  };
  return Object.assign(lab, made);
}

export { calls, reply, toolUse };
