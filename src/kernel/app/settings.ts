import { type CheckedSchema, findProblem } from '../core/check.ts';
import { messageOf, RyeError } from '../core/errors.ts';
import type { HookDeclaration, HookLayer } from '../core/hook.ts';
import { isJsonObject, type JsonObject } from '../core/json.ts';
import type { ThreadSettings } from '../core/plan.ts';
import { parseDistinctHooks } from '../hooks/declaration.ts';
import { DEFAULT_PROJECT_BOUND, grantFile, readCapabilities } from '../hooks/sources.ts';
import type { LoadedConfig } from '../items/config.ts';
import { type Config, readConfigFile, unknownIn } from '../items/config-fs.ts';
import type { FoundFile, Spaces } from '../items/spaces-fs.ts';
import { parseErrorRules } from '../policy/error-class.ts';
import { type LimitSource, parseLimits } from '../policy/limits.ts';
import { parseRiskTable, type RiskTable } from '../policy/risk.ts';
import policies from '../schemas/policy.json' with { type: 'json' };
import files from '../schemas/settings.json' with { type: 'json' };
import type { SettingsFiles } from '../schemas/settings.ts';
import type { ThreadConfig } from '../threads/thread-config.ts';

const schemas: Readonly<Record<keyof SettingsFiles, CheckedSchema>> = files.properties;

/** Reads a merged configuration file. Throws `config_invalid` with the place of the first mistake. */
export async function readSettings<N extends keyof SettingsFiles>(
  config: Config,
  name: N,
): Promise<SettingsFiles[N]> {
  return checkedSettings(name, await config.load(name));
}

function checkedSettings<N extends keyof SettingsFiles>(
  name: N,
  config: LoadedConfig,
): SettingsFiles[N] {
  const problem = config.isShipped ? undefined : findProblem(schemas[name], config.value);
  if (!problem) return config.value;
  const path = problem.path.join('.');
  const what = problem.known ? `unknown member "${path}"` : `${path} ${problem.text}`;
  throw new RyeError('config_invalid', what, {
    location: { path: originOf(name, config, path) },
    hint: problem.known
      ? (problem.hint ?? `Members are ${problem.known.join(', ')}.`)
      : `Correct it, or remove it to use the default. \`rye config get ${name}.${path}\` shows where it is set.`,
  });
}

/** Returns the place of a member, or of the first one below it. */
function originOf(name: string, { origins }: LoadedConfig, path: string): string {
  for (const [known, origin] of origins) {
    if (known === path || known.startsWith(`${path}.`)) return origin;
  }
  return `config ${name}`;
}

const threadConfigs = new WeakMap<Config, Promise<ThreadConfig>>();

/** Reads and validates everything that threads need from the layered configuration, once per configuration. */
export function readThreadConfig(config: Config): Promise<ThreadConfig> {
  const known = threadConfigs.get(config);
  if (known) return known;
  const read = parseThreadConfig(config);
  threadConfigs.set(config, read);
  return read;
}

async function parseThreadConfig(config: Config): Promise<ThreadConfig> {
  const [limits, patterns, resilience, coordination, interpolation, risks, hooks] =
    await Promise.all([
      config.load('agent/resilience').then(readLimits),
      config.load('agent/error_classification').then(readErrorPatterns),
      readSettings(config, 'agent/resilience'),
      readSettings(config, 'agent/coordination'),
      readSettings(config, 'interpolation'),
      readRisks(config),
      readConfiguredHooks(config),
    ]);
  const concurrency = filled(coordination.concurrency, { max_children: 5, max_total: 20 });
  const policy = filled(coordination.child_policy, {
    on_parent_cancel: 'cancel',
    on_parent_error: 'cancel',
    on_parent_complete: 'keep',
  });
  const steer = filled(coordination.steer, {
    active_turn: 'disabled',
    min_interval_seconds: 10,
    proof_seconds: 5,
  });
  const recovery = filled(coordination.recovery, { mode: 'fail', stale_seconds: 60 });
  return {
    ...limits,
    risks,
    hooks,
    settings: threadSettings(resilience, coordination, patterns),
    coordination: {
      maxChildren: slots(concurrency.max_children),
      maxTotal: slots(concurrency.max_total),
      onParentCancel: policy.on_parent_cancel,
      onParentError: policy.on_parent_error,
      onParentComplete: policy.on_parent_complete,
    },
    recovery: {
      mode: recovery.mode,
      staleSeconds: Math.max(1, recovery.stale_seconds),
      transcriptIntegrity: coordination.transcript_integrity ?? 'strict',
    },
    steer: {
      enabled: steer.active_turn === 'enabled',
      minIntervalMs: steer.min_interval_seconds * 1000,
      proofMs: steer.proof_seconds * 1000,
    },
    onFinished: coordination.deliveries?.on_finished ?? 'hold',
    toolPreloadTokens: resilience.tool_preload?.max_tokens ?? 2000,
    behavior: (resilience.behavior ?? {}) as JsonObject,
    envAllow: interpolation.env_allow ?? [],
  };
}

