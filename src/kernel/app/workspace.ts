import { existsSync, statSync } from 'node:fs';
import { basename, isAbsolute, join, resolve } from 'node:path';
import type { Clock } from '../core/clock.ts';
import { isSecurityWarning, RyeError } from '../core/errors.ts';
import type { LogEvent, UnknownEvent } from '../core/events.ts';
import type { IdSource } from '../core/ids.ts';
import { compact } from '../core/json.ts';
import { AddedHandlers } from '../hooks/handlers.ts';
import type { ConfigOverride } from '../items/config.ts';
import { type Config, loadTrustPolicy, openConfig } from '../items/config-fs.ts';
import { openSpaces, type Spaces } from '../items/spaces-fs.ts';
import { openItems, type VerifiedItems, type VerifyContext } from '../items/verified-fs.ts';
import type { ProviderKinds } from '../providers/provider.ts';
import { openStore } from '../storage/open-store.ts';
import type { CloseOptions, Store } from '../storage/store.ts';
import type { Fleet } from '../threads/fleet-port.ts';
import { threadsFolder } from '../threads/thread-files-fs.ts';
import { signedRunKey } from '../threads/unsigned-run-fs.ts';
import { environmentSecrets } from '../tools/secrets.ts';
import { openKeyring } from '../trust/keyring-fs.ts';
import type { Keyring, SigningKey, VerifyingKey } from '../trust/keys.ts';
import { bakedManifest, type TrustPolicy } from '../trust/policy.ts';
import { knownPrivateKeys } from '../trust/private-keys-fs.ts';
import type { DefinedDirective } from './api/directives.ts';
import type { OpenRyeOptions } from './api/rye.ts';
import { configuredFleet, configuredStore } from './configured-store.ts';
import { Credentials } from './credentials.ts';
import { passphraseOf } from './passphrase.ts';
import { composePresets, type Preset } from './presets.ts';
import { namesStore } from './store-setting.ts';
import { systemClock, systemIds, systemSpacePath } from './system.ts';

/** Parts of a workspace that no option names: a process that runs a leg of a fleet has them. */
export interface WorkspaceParts {
  readonly fleet?: Fleet;
  /** The key of a run without a signing key; one that cannot sign is that of a run to be checked. */
  readonly recordKey?: VerifyingKey | SigningKey | undefined;
  readonly weakestSandbox?: SandboxMode;
  /** The added handlers of the workspace for which this one is opened. */
  readonly added?: AddedHandlers;
}

/** A warm-up that has begun: threads that are started from now on share it. */
export interface Warming {
  /** Resolves when everything is ready or has failed. */
  readonly done: Promise<void>;
}

export type SandboxMode = 'off' | 'auto' | 'required';

type Observer = (event: LogEvent | UnknownEvent) => void | Promise<void>;

/** An opened project with its user space: configuration, keys, items and store. Opens and reads each when it is first needed. */
export class Workspace {
  readonly options: OpenRyeOptions;
  /** Defaults of every run. */
  readonly preset: Preset;
  /** Handlers that the program added since this was opened. */
  readonly added: AddedHandlers;
  readonly clock: Clock;
  readonly ids: IdSource;
  /** Kinds of providers that the program adds to those that rye ships. */
  readonly providers: ProviderKinds;
  /** Keys of providers that came while this is open. */
  readonly credentials: Credentials;
  readonly spaces: Spaces;
  readonly keyring: Keyring;
  readonly verification: VerifyContext;
  readonly store: Store;
  readonly systemPath: string;
  #policy: Promise<TrustPolicy> | undefined;
  #config: Promise<Config> | undefined;
  /** Skills that the program vouches for. */
  readonly programSkills: readonly ProgramSkill[];
  readonly #privateKeys = knownPrivateKeys();
  readonly #ofPolicy: string[] = [];
  readonly #directives: DefinedDirective[] = [];
  readonly #noticed = new Set<string>();
  readonly #ends = new Set<() => void>();
  #isClosed = false;
  #warming: Promise<Warming> | undefined;

