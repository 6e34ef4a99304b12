import { existsSync } from 'node:fs';
import type { SandboxManager } from '@anthropic-ai/sandbox-runtime';
import { messageOf, RyeError } from '../core/errors.ts';
import type { Boundaries } from './bubblewrap.ts';
import { runProcess } from './process.ts';

/** The support for sandboxes on this machine. */
export interface SandboxState {
  readonly available: boolean;
  /** The reason it is unavailable, or the mechanism. */
  readonly detail: string;
}

type Manager = typeof SandboxManager;

interface Runtime {
  readonly manager: Manager;
  /** The hosts that its one proxy lets through, which cannot tell commands apart; undefined: all hosts, without it. */
  readonly domains: string | undefined;
}

export type Opened =
  | { readonly runtime: Runtime; readonly state: SandboxState }
  | { readonly runtime: undefined; readonly state: SandboxState };

/** The hosts that commands may reach; undefined: all. */
export type Domains = readonly string[] | undefined;

/** The vendor keeps one sandbox per process, so there is one here. */
let shared: Promise<Opened> | undefined;
/** A new sandbox begins after the end of the last one, whose reset would take its helpers along. */
let closing: Promise<void> = Promise.resolve();

/** Opens the sandbox of the vendor, which has a proxy for the hosts and is the only one on macOS. */
export function openProxied(domains: Domains): Promise<Opened> {
  shared ??= openAfter(closing, domains);
  return shared;
}

async function open(domains: Domains): Promise<Opened> {
  const { SandboxManager: manager } = await import('@anthropic-ai/sandbox-runtime');
  if (!manager.isSupportedPlatform()) throw unavailable(`it does not support ${process.platform}`);
  const { errors } = await manager.checkDependenciesAsync();
  if (errors.length > 0) throw unavailable(errors.join('; '));
  await manager.initialize({
    network: networkOf(domains),
    filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
  });
  if (await confines(manager)) {
    const runtime = { manager, domains: domains?.join() };
    return { runtime, state: { available: true, detail: mechanism() } };
  }
  await manager.reset();
  throw unavailable(`${mechanism()} is installed but does not work here`);
}

type Network = Parameters<Manager['initialize']>[0]['network'];

/** Without a list the vendor leaves the network as it is; its type does not tell. */
function networkOf(domains: Domains): Network {
  const listed: Partial<Network> = domains === undefined ? {} : { allowedDomains: [...domains] };
  return { deniedDomains: [], ...listed } as Network;
}

function unavailable(reason: string): RyeError {
  return new RyeError('sandbox_unavailable', reason);
}

/** Returns true if a command starts in the sandbox: user namespaces may be forbidden. */
async function confines(manager: Manager): Promise<boolean> {
  const { argv } = await manager.wrapWithSandboxArgv('exit 41');
  const [command = '', ...args] = argv;
  const { exitCode } = await runProcess({
    command,
    args,
    cwd: '/',
    env: { PATH: process.env['PATH'] ?? '' },
    timeoutMs: 10_000,
    signal: new AbortController().signal,
    onStdout: () => undefined,
    onStderr: () => undefined,
  });
  manager.cleanupAfterCommand();
  return exitCode === 41;
}

export function mechanism(): string {
  return process.platform === 'darwin' ? 'Seatbelt' : 'bubblewrap';
}

/** Ends the sandbox's helper processes. A later command restarts them. */
export async function closeSandbox(): Promise<void> {
  const running = shared;
  shared = undefined;
  closing = resetAfter(closing, running);
  await closing;
}

async function resetAfter(
  earlier: Promise<void>,
  running: Promise<Opened> | undefined,
): Promise<void> {
  await earlier;
  const { runtime } = (await running) ?? {};
  try {
    await runtime?.manager.reset();
  } catch {
    // remaining helpers end with this process
  }
}

/** Opens the sandbox after the last one has closed. */
async function openAfter(earlier: Promise<void>, domains: Domains): Promise<Opened> {
  await earlier;
  try {
    return await open(domains);
  } catch (error) {
    return { runtime: undefined, state: { available: false, detail: messageOf(error) } };
  }
}

/** The vendor reads a path with one of these as a pattern, and then leaves it out of the rules. */
const PATTERN_CHARACTERS = /[*?[\]]/;

/** Returns why the vendor can't confine commands to these paths; undefined if it can. */
export function unusable(paths: readonly string[]): string | undefined {
  const path = paths.find((one) => PATTERN_CHARACTERS.test(one));
  return path === undefined ? undefined : `the sandbox would read ${path} as a pattern`;
}

/** Variables that the vendor adds to the environment of each command and that rye removes. */
const VENDOR_VARIABLES = [
  'JAVA_TOOL_OPTIONS',
  'SANDBOX_RUNTIME',
  'CLAUDE_CODE_HOST_HTTP_PROXY_PORT',
  'CLAUDE_CODE_HOST_SOCKS_PROXY_PORT',
];
/** The way to a proxy, with a password: commands without network get none of it. */
export const PROXY_VARIABLES: readonly string[] = [
  ...['HTTP', 'HTTPS', 'ALL', 'GRPC', 'FTP', 'NO'].flatMap((name) => [
    `${name}_PROXY`,
    `${name.toLowerCase()}_proxy`,
  ]),
  'GIT_CONFIG_PARAMETERS',
  'GIT_SSH_COMMAND',
  'RSYNC_PROXY',
  'DOCKER_HTTP_PROXY',
  'DOCKER_HTTPS_PROXY',
  ...['TYPE', 'ADDRESS', 'PORT', 'USERNAME', 'PASSWORD'].map((name) => `CLOUDSDK_PROXY_${name}`),
];

export interface ProxiedRun {
  readonly boundaries: Boundaries;
  readonly domains: Domains;
  readonly projectPath: string;
  readonly temporary: string;
  readonly command: readonly string[];
  readonly signal: AbortSignal;
}

/** Returns the command line that starts a command in the vendor's sandbox. Call {@link releaseProxied} after its end. */
export async function proxiedArgv(
  { manager, domains: opened }: Runtime,
  { boundaries, domains, projectPath, temporary, command, signal }: ProxiedRun,
): Promise<readonly string[]> {
  const reachesNetwork = opened === domains?.join() && domains?.length !== 0;
  const socket = manager.getLinuxHttpSocketPath();
  const { hidden, readable, writable, fixed, secret } = boundaries;
  const removed = reachesNetwork ? VENDOR_VARIABLES : [...VENDOR_VARIABLES, ...PROXY_VARIABLES];
  const environment = `unset ${removed.join(' ')}; export TMPDIR=${quoted(temporary)}`;
  const { argv } = await manager.wrapWithSandboxArgv(
    `${environment}; exec ${command.map(quoted).join(' ')}`,
    undefined,
    {
      ...(reachesNetwork ? {} : { network: networkOf([]) }),
      filesystem: {
        denyRead: [
          ...hidden,
          ...secret,
          // the proxy serves every process that reaches its socket
          ...(reachesNetwork || socket === undefined || !existsSync(socket) ? [] : [socket]),
        ],
        allowRead: [...readable],
        allowWrite: [...writable],
        denyWrite: [...fixed],
      },
    },
    signal,
    projectPath,
    // the default id is the command itself, which would appear in the child's environment
    { commandId: 'rye', commandText: 'rye' },
  );
  return argv;
}

export function releaseProxied({ manager }: Runtime): void {
  manager.cleanupAfterCommand();
}

/** One word for a POSIX shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