type Filled<T> = { readonly [K in keyof T]-?: NonNullable<T[K]> };

/** Returns the members of a group, with the default of each that is absent or null. */
export function filled<T extends object>(
  group: T | null | undefined,
  defaults: NoInfer<Filled<T>>,
): Filled<T> {
  const set: Partial<T> = group ?? {};
  const names = Object.keys(defaults) as (keyof T)[];
  return Object.fromEntries(names.map((name) => [name, set[name] ?? defaults[name]])) as Filled<T>;
}

function slots(count: number): number {
  return Math.max(1, Math.floor(count));
}

/** Reads the default limits, and the ceilings of limits from outside. */
function readLimits(config: LoadedConfig): Pick<ThreadConfig, 'limitDefaults' | 'limitCeiling'> {
  const { ceiling = null, ...limits } = checkedSettings('agent/resilience', config).limits ?? {};
  if (ceiling !== null && !isJsonObject(ceiling)) {
    throw new RyeError('config_invalid', 'limits.ceiling is not a mapping', {
      location: { path: originOf('agent/resilience', config, 'limits.ceiling') },
      hint: 'Write ceiling: { spend: 2.00 }.',
    });
  }
  return {
    limitDefaults: limitSource(config, 'limits', limits),
    limitCeiling: limitSource(config, 'limits.ceiling', ceiling ?? {}),
  };
}

/** Reads the limits below a path of the configuration, with the place of each. */
function limitSource(
  config: LoadedConfig,
  path: string,
  limits: Readonly<Record<string, unknown>>,
): LimitSource {
  const origin = (name: string): string => originOf('agent/resilience', config, `${path}.${name}`);
  for (const [name, value] of Object.entries(limits)) {
    if (typeof value !== 'string') continue;
    throw new RyeError(
      'invalid_limit',
      `the limit "${name}" is the text ${JSON.stringify(value)}, not a number`,
      {
        location: { path: origin(name) },
        hint: `Write a number without quotes, such as ${name}: 10.`,
      },
    );
  }
  return parseLimits(
    Object.entries(limits).map(([name, value]) => ({
      name,
      value,
      location: { path: origin(name) },
    })),
    path === 'limits' ? 'the default limits' : path,
  );
}

/** Returns the patterns as they are written; a mistake in one is an error here, before anything runs. */
function readErrorPatterns(config: LoadedConfig): readonly JsonObject[] {
  const name = 'agent/error_classification';
  const patterns = checkedSettings(name, config).patterns ?? [];
  if (!config.isShipped) parseErrorRules(patterns, originOf(name, config, 'patterns'));
  return patterns as readonly JsonObject[];
}

function threadSettings(
  resilience: SettingsFiles['agent/resilience'],
  coordination: SettingsFiles['agent/coordination'],
  patterns: readonly JsonObject[],
): ThreadSettings {
  const tools = filled(resilience.tools, {
    parallel: 4,
    result_max_bytes: 32_768,
    allow_paths: [],
    deny_read: [],
    sandbox: 'auto',
    allow_domains: [],
    allow_caches: [],
  });
  const { max_retries: maxRetries, stall_seconds: stall, ...times } = resilience.retry ?? {};
  const retry = filled(times, {
    max_seconds: 300,
    connect_seconds: 10,
    first_byte_seconds: 300,
    idle_seconds: 120,
  });
  const continuation = filled(coordination.continuation, {
    mode: 'compact',
    trigger_threshold: 0.9,
  });
  return {
    tools_parallel: slots(tools.parallel),
    ...filled(resilience.transcript, { durability: 'turn', token_deltas: 'coalesced' }),
    ...(typeof maxRetries === 'number' ? { max_retries: Math.floor(maxRetries) } : {}),
    retry_seconds: retry.max_seconds,
    connect_seconds: retry.connect_seconds,
    first_byte_seconds: stall ?? retry.first_byte_seconds,
    stall_seconds: stall ?? retry.idle_seconds,
    result_max_bytes: tools.result_max_bytes,
    error_classification: patterns,
    cache: resilience.cache ?? true,
    context_limit: {
      threshold: continuation.trigger_threshold,
      mode: continuation.mode,
      ...filled(coordination.compaction, { reserve_tokens: 16_384, keep_recent_tokens: 20_000 }),
    },
    allow_paths: tools.allow_paths,
    ...(tools.deny_read.length === 0 ? {} : { deny_read: tools.deny_read }),
    sandbox: {
      mode: tools.sandbox,
      allow_domains: tools.allow_domains,
      allow_caches: tools.allow_caches,
    },
  };
}