  /** True for a run without a signing key, and for a job that brings its key along and has no user space: nothing is written there then. */
  get isGuest(): boolean {
    const { env, userSpacePath } = this.options;
    if (this.recordKey !== undefined) return true;
    return (env?.['RYE_SIGNING_KEY'] ?? '') !== '' && !existsSync(join(userSpacePath, '.ai'));
  }

  readonly recordKey: WorkspaceParts['recordKey'];

  /** The fleet that shares the store; absent: none does. */
  readonly fleet: Fleet | undefined;

  /** The weakest sandbox in which commands may run. */
  readonly weakestSandbox: SandboxMode;

  constructor(options: OpenRyeOptions, parts: WorkspaceParts = {}) {
    const { fleet, weakestSandbox = 'off', recordKey, added = new AddedHandlers() } = parts;
    const { projectPath, userSpacePath, tools, subscribers } = options;
    const isShared = options.store === undefined && namesStore(options);
    const { store = isShared ? configuredStore(this) : openStore } = options;
    this.options = options;
    this.credentials = new Credentials(options);
    this.recordKey = recordKey;
    this.added = added;
    this.clock = options.clock ?? systemClock;
    this.ids = options.ids ?? systemIds;
    this.providers = options.providers ?? {};
    const { mcpServers, skills } = options;
    const handlers = subscribers && { event: subscribers as readonly Observer[] };
    this.preset = composePresets(
      compact({ tools, handlers, mcpServers, skills }),
      options.preset ?? {},
    );
    this.programSkills = skillsOf(this.preset);
    this.systemPath = systemSpacePath();
    const manifest = bakedManifest();
    this.spaces = openSpaces({ projectPath, userSpacePath, systemPath: this.systemPath, manifest });
    this.keyring = openKeyring({
      projectPath,
      userSpacePath,
      now: () => this.clock.now(),
      env: options.env,
      passphrase: () => passphraseOf(options.env),
      recordKey,
      runKey: (threadId) =>
        signedRunKey(join(threadsFolder(projectPath), threadId), { threadId, keys: this.keyring }),
    });
    this.verification = { spaces: this.spaces, keyring: this.keyring, manifest };
    this.weakestSandbox = weakestSandbox;
    this.fleet = fleet ?? (isShared ? configuredFleet(this) : undefined);
    this.store = this.#opened(store);
  }

