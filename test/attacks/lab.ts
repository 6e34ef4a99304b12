import { mkdirSync, mkdtempSync, readFileSync, realpathSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { expect, it } from 'vitest';
import type { OpenRyeOptions, Rye } from '../../src/kernel/app/api/rye.ts';
import { type ErrorCode, exitCodeOf, RyeError } from '../../src/kernel/core/errors.ts';
import type { LogEvent, UnknownEvent } from '../../src/kernel/core/events.ts';
import type { SignableType } from '../../src/kernel/core/ids.ts';
import type { ThreadResult } from '../../src/kernel/core/thread.ts';
import { generateKeyPair, readPrivateKey, type SigningKey } from '../../src/kernel/trust/keys.ts';
import { signText } from '../../src/kernel/trust/signature.ts';
import { signatureStyle } from '../../src/kernel/trust/signature-line.ts';
import { openRye } from '../../src/open-rye.ts';
import { removeFolder } from '../helpers/remove-folder.ts';
import { subjectOfPath } from '../helpers/signed-files.ts';
import { startWireServer, type WireScript, type WireServer } from '../helpers/wire-server.ts';

const NOW = Date.UTC(2026, 0, 2, 3, 4, 5);

/** A project, a home folder with a signing key, and the means to attack them. */
export interface Lab {
  readonly project: string;
  readonly home: string;
  readonly notices: string[];
  /** Environment of rye; attacks may add to it. */
  readonly env: Record<string, string>;
  /** Opens a new rye, as a new command does. */
  rye(options?: Partial<OpenRyeOptions>): Rye;
  /** Writes below the project's `.ai`, or the home's for paths that begin with `~/`. */
  write(path: string, text: string | Uint8Array): string;
  read(path: string): string;
  path(path: string): string;
  /** Writes and signs with the user's key, or another. Validation is not asked: attackers do not either. */
  signed(path: string, text: string, key?: SigningKey): string;
  sign(type: SignableType, pattern: string): Promise<void>;
  /** The user's own key. */
  key(): SigningKey;
  /** Sets the sandbox of commands in the user's own configuration: attacks on the rest turn it off. */
  sandbox(mode: 'off' | 'auto' | 'required'): void;
  /** A loopback model that follows the script; rye talks to it from then on. */
  model(script: WireScript): Promise<WireServer>;
  run(
    id: string,
    options?: Partial<Parameters<Rye['threads']['execute']>[0]>,
  ): Promise<ThreadResult>;
  events(threadId: string): Promise<readonly (LogEvent | UnknownEvent)[]>;
  /** A key that the user does not trust. */
  readonly stranger: SigningKey;
  remove(): Promise<void>;
}

export async function openLab(): Promise<Lab> {
  const base = realpathSync(mkdtempSync(join(tmpdir(), 'rye-attack-')));
  const project = join(base, 'project');
  const home = join(base, 'home');
  for (const folder of [project, home]) mkdirSync(join(folder, '.ai'), { recursive: true });
  const opened: Rye[] = [];
  const servers: WireServer[] = [];
  const env: Record<string, string> = { PATH: process.env['PATH'] ?? '', HOME: home };
  const notices: string[] = [];
  const path = (name: string): string =>
    name.startsWith('~/') ? join(home, name.slice(2)) : join(project, '.ai', name);
  const lab: Lab = {
    project,
    home,
    notices,
    env,
    stranger: readPrivateKey(generateKeyPair().privatePem, 'a stranger'),
    path,
    rye(options = {}) {
      const rye = openRye({
        projectPath: project,
        userSpacePath: home,
        env: { ...env },
        onNotice: (notice) => notices.push(notice),
        ...options,
      });
      opened.push(rye);
      return rye;
    },
    write(name, text) {
      const target = path(name);
      mkdirSync(dirname(target), { recursive: true });
      writeFileSync(target, text);
      return target;
    },
    read: (name) => readFileSync(path(name), 'utf8'),
    signed(name, text, key = lab.key()) {
      const style = signatureStyle(name.slice(name.lastIndexOf('.'))) ?? 'hash';
      const subject = subjectOfPath(name);
      return lab.write(name, signText({ text, style, subject, key, now: NOW }));
    },
    async sign(type, pattern) {
      for (const { status, problems } of await lab.rye().items.sign(type, pattern)) {
        if (status === 'failed') throw new Error(JSON.stringify(problems));
      }
    },
    key: () =>
      readPrivateKey(
        readFileSync(join(home, '.ai/config/keys/signing/private_key.pem'), 'utf8'),
        'own key',
      ),
    sandbox(mode) {
      lab.write('~/.ai/config/agent/resilience.yaml', `tools: {sandbox: ${mode}}\n`);
    },
    async model(script) {
      const server = await startWireServer(script);
      servers.push(server);
      env['ANTHROPIC_API_KEY'] = 'sk-ant-attack-lab-0123456789';
      env['ANTHROPIC_BASE_URL'] = server.url;
      return server;
    },
    run: (id, options = {}) => lab.rye().threads.execute({ directiveId: id, ...options }),
    async events(threadId) {
      const events: (LogEvent | UnknownEvent)[] = [];
      for await (const event of lab.rye().threads.logs(threadId)) events.push(event);
      return events;
    },
    async remove() {
      for (const rye of opened) rye.close();
      for (const server of servers) await server.close();
      removeFolder(base);
    },
  };
  await lab.rye().keys.init();
  return lab;
}

/** One attack. `run` throws the refusal, or returns the code that a result or the log recorded. */
export interface Attack {
  readonly name: string;
  /** The documented answer. */
  readonly code: ErrorCode;
  readonly run: (lab: Lab) => unknown;
}

/** Runs a table of attacks, each in a separate lab; each must fail with its documented code. */
export function attacks(table: readonly Attack[]): void {
  it.each(table)('$name → $code', async ({ code, run }) => {
    const answer = await inLab(async (lab) => await answerTo(async () => await run(lab)));
    expect(answer).toBe(`${code} (exit ${exitCodeOf(code)})`);
  });
}

/** An attack that must come to nothing. */
export interface Futile {
  readonly name: string;
  /** The result of `run` if the attack has no effect. */
  readonly expected: unknown;
  readonly run: (lab: Lab) => unknown;
}

export function harmless(table: readonly Futile[]): void {
  it.each(table)('$name', async ({ run, expected }) => {
    expect(await inLab(run)).toEqual(expected);
  });
}

export async function inLab<T>(work: (lab: Lab) => T): Promise<Awaited<T>> {
  const lab = await openLab();
  try {
    return await work(lab);
  } finally {
    await lab.remove();
  }
}

async function answerTo(attack: () => Promise<unknown>): Promise<string> {
  try {
    const answer = await attack();
    return typeof answer === 'string'
      ? `${answer} (exit ${exitCodeOf(answer as ErrorCode)})`
      : `no refusal: ${JSON.stringify(answer)}`;
  } catch (error) {
    if (error instanceof RyeError) return `${error.code} (exit ${error.exitCode})`;
    throw error;
  }
}

/** The code with which a thread failed, or its status when it did not. */
export function codeOf(result: ThreadResult): string {
  return result.error?.code ?? result.status;
}

/** Returns the error code of the first settled call of a tool; its outcome if there is no code. */
export async function settledCode(lab: Lab, result: ThreadResult, call = 0): Promise<string> {
  const settled = (await lab.events(result.thread_id)).filter(
    ({ event_type }) => event_type === 'tool_settled',
  );
  const payload = settled[call]?.payload as { code?: string; outcome?: string } | undefined;
  return payload?.code ?? payload?.outcome ?? 'no call';
}

export interface DirectiveParts {
  readonly permissions?: string;
  readonly category?: string;
  readonly extends?: string;
  readonly limits?: string;
  readonly metadata?: string;
  readonly children?: string;
  readonly body?: string;
}

/** The text of a directive; what it holds is up to the attack. */
export function directive(name: string, parts: DirectiveParts = {}): string {
  const { permissions = '', category = '', limits = 'turns="6" spend="0.10"' } = parts;
  const parent = parts.extends === undefined ? '' : ` extends="${parts.extends}"`;
  return `# ${name}

\`\`\`xml
<directive name="${name}" version="1.0.0"${parent}>
  <metadata>
    <description>A directive under attack.</description>
    <category>${category}</category>
    <author>lab</author>
    <limits ${limits} />
    ${permissions === '' ? '' : `<permissions>${permissions}</permissions>`}
    ${parts.metadata ?? ''}
  </metadata>
  ${parts.children ?? ''}
</directive>
\`\`\`

${parts.body ?? 'Do the work.'}
`;
}

/** A shell tool with a header. */
export function shellTool(
  script: string,
  header = 'description: A tool.\ntraits: {risk: safe}',
): string {
  const lines = header.split('\n').map((line) => `# ${line}`);
  return `#!/usr/bin/env bash\n# rye:tool\n${lines.join('\n')}\n# /rye:tool\n${script}\n`;
}
