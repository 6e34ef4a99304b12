import { existsSync, lstatSync } from 'node:fs';
import { join } from 'node:path';
import { RyeError } from '../core/errors.ts';
import {
  type Boundaries,
  confinedArgv,
  findHelpers,
  type HelperPlaces,
  type Helpers,
  problemOf,
  withoutKernel,
} from './bubblewrap.ts';
import type { DeniesRead } from './deny-read.ts';
import { holdNewTraps, presentTraps } from './held-traps.ts';
import { makePrivateFolder } from './kill-guard.ts';
import type { Confine, ConfinedCommand } from './process.ts';
import {
  type Domains,
  mechanism,
  type Opened,
  openProxied,
  PROXY_VARIABLES,
  proxiedArgv,
  releaseProxied,
  type SandboxState,
  unusable,
} from './proxied-sandbox.ts';
import { isWithin, readRules } from './sandbox-reads.ts';

/** `auto` confines commands if the machine supports it; `required` refuses to run them otherwise. */
export type SandboxMode = 'off' | 'auto' | 'required';

export interface SandboxSettings {
  readonly mode: SandboxMode;
  /** Hosts that tools with the trait `network` may reach. None: all with `auto`, and none at all with `required`. */
  readonly allowDomains: readonly string[];
}

export interface SandboxOptions extends SandboxSettings {
  /** The folder that commands work in: the project or a worktree of it. */
  readonly projectPath: string;
  /** The project, whose state keeps what is taken from commands. */
  readonly keptIn: string;
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

const HINT =
  'On Linux install bubblewrap and allow unprivileged user namespaces (tools.allow_domains needs socat and ripgrep too). To run commands with your permissions and without this line, set tools.sandbox: off in .ai/config/agent/resilience.yaml and sign it: rye sign config agent/resilience';

/** The means to confine the commands of this machine. */
interface Support {
  readonly state: SandboxState;
  /** Absent on macOS. */
  readonly helpers?: Helpers;
  /** The sandbox of the vendor, where its proxy is needed, or it is the only one. */
  readonly opened?: Opened;
}

/** The problems of helper programs that were tried: once a process. */
const tried = new Map<string, Promise<string | undefined>>();

async function supportOf(domains: Domains, places: HelperPlaces): Promise<Support> {
  if (process.platform !== 'linux') return await proxied(domains);
  const helpers = findHelpers(places);
  if (typeof helpers === 'string') return { state: { available: false, detail: helpers } };
  const key = `${helpers.bwrap} ${helpers.noSockets}`;
  const running = tried.get(key) ?? problemOf(helpers);
  tried.set(key, running);
  const problem = await running;
  if (problem !== undefined) return { state: { available: false, detail: problem } };
  if (domains !== undefined && domains.length > 0) return { helpers, ...(await proxied(domains)) };
  return { helpers, state: { available: true, detail: mechanism() } };
}

async function proxied(domains: Domains): Promise<Support> {
  const opened = await openProxied(domains);
  return { opened, state: opened.state };
}

/** Reports whether a sandbox works on this machine, by starting a command in it. */
export async function sandboxState(
  options: Pick<SandboxOptions, 'mode' | 'allowDomains' | 'projectPath' | 'programPath' | 'env'>,
): Promise<SandboxState> {
  const support = await supportOf(domainsOf(options), placesOf({ allowPaths: [], ...options }));
  return support.state;
}

/** The hosts of tools that declare `network`; undefined: all. */
function domainsOf({ mode, allowDomains }: SandboxSettings): Domains {
  return mode !== 'required' && allowDomains.length === 0 ? undefined : allowDomains;
}

function placesOf({
  env,
  programPath,
  projectPath,
  allowPaths,
}: Pick<SandboxOptions, 'env' | 'programPath' | 'projectPath' | 'allowPaths'>): HelperPlaces {
  return { searchPath: env['PATH'] ?? '', untrusted: [projectPath, ...allowPaths], programPath };
}

/**
 * A way to confine commands by the settings: reads everything but homes and credentials, writes the project without its `.ai`
 * and a private temporary folder, network only for tools that declare it, and of that only the hosts that the project lists,
 * if it lists some. Undefined when it is off. Confining throws `sandbox_unavailable` where it is required and cannot be had.
 */
export function sandboxFor(options: SandboxOptions): ((network: boolean) => Confine) | undefined {
  if (options.mode === 'off') return undefined;
  return (network) => async (request) => {
    // macOS has one sandbox for all commands
    const wanted = network || process.platform !== 'linux' ? domainsOf(options) : [];
    const support = await supportOf(wanted, placesOf(options));
    const { projectPath, userSpacePath, allowPaths } = options;
    const pattern = support.opened && unusable([projectPath, userSpacePath, ...allowPaths]);
    const problem = support.state.available ? pattern : support.state.detail;
    if (problem === undefined) {
      const { signal, programFolder } = request;
      const command = [request.command, ...request.args];
      return await confine(support, { options, network, command, signal, programFolder });
    }
    if (options.mode === 'required') {
      const message = `commands cannot be confined here: ${problem}`;
      throw new RyeError('sandbox_unavailable', message, { hint: HINT });
    }
    options.onNotice(`commands run without a sandbox: ${problem}. ${HINT}`);
    return undefined;
  };
}

interface Confinement {
  readonly options: SandboxOptions;
  readonly network: boolean;
  readonly command: readonly string[];
  readonly signal: AbortSignal;
  readonly programFolder: string | undefined;
}

async function confine(
  support: Support,
  { options, network, programFolder, ...request }: Confinement,
): Promise<ConfinedCommand> {
  const { projectPath, maySetTraps = false } = options;
  const temporary = await makePrivateFolder('sandbox');
  const { readable, ...others } = boundariesOf(options, temporary.path);
  const own = programFolder === undefined ? [] : [programFolder];
  const boundaries = { ...others, readable: [...readable, ...own] };
  const hold = maySetTraps ? undefined : holdNewTraps(projectPath, options.keptIn);
  const domains = network ? domainsOf(options) : [];
  const { argv, end } = await start(support, {
    boundaries,
    domains,
    projectPath,
    temporary: temporary.path,
    ...request,
  }).catch(async (error: unknown) => {
    await temporary.remove();
    throw error;
  });
  const [command = '', ...args] = argv;
  return {
    command,
    args,
    explain: (output) => limitOf(output, domains),
    release: async () => {
      end();
      await temporary.remove();
      return hold?.();
    },
  };
}

const NO_WRITE = /Read-only file system|EROFS/;
const NO_NETWORK =
  /Could not resolve|name resolution|EAI_AGAIN|ENETUNREACH|Network is unreachable|Name or service not known/i;
const WHERE =
  'in .ai/config/agent/resilience.yaml, or tools.sandbox: off, and sign it: rye sign config agent/resilience';

/** Returns how a person opens the border at which a command failed, judged by its output. */
function limitOf(output: string, domains: Domains): string | undefined {
  if (NO_WRITE.test(output)) {
    return `rye's sandbox lets a command write only the project without .ai and known traps, and $TMPDIR. A person can set tools.allow_paths ${WHERE}`;
  }
  if (domains === undefined || !NO_NETWORK.test(output)) return undefined;
  return domains.length === 0
    ? `rye's sandbox gives this command no network: it needs the trait network and, where tools.sandbox is required, its hosts. A person can set tools.allow_domains ${WHERE}`
    : `rye's sandbox lets this command reach only ${domains.join(', ')}. A person can set tools.allow_domains ${WHERE}`;
}

interface Started {
  readonly argv: readonly string[];
  readonly end: () => void;
}

async function start(
  { helpers, opened, state }: Support,
  run: Parameters<typeof proxiedArgv>[1],
): Promise<Started> {
  const { boundaries, domains, temporary, command } = run;
  if (opened?.runtime !== undefined) {
    const { runtime } = opened;
    const inner = helpers && process.getuid?.() === 0 ? withoutKernel(helpers, command) : command;
    const argv = await proxiedArgv(runtime, { ...run, command: inner });
    return { argv, end: () => releaseProxied(runtime) };
  }
  if (helpers === undefined) throw new RyeError('sandbox_unavailable', state.detail);
  const hasNetwork = domains === undefined;
  const argv = confinedArgv({
    helpers,
    boundaries,
    hasNetwork,
    setenv: { TMPDIR: temporary, RYE_SANDBOX: '1' },
    unsetenv: hasNetwork ? [] : PROXY_VARIABLES,
    command,
  });
  return { argv, end: () => undefined };
}

function boundariesOf(options: SandboxOptions, temporary: string): Boundaries {
  const { projectPath, allowPaths, maySetTraps = false } = options;
  // a folder in a writable one needs no rule, and a command could put a link to another place there
  const outer = allowPaths.filter(
    (path) => ![projectPath, ...allowPaths].some((one) => one !== path && isWithin(path, one)),
  );
  const reads = readRules({ ...options, allowPaths: outer });
  const traps = maySetTraps ? [] : [...ofGit(projectPath), ...presentTraps(projectPath)];
  return {
    hidden: reads.hidden,
    readable: reads.allow,
    writable: [projectPath, ...outer.filter((path) => existsSync(path)), temporary],
    fixed: [...[join(projectPath, '.ai')].filter((path) => existsSync(path)), ...traps],
    secret: reads.secret,
  };
}

/** A command may use git, but neither set its hooks nor its programs. */
function ofGit(projectPath: string): readonly string[] {
  const git = join(projectPath, '.git');
  const stats = lstatSync(git, { throwIfNoEntry: false });
  if (stats?.isDirectory() !== true) return stats === undefined ? [] : [git];
  return [join(git, 'hooks'), join(git, 'config')];
}
