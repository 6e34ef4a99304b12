import { RyeError } from '../core/errors.ts';
import type { HookDeclaration, HookLayer } from '../core/hook.ts';
import { isRecord, type JsonObject, type JsonValue } from '../core/json.ts';
import { LIMIT_NAMES } from '../core/limits.ts';
import type { ThreadSettings } from '../core/plan.ts';
import { didYouMean } from '../core/text.ts';
import { type RawHook, readHooks } from '../hooks/declaration.ts';
import { DEFAULT_PROJECT_BOUND, grantFile, readCapabilities } from '../hooks/sources.ts';
import type { LoadedConfig } from '../items/config.ts';
import type { Config } from '../items/config-fs.ts';
import { parseErrorRules } from '../policy/error-class.ts';
import { parseLimits } from '../policy/limits.ts';
import { parseRiskTable, type RiskTable } from '../policy/risk.ts';
import type { ThreadConfig } from '../threads/thread-config.ts';
import { SANDBOX_MODES } from '../tools/sandbox.ts';

/** One merged configuration file with typed, located reads. */
export class Reader {
  readonly #name: string;
  readonly #config: LoadedConfig;

  constructor(name: string, config: LoadedConfig) {
    this.#name = name;
    this.#config = config;
  }

  get(path: string): JsonValue | undefined {
    return path
      .split('.')
      .reduce<JsonValue | undefined>(
        (value, key) => (isRecord(value) ? value[key] : undefined),
        this.#config.value,
      );
  }

  /** A non-negative finite number. */
  number(path: string, fallback: number): number {
    const value = this.get(path) ?? fallback;
    if (typeof value === 'number' && Number.isFinite(value) && value >= 0) return value;
    return this.#refuse(path, value, 'a number of 0 or more');
  }

  boolean(path: string, fallback: boolean): boolean {
    const value = this.get(path) ?? fallback;
    return typeof value === 'boolean' ? value : this.#refuse(path, value, 'true or false');
  }

  oneOf<T extends string>(path: string, known: readonly T[], fallback: T): T {
    const value = this.get(path) ?? fallback;
    return (
      known.find((one) => one === value) ?? this.#refuse(path, value, `one of ${known.join(', ')}`)
    );
  }

  texts(path: string): readonly string[] {
    const value = this.get(path) ?? [];
    if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return value;
    return this.#refuse(path, value, 'a list of texts');
  }

  mapping(path: string): JsonObject {
    const value = this.get(path) ?? {};
    return isRecord(value) ? value : this.#refuse(path, value, 'a mapping');
  }

  list(path: string): readonly JsonValue[] {
    const value = this.get(path) ?? [];
    return Array.isArray(value) ? value : this.#refuse(path, value, 'a list');
  }

  origin(path: string): string {
    for (const [known, origin] of this.#config.origins) {
      if (known === path || known.startsWith(`${path}.`)) return origin;
    }
    return `config ${this.#name}`;
  }

  #refuse(path: string, value: JsonValue, expected: string): never {
    throw new RyeError('config_invalid', `${path} is ${JSON.stringify(value)}, not ${expected}`, {
      location: { path: this.origin(path) },
      hint: `Correct it, or remove it to use the default. \`rye config get ${this.#name}.${path}\` shows where it is set.`,
    });
  }
}

async function reader(config: Config, name: string): Promise<Reader> {
  return new Reader(name, await config.load(name));
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
  const [resilience, coordination, errors, interpolation, risks, hooks] = await Promise.all([
    reader(config, 'agent/resilience'),
    reader(config, 'agent/coordination'),
    reader(config, 'agent/error_classification'),
    reader(config, 'interpolation'),
    readRisks(config),
    readConfiguredHooks(config),
  ]);
  return {
    limitDefaults: readLimitDefaults(resilience),
    risks,
    hooks,
    settings: readSettings({ resilience, errors, coordination }),
    coordination: readCoordination(coordination),
    recovery: readRecovery(coordination),
    steer: readSteer(coordination),
    onFinished: coordination.oneOf('deliveries.on_finished', ['hold', 'resume'], 'hold'),
    toolPreloadTokens: resilience.number('tool_preload.max_tokens', 2000),
    behavior: resilience.mapping('behavior'),
    envAllow: interpolation.texts('env_allow'),
  };
}

