import { RyeError } from '../core/errors.ts';
import type { ProviderConfig } from '../providers/catalog.ts';
import { keyVariable } from '../providers/endpoint.ts';
import { childEnvironment, runProcess } from '../tools/process.ts';

type Env = Readonly<Record<string, string | undefined>>;
type Keyed = Pick<
  ProviderConfig,
  'name' | 'apiKeyEnv' | 'authTokenEnv' | 'awsService' | 'baseUrlEnv' | 'credentialCommand'
>;

const TIMEOUT_MS = 10_000;
const MAX_KEY_BYTES = 16 * 1024;
/** Characters that a header carries. */
const KEY = /^[!-~]+$/;

/**
 * Keys that the program or a command gave while rye is open, in place of variables of the environment. They are in the memory of
 * this process alone: no file, log, child process or message has them.
 */
export class Credentials {
  readonly #options: { readonly env: Env; readonly projectPath: string };
  readonly #given = new Map<string, string>();
  readonly #asking = new Map<string, Promise<string>>();

  constructor(options: { readonly env: Env; readonly projectPath: string }) {
    this.#options = options;
  }

  /** The environment with these keys, for providers alone. */
  get env(): Env {
    const { env } = this.#options;
    return this.#given.size === 0 ? env : { ...env, ...Object.fromEntries(this.#given) };
  }

  get secrets(): readonly string[] {
    return [...this.#given.values()];
  }

  /** Has the command of a provider that has one and no key yet print it. Throws `provider_key_missing`. */
  async ensure(config: Keyed): Promise<void> {
    const variable = keyVariable(config, this.env);
    if (variable === undefined || config.credentialCommand === undefined) return;
    if (this.env[variable]) return;
    this.#given.set(variable, await this.#ask(config));
  }

  /** Replaces a key that was refused, by the given one or by what the command prints; false if there is no other. */
  async renew(config: Keyed, key: string | undefined): Promise<boolean> {
    const variable = keyVariable(config, this.env);
    if (variable === undefined) return false;
    if (key === undefined && config.credentialCommand === undefined) return false;
    const next = key === undefined ? await this.#ask(config) : keyOf(key, config);
    if (next === this.env[variable]) return false;
    this.#given.set(variable, next);
    return true;
  }

  /** Runs the command once for all threads that wait for it. */
  async #ask(config: Keyed): Promise<string> {
    const asking = this.#asking.get(config.name) ?? this.#run(config);
    this.#asking.set(config.name, asking);
    try {
      return await asking;
    } finally {
      this.#asking.delete(config.name);
    }
  }

  /** Shows nothing of the output: any part of it may be the secret. */
  async #run(config: Keyed): Promise<string> {
    const { env, projectPath } = this.#options;
    const [command = '', ...args] = config.credentialCommand ?? [];
    const chunks: Buffer[] = [];
    let bytes = 0;
    const {
      RYE_THREAD_ID: _,
      RYE_PARENT_THREAD_ID: __,
      ...own
    } = childEnvironment(env, {
      projectPath,
      threadId: '',
    });
    const { exitCode, stopped } = await runProcess({
      command,
      args,
      cwd: projectPath,
      env: own,
      timeoutMs: TIMEOUT_MS,
      signal: new AbortController().signal,
      onStdout: (chunk) => {
        bytes += chunk.length;
        chunks.push(chunk);
        return bytes <= MAX_KEY_BYTES;
      },
      onStderr: () => true,
    });
    if (exitCode !== 0 || stopped !== undefined) {
      const why = stopped === undefined ? `exit ${exitCode ?? 'by a signal'}` : ENDS[stopped];
      throw new RyeError(
        'provider_key_missing',
        `the credential_command of the provider ${config.name} failed: ${why}`,
        { hint: 'Run it by hand. Its output is a secret, so rye shows nothing of it.' },
      );
    }
    return keyOf(Buffer.concat(chunks).toString('utf8'), config);
  }
}

const ENDS = {
  timeout: `no answer after ${TIMEOUT_MS / 1000} s`,
  aborted: 'aborted',
  output: `more than ${MAX_KEY_BYTES} bytes`,
} as const;

/** The text must not be in the error: it may be most of a key. */
function keyOf(text: string, { name }: Keyed): string {
  const key = text.trim();
  if (KEY.test(key) && key.length <= MAX_KEY_BYTES) return key;
  throw new RyeError('provider_key_missing', `the new key of the provider ${name} is not a key`, {
    hint: 'A key is one word of printable ASCII characters.',
  });
}