  /** Sends one line for people; repeated lines are dropped. */
  readonly notice = (text: string): void => {
    if (this.#noticed.has(text)) return;
    this.#noticed.add(text);
    this.options.onNotice?.(text);
  };

  /** Keeps a directive of the program for every thread of this rye. */
  define(directive: DefinedDirective): void {
    this.#directives.push(directive);
  }

  /** Returns the program's directives by id. A preset's directives override those that rye keeps. */
  directives({ directives = [] }: Preset): ReadonlyMap<string, DefinedDirective> {
    return new Map([...this.#directives, ...directives].map((one) => [one.id, one]));
  }

  async policy(): Promise<TrustPolicy> {
    const onNotice = (text: string): void => {
      if (isSecurityWarning(text)) this.#ofPolicy.push(text);
      this.notice(text);
    };
    this.#policy ??= loadTrustPolicy({ ...this.verification, onNotice });
    try {
      return await this.#policy;
    } catch (error) {
      // the file may be corrected while this workspace is open
      this.#policy = undefined;
      throw error;
    }
  }

  /** The trust policy's parts that are ignored because no trusted key signed them. */
  async policyWarnings(): Promise<readonly string[]> {
    await this.policy();
    return this.#ofPolicy;
  }

  async config(): Promise<Config> {
    this.#config ??= this.#openConfig();
    try {
      return await this.#config;
    } catch (error) {
      this.#config = undefined;
      throw error;
    }
  }

  /**
   * Reads a part of the configuration. One that is wrong is read again from its files the next time: they may be corrected
   * while this workspace is open.
   */
  async readConfig<T>(read: (config: Config) => Promise<T>): Promise<T> {
    try {
      return await read(await this.config());
    } catch (error) {
      this.#config = undefined;
      throw error;
    }
  }

  /** Items with verified signatures; `allowUnsigned`, or `RYE_DEV_MODE=1`, lets unsigned items of the project pass. */
  async items(allowUnsigned: boolean): Promise<VerifiedItems> {
    return openItems({
      ...this.verification,
      policy: await this.policy(),
      allowUnsigned: allowUnsigned || this.options.env['RYE_DEV_MODE'] === '1',
      onNotice: this.notice,
    });
  }

  /** Values that must not leave a tool: secrets in the environment, and every private key that rye knows, in each form. */
  secrets(): readonly string[] {
    const { env, userSpacePath } = this.options;
    return [
      ...environmentSecrets(env),
      ...this.credentials.secrets,
      ...this.#privateKeys({ env, userSpacePath }),
    ];
  }

  /** True if an origin such as `file:line` is in the system space. */
  readonly isShipped = (origin: string): boolean =>
    this.spaces.isShipped(origin.replace(/:\d+(?::\d+)?$/, ''));

  /** True if a path, relative to the project, names a regular file. */
  readonly fileExists = (path: string): boolean => {
    const full = resolve(this.options.projectPath, path);
    return existsSync(full) && statSync(full).isFile();
  };

  /** True if reading the registry creates nothing: its file exists, or the threads are not in files of this project. */
  get isRegistryMade(): boolean {
    const path = join(this.options.projectPath, '.ai', 'state', 'threads', 'registry.db');
    return this.store.maintenance === undefined || existsSync(path);
  }

  /** Has something ended that this rye started, when it is closed; at once if it is. */
  onClose(end: () => void): void {
    if (this.#isClosed) end();
    else this.#ends.add(end);
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** The warm-up, if there was one. */
  get warming(): Promise<Warming> | undefined {
    return this.#warming;
  }

  /** Warms up, once. */
  async warmUp(begin: () => Promise<Warming>): Promise<void> {
    this.#warming ??= begin();
    await (await this.#warming).done;
  }

  /** Opens the same spaces again, as their files are now. It is closed with this one. */
  reopened(): Workspace {
    const again = new Workspace(this.options, { recordKey: this.recordKey, added: this.added });
    this.onClose(() => again.close());
    return again;
  }

  close(options?: CloseOptions): void {
    this.#isClosed = true;
    for (const end of this.#ends) end();
    this.#ends.clear();
    this.store.close(options);
  }

  #opened(store: Store | typeof openStore): Store {
    if (typeof store !== 'function') return store;
    const { projectPath, env } = this.options;
    return store({ projectPath, env, clock: this.clock, ids: this.ids });
  }

  async #openConfig(): Promise<Config> {
    return openConfig({
      ...this.verification,
      policy: await this.policy(),
      onNotice: this.notice,
      overrides: (this.options.configOverrides ?? []).map(parseOverride),
      mistakeIn: async (file) => {
        const { mistakeIn } = await import('./settings.ts');
        return await mistakeIn(file, this.spaces);
      },
    });
  }
}

/** A folder of a skill from code, and its id: the folder's name. */
export interface ProgramSkill {
  readonly id: string;
  readonly folder: string;
}

/** Returns the skills of a preset; a later one replaces one of the same id. Throws `usage` for a folder that is none. */
export function skillsOf({ skills }: Preset): readonly ProgramSkill[] {
  const byId = new Map((skills ?? []).map(programSkill).map((skill) => [skill.id, skill]));
  return [...byId.values()];
}

function programSkill(folder: string): ProgramSkill {
  const isSkill = isAbsolute(folder) && existsSync(join(folder, 'SKILL.md'));
  if (isSkill) return { id: basename(folder), folder };
  throw new RyeError(
    'usage',
    `the skill ${JSON.stringify(folder)} is not a folder with a SKILL.md`,
    {
      hint: 'Give the absolute path of its folder.',
    },
  );
}

/** `key=value` of `-c`: the value is read as YAML scalars are. */
function parseOverride(text: string): ConfigOverride {
  const at = text.indexOf('=');
  if (at <= 0) {
    throw new RyeError('usage', `-c ${text} is not key=value`, {
      hint: 'Use KEY=VALUE, such as -c resilience.limits.turns=40.',
    });
  }
  return { key: text.slice(0, at), value: text.slice(at + 1) };
}
