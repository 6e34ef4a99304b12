import { existsSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import type { SandboxManager } from '@anthropic-ai/sandbox-runtime';
import { messageOf, RyeError } from '../core/errors.ts';
import type { DeniesRead } from './deny-read.ts';
import { TRAP_NAMES } from './guarded-paths.ts';
import { holdNewTraps } from './held-traps.ts';
import { makePrivateFolder } from './kill-guard.ts';
import { type Confine, type ConfinedCommand, runProcess } from './process.ts';
import { readRules } from './sandbox-reads.ts';

/** `auto` confines commands if the machine supports it; `required` refuses to run them otherwise. */
export type SandboxMode = 'off' | 'auto' | 'required';

export interface SandboxSettings {
  readonly mode: SandboxMode;
  /** Hosts that tools with the trait `network` may reach; none: no network at all. */
  readonly allowDomains: readonly string[];
}

export interface SandboxOptions extends SandboxSettings {
  readonly projectPath: string;
  /** Folder that contains the user's `.ai`; {@link readRules} decides which parts of it and of other homes are readable. */
  readonly userSpacePath: string;
  /** Further folders that may be written. */
  readonly allowPaths: readonly string[];
  /** Folders of a home that may be read, relative to it or absolute. */
  readonly allowCaches: readonly string[];
  /** True for what no command may read; absent: everything that {@link readRules} leaves. */
  readonly denies?: DeniesRead | undefined;
  /** The folder that rye is installed in: helper programs of the sandbox run from there. */
  readonly programPath: string;
  /** The environment of rye. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** True if the thread holds the grant to set traps in the root of the project. */
  readonly maySetTraps?: boolean;
  /** Called with one line when `auto` runs something without a sandbox. */
  readonly onNotice: (notice: string) => void;
}

/** The support for sandboxes on this machine. */
export interface SandboxState {
  readonly available: boolean;
  /** The reason it is unavailable, or the mechanism. */
  readonly detail: string;
}

const HINT =
  'On Linux install bubblewrap, socat and ripgrep and allow unprivileged user namespaces; or set tools.sandbox: off in resilience.yaml.';

type Manager = typeof SandboxManager;

interface Runtime {
  readonly manager: Manager;
  /** The hosts that its one proxy lets through; it cannot tell commands apart. */
  readonly domains: string;
}

type Opened =
  | { readonly runtime: Runtime; readonly state: SandboxState }
  | { readonly runtime: undefined; readonly state: SandboxState };

/** The vendor keeps one sandbox per process, so there is one here. */
let shared: Promise<Opened> | undefined;
/** A new sandbox begins after the end of the last one, whose reset would take its helpers along. */
let closing: Promise<void> = Promise.resolve();

function opened(allowDomains: readonly string[]): Promise<Opened> {
  shared ??= openAfter(closing, allowDomains);
  return shared;
}

async function open(allowDomains: readonly string[]): Promise<Opened> {
  const { SandboxManager: manager } = await import('@anthropic-ai/sandbox-runtime');
  if (!manager.isSupportedPlatform()) throw unavailable(`it does not support ${process.platform}`);
  const { errors } = await manager.checkDependenciesAsync();
  if (errors.length > 0) throw unavailable(errors.join('; '));
  await manager.initialize({
    network: { allowedDomains: [...allowDomains], deniedDomains: [] },
    filesystem: { denyRead: [], allowWrite: [], denyWrite: [] },
  });
  if (await confines(manager)) {
    const runtime = { manager, domains: allowDomains.join() };
    return { runtime, state: { available: true, detail: mechanism() } };
  }
  await manager.reset();
  throw unavailable(`${mechanism()} is installed but does not work here`);
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

/** Reports whether a sandbox works on this machine. Starts the sandbox to find out. */
export async function sandboxState(): Promise<SandboxState> {
  const { state } = await opened([]);
  return state;
}

function mechanism(): string {
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
async function openAfter(earlier: Promise<void>, allowDomains: readonly string[]): Promise<Opened> {
  await earlier;
  try {
    return await open(allowDomains);
  } catch (error) {
    return { runtime: undefined, state: { available: false, detail: messageOf(error) } };
  }
}

/**
 * A way to confine commands by the settings: reads everything but homes and credentials, writes the project without its `.ai`
 * and a private temporary folder, no network unless the tool declares it and the project allows hosts. Undefined
 * when it is off. Confining throws `sandbox_unavailable` where it is required and cannot be had.
 */
export function sandboxFor(options: SandboxOptions): ((network: boolean) => Confine) | undefined {
  if (options.mode === 'off') return undefined;
  const pattern = [options.projectPath, options.userSpacePath, ...options.allowPaths].find((path) =>
    PATTERN_CHARACTERS.test(path),
  );
  return (network) => async (request) => {
    const { runtime, state } =
      pattern === undefined ? await opened(options.allowDomains) : unusable(pattern);
    if (runtime !== undefined) {
      const { command, args, signal } = request;
      return await confine(runtime, { options, network, command: [command, ...args], signal });
    }
    if (options.mode === 'required') {
      throw new RyeError(
        'sandbox_unavailable',
        `commands cannot be confined here: ${state.detail}`,
        { hint: HINT },
      );
    }
    options.onNotice(`tools run without a sandbox: ${state.detail}. ${HINT}`);
    return undefined;
  };
}

/** The vendor reads a path with one of these as a pattern, and then leaves it out of the rules. */
const PATTERN_CHARACTERS = /[*?[\]]/;

function unusable(path: string): Opened {
  const detail = `the sandbox would read ${path} as a pattern`;
  return { runtime: undefined, state: { available: false, detail } };
}

/** Variables that the vendor adds to the environment of each command and that rye removes. */
const VENDOR_VARIABLES = [
  'JAVA_TOOL_OPTIONS',
  'SANDBOX_RUNTIME',
  'CLAUDE_CODE_HOST_HTTP_PROXY_PORT',
  'CLAUDE_CODE_HOST_SOCKS_PROXY_PORT',
];
/** The way to its proxy, with the password: commands without network get none of it. */
const PROXY_VARIABLES = [
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

interface Confinement {
  readonly options: SandboxOptions;
  readonly network: boolean;
  readonly command: readonly string[];
  readonly signal: AbortSignal;
}

async function confine(
  { manager, domains }: Runtime,
  { options, network, command, signal }: Confinement,
): Promise<ConfinedCommand> {
  const { projectPath, allowPaths, allowDomains } = options;
  const temporary = await makePrivateFolder('sandbox');
  const reachesNetwork = network && allowDomains.length > 0 && domains === allowDomains.join();
  const socket = manager.getLinuxHttpSocketPath();
  const reads = readRules(options);
  const denyRead = [
    ...reads.deny,
    // the proxy serves every process that reaches its socket
    ...(reachesNetwork || socket === undefined || !existsSync(socket) ? [] : [socket]),
  ];
  const denyWrite = [
    ...[join(projectPath, '.ai')].filter((path) => existsSync(path)),
    ...trapsOf(projectPath, options.maySetTraps === true),
  ];
  const hold = options.maySetTraps === true ? undefined : holdNewTraps(projectPath);
  const removed = reachesNetwork ? VENDOR_VARIABLES : [...VENDOR_VARIABLES, ...PROXY_VARIABLES];
  const environment = `unset ${removed.join(' ')}; export TMPDIR=${quoted(temporary.path)}`;
  const script = `${environment}; exec ${command.map(quoted).join(' ')}`;
  const wrapped = manager.wrapWithSandboxArgv(
    script,
    undefined,
    {
      filesystem: {
        denyRead,
        allowRead: [...reads.allow],
        allowWrite: [projectPath, ...allowPaths, temporary.path],
        denyWrite,
      },
    },
    signal,
    projectPath,
    // the default id is the command itself, which would appear in the child's environment
    { commandId: 'rye', commandText: 'rye' },
  );
  const { argv } = await wrapped.catch(async (error: unknown) => {
    await temporary.remove();
    throw error;
  });
  const [program = '', ...args] = argv;
  return {
    command: program,
    args,
    release: async () => {
      manager.cleanupAfterCommand();
      await temporary.remove();
      return hold?.();
    },
  };
}

/**
 * Returns the paths in a project's root that commands must not write: the sandbox protects its own list in the working
 * directory of rye only, which can be another folder. A command may use git, but not set its hooks.
 */
function trapsOf(projectPath: string, maySetTraps: boolean): readonly string[] {
  const git = join(projectPath, '.git');
  const isFolder = lstatSync(git, { throwIfNoEntry: false })?.isDirectory() === true;
  const ofGit = isFolder ? [join(git, 'hooks'), join(git, 'config')] : existsSync(git) ? [git] : [];
  return maySetTraps ? [] : [...ofGit, ...TRAP_NAMES.map((name) => join(projectPath, name))];
}

/** One word for a POSIX shell. */
function quoted(word: string): string {
  return `'${word.replaceAll("'", "'\\''")}'`;
}