/** Reads the merged risk table. Throws if it can't be read: the shipped one may be weaker than what a file meant. */
async function readRisks(config: Config): Promise<RiskTable> {
  const name = 'agent/capability_risk';
  const table = await config.load(name);
  if (table.isShipped) return parseRiskTable(table.value, { path: `config ${name}` });
  const problem = findProblem(policies.properties.riskTable, table.value);
  const path = problem?.path.join('.') ?? 'classifications';
  return parseRiskTable(table.value, { path: originOf(name, table, path) });
}

/** Hooks of every configured source. A file with a mistake is an error: a guard that can't be read must not be skipped. */
export async function readConfiguredHooks(config: Config): Promise<ThreadConfig['hooks']> {
  const [user, project, shipped, system] = await Promise.all([
    config.loadFrom('agent/hooks', 'user'),
    config.loadFrom('agent/hooks', 'project'),
    config.load('agent/hook_conditions'),
    config.loadFrom('agent/hook_conditions', 'system'),
  ]);
  const userFile = hooksFile(user, 'user');
  const projectFile = hooksFile(project, 'project');
  const bound = userFile.projectBound ?? DEFAULT_PROJECT_BOUND;
  return {
    user: grantFile(hooksOf('agent/hooks', 'hooks', user, 0), {
      declared: userFile.declared,
      bound: undefined,
    }),
    builtin: hooksOf('agent/hook_conditions', 'builtin_hooks', shipped, 2),
    project: grantFile(hooksOf('agent/hooks', 'hooks', project, 3), {
      declared: projectFile.declared,
      bound,
    }),
    infra: hooksOf('agent/hook_conditions', 'infra_hooks', system, 4),
  };
}

/** Returns the capabilities that a hooks file grants to its hooks and, for the user's file, to the hooks of projects. */
function hooksFile(
  config: LoadedConfig,
  space: 'user' | 'project',
): {
  readonly declared: readonly string[] | undefined;
  readonly projectBound: readonly string[] | undefined;
} {
  const file = checkedSettings('agent/hooks', config);
  const bound = file.project_capabilities;
  if (bound !== undefined && space === 'project') {
    const origin = originOf('agent/hooks', config, 'project_capabilities');
    throw new RyeError('config_invalid', `${origin}: a project cannot set project_capabilities`, {
      hint: 'Move project_capabilities to ~/.ai/config/agent/hooks.yaml.',
    });
  }
  return { declared: listOf(file.capabilities), projectBound: listOf(bound) };
}

function listOf(texts: readonly string[] | null | undefined): readonly string[] | undefined {
  return texts === undefined ? undefined : readCapabilities(texts ?? []);
}

/** Returns the first mistake of one configuration file that a run would refuse; undefined if there is none. */
export async function mistakeIn(file: FoundFile, spaces: Spaces): Promise<string | undefined> {
  try {
    const [unknown] = await unknownIn(file, spaces);
    if (unknown) return `unknown setting ${unknown.path}`;
    const space = file.space === 'user' ? 'user' : 'project';
    assertSettings(file.id, await readConfigFile(file), space);
    return undefined;
  } catch (error) {
    return messageOf(error);
  }
}

/** Throws the first mistake of one configuration file. Does nothing for a file that is not declared here. */
export function assertSettings(
  name: string,
  config: LoadedConfig,
  space: 'user' | 'project',
): void {
  if (name === 'agent/hooks') {
    hooksFile(config, space);
    hooksOf(name, 'hooks', config, space === 'user' ? 0 : 3);
  } else if (name === 'agent/resilience') readLimits(config);
  else if (name === 'agent/error_classification') readErrorPatterns(config);
  else if (isDeclared(name)) checkedSettings(name, config);
}

function isDeclared(name: string): name is keyof SettingsFiles {
  return Object.hasOwn(schemas, name);
}

/** Returns the hooks of a list. Throws the first mistake: `config_invalid`, `hook_invalid` or `condition_invalid`. */
function hooksOf(
  name: 'agent/hooks' | 'agent/hook_conditions',
  list: 'hooks' | 'builtin_hooks' | 'infra_hooks',
  config: LoadedConfig,
  layer: HookLayer,
): readonly HookDeclaration[] {
  const file: { readonly [L in typeof list]?: readonly unknown[] | null | undefined } =
    checkedSettings(name, config);
  const entries = (file[list] ?? []).map((value, index) => ({
    value,
    origin: originOf(name, config, `${list}.${index}`),
  }));
  return parseDistinctHooks(entries, layer);
}
