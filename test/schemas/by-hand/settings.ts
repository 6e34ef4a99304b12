import { RyeError } from '../../../src/kernel/core/errors.ts';
import { isRecord, type JsonObject, type JsonValue } from '../../../src/kernel/core/json.ts';
import type { ThreadSettings } from '../../../src/kernel/core/plan.ts';
import type { LoadedConfig } from '../../../src/kernel/items/config.ts';
import type { Config } from '../../../src/kernel/items/config-fs.ts';
import { parseErrorRules } from '../../../src/kernel/policy/error-class.ts';
import { parseLimits } from '../../../src/kernel/policy/limits.ts';
import type { ThreadConfig } from '../../../src/kernel/threads/thread-config.ts';

/** One merged configuration file with typed, located reads. */
class Reader {
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

/** Everything that threads need, except risks and hooks. */
export async function parseThreadConfig(
  config: Config,
): Promise<Omit<ThreadConfig, 'hooks' | 'limitCeiling' | 'risks'>> {
  const [resilience, coordination, errors, interpolation] = await Promise.all([
    reader(config, 'agent/resilience'),
    reader(config, 'agent/coordination'),
    reader(config, 'agent/error_classification'),
    reader(config, 'interpolation'),
  ]);
  return {
    limitDefaults: readLimitDefaults(resilience),
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
  return parseLimits(
    Object.entries(limits).map(([name, value]) => ({
      name,
      value,
      location: { path: resilience.origin(`limits.${name}`) },
    })),
    'the default limits',
  );
}

const UNBOUNDED = Number.MAX_SAFE_INTEGER;

function readSettings({
  resilience,
  errors,
  coordination,
}: Record<'resilience' | 'errors' | 'coordination', Reader>): ThreadSettings {
  const patterns = errors.list('patterns');
  const maxRetries = resilience.number('retry.max_retries', UNBOUNDED);
  parseErrorRules(patterns, errors.origin('patterns')); // a typo is an error here, before anything runs
  return {
    tools_parallel: Math.max(1, Math.floor(resilience.number('tools.parallel', 4))),
    durability: resilience.oneOf('transcript.durability', ['turn', 'always', 'off'], 'turn'),
    token_deltas: resilience.oneOf(
      'transcript.token_deltas',
      ['every', 'coalesced', 'off'],
      'coalesced',
    ),
    ...(maxRetries === UNBOUNDED ? {} : { max_retries: Math.floor(maxRetries) }),
    retry_seconds: resilience.number('retry.max_seconds', 300),
    connect_seconds: resilience.number('retry.connect_seconds', 10),
    first_byte_seconds: resilience.number(
      'retry.stall_seconds',
      resilience.number('retry.first_byte_seconds', 300),
    ),
    stall_seconds: resilience.number(
      'retry.stall_seconds',
      resilience.number('retry.idle_seconds', 120),
    ),
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
      mode: resilience.oneOf('tools.sandbox', ['off', 'auto', 'required'], 'off'),
      allow_domains: resilience.texts('tools.allow_domains'),
      allow_caches: resilience.texts('tools.allow_caches'),
    },
  };
}