function readSteer(coordination: Reader): ThreadConfig['steer'] {
  return {
    enabled:
      coordination.oneOf('steer.active_turn', ['enabled', 'disabled'], 'disabled') === 'enabled',
    minIntervalMs: coordination.number('steer.min_interval_seconds', 10) * 1000,
    proofMs: coordination.number('steer.proof_seconds', 5) * 1000,
  };
}

function readRecovery(coordination: Reader): ThreadConfig['recovery'] {
  return {
    mode: coordination.oneOf('recovery.mode', ['fail', 'resume'], 'fail'),
    staleSeconds: Math.max(1, coordination.number('recovery.stale_seconds', 60)),
    transcriptIntegrity: coordination.oneOf(
      'transcript_integrity',
      ['strict', 'lenient'],
      'strict',
    ),
  };
}

function readCoordination(coordination: Reader): ThreadConfig['coordination'] {
  const policies = ['cancel', 'keep'] as const;
  const slots = (path: string, fallback: number): number =>
    Math.max(1, Math.floor(coordination.number(path, fallback)));
  return {
    maxChildren: slots('concurrency.max_children', 5),
    maxTotal: slots('concurrency.max_total', 20),
    onParentCancel: coordination.oneOf('child_policy.on_parent_cancel', policies, 'cancel'),
    onParentError: coordination.oneOf('child_policy.on_parent_error', policies, 'cancel'),
    onParentComplete: coordination.oneOf('child_policy.on_parent_complete', policies, 'keep'),
  };
}

function readLimitDefaults(resilience: Reader): ThreadConfig['limitDefaults'] {
  const limits = resilience.get('limits');
  if (!isRecord(limits)) return { limits: {}, origins: {} };
  for (const [name, value] of Object.entries(limits)) {
    if (typeof value !== 'string') continue;
    throw new RyeError(
      'invalid_limit',
      `the limit "${name}" is the text ${JSON.stringify(value)}, not a number`,
      {
        location: { path: resilience.origin(`limits.${name}`) },
        hint: `Write a number without quotes, such as ${name}: 10.`,
      },
    );
  }
  const parsed = parseLimits(
    Object.entries(limits).map(([name, value]) => ({
      name,
      value,
      location: { path: resilience.origin(`limits.${name}`) },
    })),
    'the default limits',
  );
  const origins = Object.fromEntries(
    LIMIT_NAMES.map((name) => [name, resilience.origin(`limits.${name}`)]),
  );
  return { limits: parsed.limits, origins };
}

function readSettings({
  resilience,
  errors,
  coordination,
}: Record<'resilience' | 'errors' | 'coordination', Reader>): ThreadSettings {
  const patterns = errors.list('patterns');
  parseErrorRules(patterns, errors.origin('patterns')); // a typo is an error here, before anything runs
  return {
    tools_parallel: Math.max(1, Math.floor(resilience.number('tools.parallel', 4))),
    durability: resilience.oneOf('transcript.durability', ['turn', 'always', 'off'], 'turn'),
    token_deltas: resilience.oneOf(
      'transcript.token_deltas',
      ['every', 'coalesced', 'off'],
      'coalesced',
    ),
    max_retries: Math.floor(resilience.number('retry.max_retries', 3)),
    stall_seconds: resilience.number('retry.stall_seconds', 60),
    result_max_bytes: resilience.number('tools.result_max_bytes', 32_768),
    error_classification: patterns.filter((one): one is JsonObject => isRecord(one)),
    cache: resilience.boolean('cache', true),
    context_limit: {
      threshold: coordination.number('continuation.trigger_threshold', 0.9),
      mode: coordination.oneOf('continuation.mode', ['compact', 'handoff'], 'compact'),
      reserve_tokens: coordination.number('compaction.reserve_tokens', 16_384),
      keep_recent_tokens: coordination.number('compaction.keep_recent_tokens', 20_000),
    },
    allow_paths: resilience.texts('tools.allow_paths'),
    sandbox: {
      mode: resilience.oneOf('tools.sandbox', SANDBOX_MODES, 'off'),
      allow_domains: resilience.texts('tools.allow_domains'),
      allow_caches: resilience.texts('tools.allow_caches'),
    },
  };
}

