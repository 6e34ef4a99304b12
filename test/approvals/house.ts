import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import type { ListedApproval } from '../../src/kernel/app/api/approvals.ts';
import { systemClock, systemIds } from '../../src/kernel/app/system.ts';
import type { SignedDecision } from '../../src/kernel/core/approval.ts';
import type { EventPayloads, LogEvent } from '../../src/kernel/core/events.ts';
import type { StoredApproval } from '../../src/kernel/storage/approvals.ts';
import { openStore } from '../../src/kernel/storage/open-store.ts';
import { readPrivateKey, type SigningKey } from '../../src/kernel/trust/keys.ts';
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
  /** Signs an approval policy; `me` is the user, and `people` are the others. */
  policy(file: object, people?: readonly Person[]): void;
  /** Another person, whose key the user trusts for `purposes`, and who trusts the user's key. */
  person(name: string, purposes?: string): Promise<Person>;
  /** Runs a directive until a call asks. */
  asks(name?: string): Promise<{ readonly threadId: string; readonly id: string }>;
  /** The row of a request. */
  row(id: string): Promise<StoredApproval>;
  /** Records a signed decision as a program that can write to the database does. */
  plant(id: string, ...signed: readonly SignedDecision[]): Promise<void>;
}

/** A person with a separate home and key, at work in the same project. */
export interface Person {
  readonly name: string;
  readonly home: string;
  readonly key: SigningKey;
  readonly cli: House['cli'];
}

/** A bash call that leaves a mark, so that it is seen how often it ran. */
export function marks(file: string): ReturnType<typeof toolUse> {
  return toolUse('rye_bash', { command: `echo ran >> ${file}` });
}

/** A directive that asks before each command. */
export function pusher(name: string, spend = '0.10'): string {
  return directive(name, {
    limits: `turns="6" spend="${spend}"`,
    permissions:
      '<execute><tool ask="true" reason="It pushes.">rye/bash</tool></execute><execute><tool>rye/file-system/*</tool></execute><acknowledge risk="elevated">Pushes.</acknowledge>',
  });
}

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
  lab.signed('directives/pusher.md', pusher('pusher'));
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
  const inStore = async <T>(
    work: (store: ReturnType<typeof openStore>) => Promise<T | undefined>,
  ): Promise<T> => {
    const store = openStore({ projectPath: lab.project, clock: systemClock, ids: systemIds });
    try {
      const found = await work(store);
      if (found === undefined) throw new Error('the store has no such request');
      return found;
    } finally {
      store.close();
    }
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
    log: (threadId: string) => readLog(lab.project, threadId),
    policy: (file: object, people: readonly Person[] = []) => {
      const others = people.map(({ name, key }) => [name, { key: key.keyId }]);
      const approvers = { me: { key: lab.key().keyId }, ...Object.fromEntries(others) };
      lab.signed('config/agent/approvals.yaml', `${JSON.stringify({ approvers, ...file })}\n`);
    },
    person: async (name: string, purposes = 'approve') => {
      const home = join(lab.home, '..', name);
      mkdirSync(home);
      const own: House['cli'] = async (args, options = {}) =>
        await cli(args, { ...options, env: { ...options.env, HOME: home } });
      const must = async (run: Promise<CliResult>): Promise<string> => {
        const { code, stdout, stderr } = await run;
        if (code !== 0) throw new Error(`${name}: exit ${String(code)}\n${stdout}${stderr}`);
        return stdout;
      };
      await must(own(['keys', 'init']));
      const [mine, theirs] = [join(home, 'owner.pem'), join(home, 'own.pem')];
      writeFileSync(mine, await must(cli(['keys', 'export'])));
      writeFileSync(theirs, await must(own(['keys', 'export'])));
      await must(own(['keys', 'trust', mine, '--owner', 'owner', '--for', 'sign,approve', '-y']));
      await must(cli(['keys', 'trust', theirs, '--owner', name, '--for', purposes, '-y']));
      const pem = readFileSync(join(home, '.ai/config/keys/signing/private_key.pem'), 'utf8');
      return { name, home, key: readPrivateKey(pem, name), cli: own };
    },
    asks: async (name = 'pusher') => {
      const result = await json(['run', name], 8);
      const [id = ''] = result['approvals'] as readonly string[];
      return { threadId: String(result['thread_id']), id };
    },
    row: async (id: string) => await inStore(async ({ approvals }) => await approvals.get(id)),
    plant: async (id: string, ...all: readonly SignedDecision[]) => {
      await inStore(async ({ approvals }) => {
        const now = new Date().toISOString();
        for (const signed of all) await approvals.decide(id, signed, now);
        return true;
      });
    },
    file: (name: string) => {
      const path = join(lab.project, name);
      return existsSync(path) ? readFileSync(path, 'utf8') : undefined;
    },
  };
  return Object.assign(lab, made);
}

/** The events of a thread's log. */
export function readLog(project: string, threadId: string): readonly LogEvent[] {
  return readFileSync(join(project, '.ai/state/threads', threadId, 'transcript.jsonl'), 'utf8')
    .trim()
    .split('\n')
    .slice(1)
    .map((line) => JSON.parse(line) as LogEvent);
}

/** The payloads of one type in a log. */
export function payloads<T extends keyof EventPayloads>(
  events: readonly LogEvent[],
  type: T,
): readonly EventPayloads[T][] {
  return events.flatMap((event) =>
    event.event_type === type ? [event.payload as EventPayloads[T]] : [],
  );
}

export { calls, reply, toolUse };
