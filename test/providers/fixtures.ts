import type { Clock } from '../../src/kernel/core/clock.ts';
import { anthropicProvider } from '../../src/kernel/providers/anthropic/provider.ts';
import type { ProviderConfig } from '../../src/kernel/providers/catalog.ts';
import { openAiProvider } from '../../src/kernel/providers/openai/provider.ts';
import type { ModelProvider } from '../../src/kernel/providers/provider.ts';

/** The system's time. */
export const systemClock: Clock = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep: async (ms, signal) =>
    new Promise((resolve) => {
      if (signal?.aborted) {
        resolve();
        return;
      }
      const timer = setTimeout(resolve, ms);
      const wake = (): void => {
        clearTimeout(timer);
        resolve();
      };
      signal?.addEventListener('abort', wake, { once: true });
    }),
};

/** A clock that only moves when told to. */
export interface ManualClock extends Clock {
  advance(ms: number): Promise<void>;
  /** Settles when the monotonic time is read next. */
  asked(): Promise<void>;
}

export function manualClock(startMs = Date.UTC(2026, 10, 21)): ManualClock {
  let at = 0;
  let sleepers: { until: number; wake: () => void }[] = [];
  const noticed: (() => void)[] = [];
  return {
    now: () => startMs + at,
    monotonic: () => {
      for (const notice of noticed.splice(0)) notice();
      return at;
    },
    sleep: async (ms, signal) =>
      new Promise((resolve) => {
        if (signal?.aborted) {
          resolve();
          return;
        }
        const wake = (): void => {
          signal?.removeEventListener('abort', wake);
          resolve();
        };
        sleepers.push({ until: at + ms, wake });
        signal?.addEventListener('abort', wake, { once: true });
      }),
    asked: async () =>
      new Promise((resolve) => {
        noticed.push(resolve);
      }),
    advance: async (ms) => {
      at += ms;
      const due = sleepers.filter(({ until }) => until <= at);
      sleepers = sleepers.filter(({ until }) => until > at);
      for (const { wake } of due) wake();
      await new Promise(setImmediate);
    },
  };
}

export function providerConfig(overrides: Partial<ProviderConfig> = {}): ProviderConfig {
  return {
    name: 'anthropic',
    kind: 'anthropic',
    dialect: 'compatible',
    baseUrl: 'https://api.anthropic.com',
    baseUrlEnv: 'ANTHROPIC_BASE_URL',
    apiKeyEnv: 'ANTHROPIC_API_KEY',
    authTokenEnv: 'ANTHROPIC_AUTH_TOKEN',
    keyOptional: false,
    keyHeader: null,
    chatPath: null,
    awsService: null,
    priceList: null,
    outputTokensPerSecond: 500,
    headers: {},
    models: {},
    otherModels: null,
    tiers: {},
    fallback: [],
    pricesAsOf: null,
    options: {},
    ...overrides,
  };
}

/** The key that no failure may show. */
export const SECRET_KEY = 'sk-test-4f1d9b';

export function claudeAt(
  url: string,
  clock: Clock = systemClock,
  stallSeconds = 60,
  firstByteSeconds = stallSeconds,
): ModelProvider {
  return anthropicProvider({
    config: providerConfig(),
    env: { ANTHROPIC_BASE_URL: url, ANTHROPIC_API_KEY: SECRET_KEY },
    clock,
    stallSeconds,
    firstByteSeconds,
  });
}

/** A provider of the kind `openai` that asks a scripted server. */
export function chatAt(
  url: string,
  overrides: Partial<ProviderConfig> = {},
  clock: Clock = systemClock,
  stallSeconds = 60,
): ModelProvider {
  return openAiProvider({
    config: providerConfig({
      name: 'openai',
      kind: 'openai',
      dialect: 'openai',
      baseUrlEnv: 'OPENAI_BASE_URL',
      apiKeyEnv: 'OPENAI_API_KEY',
      authTokenEnv: null,
      ...overrides,
    }),
    env: { OPENAI_BASE_URL: url, OPENAI_API_KEY: SECRET_KEY },
    clock,
    stallSeconds,
  });
}