/** The merged risk table; one that can't be read means the shipped one, never none. */
async function readRisks(config: Config): Promise<RiskTable> {
  const name = 'agent/capability_risk';
  const shipped = (await config.loadFrom(name, 'system')).value;
  try {
    return parseRiskTable((await config.load(name)).value, { path: `config ${name}` });
  } catch {
    return parseRiskTable(shipped, { path: `config ${name}` });
  }
}

/** Hooks of every configured source. A file with a mistake is an error: a guard that can't be read must not be skipped. */
export async function readConfiguredHooks(config: Config): Promise<ThreadConfig['hooks']> {
  const [user, project, shipped] = await Promise.all([
    config.loadFrom('agent/hooks', 'user'),
    config.loadFrom('agent/hooks', 'project'),
    config.load('agent/hook_conditions'),
  ]);
  const userFile = hooksFile(user, 'user');
  const projectFile = hooksFile(project, 'project');
  const bound = userFile.projectBound ?? DEFAULT_PROJECT_BOUND;
  return {
    user: grantFile(hooksOf(user, 'hooks', 0), { declared: userFile.declared, bound: undefined }),
    builtin: hooksOf(shipped, 'builtin_hooks', 2),
    project: grantFile(hooksOf(project, 'hooks', 3), { declared: projectFile.declared, bound }),
    infra: hooksOf(await config.loadFrom('agent/hook_conditions', 'system'), 'infra_hooks', 4),
  };
}

/** Members of a hooks file beside its hooks; the last three describe the file and change nothing. */
const HOOKS_FILE_MEMBERS = [
  'hooks',
  'capabilities',
  'project_capabilities',
  'schema_version',
  'category',
  'description',
];

/** Returns the capabilities that a hooks file grants to its hooks and, for the user's file, to those of projects. */
function hooksFile(
  config: LoadedConfig,
  space: 'user' | 'project',
): {
  readonly declared: readonly string[] | undefined;
  readonly projectBound: readonly string[] | undefined;
} {
  const file = new Reader('agent/hooks', config);
  const refuse = (name: string, what: string, hint: string | undefined): never => {
    throw new RyeError('config_invalid', `${file.origin(name)}: ${what}`, { hint });
  };
  for (const name of Object.keys(config.value)) {
    if (HOOKS_FILE_MEMBERS.includes(name)) continue;
    const known = `A hooks file has ${HOOKS_FILE_MEMBERS.slice(0, 3).join(', ')}.`;
    refuse(name, `unknown member "${name}"`, didYouMean(name, HOOKS_FILE_MEMBERS) ?? known);
  }
  const listOf = (name: string): readonly string[] | undefined =>
    config.value[name] === undefined ? undefined : readCapabilities(file.texts(name));
  const projectBound = listOf('project_capabilities');
  if (projectBound !== undefined && space === 'project') {
    refuse(
      'project_capabilities',
      'a project cannot set project_capabilities',
      'Move project_capabilities to ~/.ai/config/agent/hooks.yaml.',
    );
  }
  return { declared: listOf('capabilities'), projectBound };
}

/** Throws the first mistake of a hooks file: `config_invalid`, `hook_invalid` or `condition_invalid`. */
export function assertHooksFile(config: LoadedConfig, space: 'user' | 'project'): void {
  hooksFile(config, space);
  hooksOf(config, 'hooks', space === 'user' ? 0 : 3);
}

/** Throws for the default limits of a resilience file that cannot be used. */
export function assertLimits(config: LoadedConfig): void {
  readLimitDefaults(new Reader('agent/resilience', config));
}

function hooksOf(config: LoadedConfig, list: string, layer: HookLayer): readonly HookDeclaration[] {
  const raw = config.value[list];
  if (raw === undefined || raw === null) return [];
  const file = new Reader('agent/hooks', config);
  if (!Array.isArray(raw)) {
    throw new RyeError('config_invalid', `${file.origin(list)}: ${list} is not a list of hooks`);
  }
  const entries: RawHook[] = raw.map((value, index) => ({
    value,
    origin: file.origin(`${list}.${index}`),
  }));
  const { hooks, problems } = readHooks(entries, layer);
  const [problem] = problems;
  if (problem) throw problem;
  return hooks;
}
