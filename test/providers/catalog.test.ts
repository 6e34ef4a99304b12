import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { parse } from 'yaml';
import { shippedKinds } from '../../src/kernel/app/models.ts';
import type { JsonObject } from '../../src/kernel/core/json.ts';
import {
  type Catalog,
  type LayeredConfig,
  parseCatalog,
} from '../../src/kernel/providers/catalog.ts';
import {
  type ModelWish,
  resolveFallbacks,
  resolveModel,
  usableProviders,
} from '../../src/kernel/providers/resolve-model.ts';

const KINDS = shippedKinds();
const FOLDER = new URL('../../.ai/config/agent/providers/', import.meta.url);

function layered(value: JsonObject, origins: Record<string, string> = {}): LayeredConfig {
  return { value, origins: new Map(Object.entries(origins)) };
}

function shipped(): Catalog {
  const files = readdirSync(FOLDER).map((file) => {
    const value = parse(readFileSync(new URL(file, FOLDER), 'utf8')) as JsonObject;
    return [file.replace('.yaml', ''), layered(value)] as const;
  });
  return parseCatalog(Object.fromEntries(files), KINDS);
}

const CATALOG = shipped();
const MODEL = { context_window: 1000, max_output_tokens: 100 };

function resolved(
  wish: ModelWish,
  env: Record<string, string> = {},
  defaultProvider?: string,
): string {
  const { provider, id, tier } = resolveModel(wish, {
    catalog: CATALOG,
    kinds: KINDS,
    usable: usableProviders(CATALOG, env),
    defaultProvider,
  });
  return `${provider} ${id} ${String(tier)}`;
}

const EMPTY = { catalog: {}, kinds: KINDS, usable: [] };
const LITERAL = resolveModel({ wanted: 'literal' }, EMPTY);
const REPLAY = resolveModel({ provider: 'replay' }, EMPTY);
const CLAUDE = { ANTHROPIC_API_KEY: 'k' };
const BOTH = { ...CLAUDE, OPENAI_API_KEY: 'k' };

describe('the shipped providers', () => {
  test('parse, and each has the four tiers and dated prices', () => {
    expect(Object.keys(CATALOG).toSorted()).toEqual([
      'anthropic',
      'azure',
      'bedrock',
      'bedrock-open',
      'gemini',
      'groq',
      'lmstudio',
      'mistral',
      'ollama',
      'openai',
      'openrouter',
      'vllm',
    ]);
    for (const { tiers, pricesAsOf, models } of Object.values(CATALOG)) {
      expect(Object.keys(tiers)).toEqual(
        expect.arrayContaining([
          'fast',
          'general',
          'high',
          'max',
          'low',
          'haiku',
          'sonnet',
          'orchestrator',
        ]),
      );
      expect(pricesAsOf).toMatch(/^\d{4}-\d\d-\d\d$/);
      for (const { pricing, contextWindow, maxOutputTokens } of Object.values(models)) {
        expect(pricing).not.toBeNull();
        expect(maxOutputTokens).toBeLessThan(contextWindow);
      }
    }
  });

  test('local models cost nothing', () => {
    const prices = Object.values(CATALOG['ollama']?.models ?? {}).map(({ pricing }) => pricing);
    for (const pricing of [...prices, CATALOG['ollama']?.otherModels?.pricing]) {
      expect(pricing).toEqual({ input: 0, output: 0, cache_read: 0, cache_write: 0 });
    }
  });
});

describe('resolving', () => {
  test.for<[ModelWish, Record<string, string>, string | undefined, string]>([
    [{}, {}, undefined, 'literal literal null'],
    [{ wanted: 'haiku' }, {}, undefined, 'literal literal null'],
    [{ wanted: 'literal' }, CLAUDE, undefined, 'literal literal null'],
    [{ provider: 'literal', wanted: 'high' }, CLAUDE, 'anthropic', 'literal literal null'],
    [{ provider: 'replay' }, {}, undefined, 'replay replay null'],
    [{}, CLAUDE, undefined, 'anthropic claude-sonnet-5-5 general'],
    [{}, BOTH, undefined, 'anthropic claude-sonnet-5-5 general'],
    [{}, { ANTHROPIC_AUTH_TOKEN: 't' }, undefined, 'anthropic claude-sonnet-5-5 general'],
    [{ wanted: 'low' }, CLAUDE, undefined, 'anthropic claude-haiku-5-5 low'],
    [{ wanted: 'orchestrator' }, CLAUDE, undefined, 'anthropic claude-opus-5-5 orchestrator'],
    [{ wanted: 'max' }, BOTH, 'openai', 'openai gpt-6-astra max'],
    [{ wanted: 'gpt-6-luna' }, BOTH, 'anthropic', 'openai gpt-6-luna null'],
    [{ wanted: 'anthropic/high' }, BOTH, undefined, 'anthropic claude-opus-5-5 high'],
    [{ provider: 'openai' }, BOTH, 'anthropic', 'openai gpt-6-sol general'],
    [{ provider: 'ollama', wanted: 'mistral:7b' }, {}, undefined, 'ollama mistral:7b null'],
    [{ provider: 'ollama' }, {}, undefined, 'ollama gpt-oss:20b general'],
    [{ wanted: 'fast' }, { OLLAMA_BASE_URL: 'http://x' }, undefined, 'ollama qwen3:8b fast'],
    [
      { wanted: 'mistral:7b' },
      { OLLAMA_BASE_URL: 'http://x' },
      undefined,
      'ollama mistral:7b null',
    ],
    [{ wanted: 'openai/gpt-6-sol' }, BOTH, undefined, 'openai gpt-6-sol null'],
    [
      { wanted: 'openai/gpt-6-sol' },
      { ...BOTH, OPENROUTER_API_KEY: 'k' },
      undefined,
      'openrouter openai/gpt-6-sol null',
    ],
    [
      { wanted: 'anthropic/claude-opus-5.5' },
      { OPENROUTER_API_KEY: 'k' },
      undefined,
      'openrouter anthropic/claude-opus-5.5 null',
    ],
  ])('%j with %j and the default %s is %s', ([wish, env, preferred, expected]) => {
    expect(resolved(wish, env, preferred)).toBe(expected);
  });

  test.for<[ModelWish, Record<string, string>, string | undefined, string, string]>([
    [{ wanted: 'claude-opus-5-5' }, {}, undefined, 'provider_key_missing', 'Set ANTHROPIC_API_KEY'],
    [{}, {}, 'openai', 'provider_key_missing', 'Set OPENAI_API_KEY'],
    [
      { provider: 'anthropic' },
      { ANTHROPIC_API_KEY: '' },
      undefined,
      'provider_key_missing',
      'ANTHROPIC_API_KEY',
    ],
    [
      { wanted: 'claude-sonet-5-5' },
      CLAUDE,
      undefined,
      'model_not_found',
      'Did you mean claude-sonnet-5-5',
    ],
    [
      { provider: 'anthropic', wanted: 'gpt-6-sol' },
      CLAUDE,
      undefined,
      'model_not_found',
      'Pass --provider azure or --provider openai, which has it.',
    ],
    [{ provider: 'antropic' }, CLAUDE, undefined, 'model_not_found', 'Did you mean anthropic?'],
    [{ provider: 'constructor' }, CLAUDE, undefined, 'model_not_found', 'Configured:'],
    [{ wanted: 'constructor' }, CLAUDE, undefined, 'model_not_found', ''],
    [{ wanted: 'no/such' }, {}, undefined, 'model_not_found', ''],
  ])('%j with %j and the default %s is refused as %s', ([wish, env, preferred, code, hint]) => {
    expect(() => resolved(wish, env, preferred)).toThrow(
      expect.objectContaining({ code, hint: expect.stringContaining(hint) }),
    );
  });

  test('a planned model carries what is needed to call and price it', () => {
    const choices = { catalog: CATALOG, kinds: KINDS, usable: ['anthropic'] };
    expect(resolveModel({ wanted: 'claude-opus-5-5' }, choices)).toEqual({
      provider: 'anthropic',
      kind: 'anthropic',
      id: 'claude-opus-5-5',
      tier: null,
      context_window: 1_000_000,
      max_output_tokens: 128_000,
      pricing: { input: 4, output: 20, cache_read: 0.2, cache_write: 5 },
    });
    expect(
      resolveModel(
        { provider: 'openrouter', wanted: 'x/y' },
        { catalog: CATALOG, kinds: KINDS, usable: ['openrouter'] },
      ).pricing,
    ).toBeNull();
    expect([LITERAL.pricing?.output, REPLAY.pricing?.output]).toEqual([0, 0]);
  });

  test('a server that takes any id is not asked for a tier that it does not have', () => {
    const catalog = parseCatalog(
      {
        vllm: layered({ kind: 'openai', base_url: 'http://x/v1', other_models: MODEL }),
      },
      KINDS,
    );
    expect(() => resolveModel({ provider: 'vllm' }, { catalog, kinds: KINDS, usable: [] })).toThrow(
      expect.objectContaining({ code: 'model_not_found' }),
    );
    expect(
      resolveModel({ provider: 'vllm', wanted: 'mine' }, { catalog, kinds: KINDS, usable: [] }).id,
    ).toBe('mine');
  });

  test("fallbacks are those that were named, else the provider's, never the first again", () => {
    const value = {
      kind: 'anthropic',
      api_key_env: 'K',
      models: { a: MODEL, b: MODEL, c: MODEL },
      fallback: ['a', 'b', 'b'],
    };
    const choices = {
      catalog: parseCatalog({ p: layered(value) }, KINDS),
      kinds: KINDS,
      usable: ['p'],
    };
    const first = resolveModel({ wanted: 'a' }, choices);
    expect(resolveFallbacks(first, undefined, choices).map(({ id }) => id)).toEqual(['b']);
    expect(resolveFallbacks(first, ['c', 'a', 'literal'], choices).map(({ id }) => id)).toEqual([
      'c',
      'literal',
    ]);
    expect(() => resolveFallbacks(first, ['d'], choices)).toThrow(
      expect.objectContaining({ code: 'model_not_found' }),
    );
    expect(resolveFallbacks(LITERAL, undefined, choices)).toEqual([]);
  });
});

describe('a provider file', () => {
  test.for<[JsonObject, string]>([
    [{}, 'kind is missing'],
    [{ kind: 'gemini' }, 'kind is "gemini"'],
    [{ kind: 'openai', base_ur: 'x' }, 'base_ur is not a known key'],
    [{ kind: 'openai', base_url: 'ftp://x' }, 'base_url is "ftp://x"'],
    [{ kind: 'openai', api_key_env: 7 }, 'api_key_env is 7'],
    [{ kind: 'openai', headers: { 'X-A': 'a\r\nX-B: b' } }, 'headers.X-A is not a header'],
    [{ kind: 'openai', models: [] }, 'models is not a mapping'],
    [
      { kind: 'openai', models: { m: { ...MODEL, context_window: 0 } } },
      'models.m.context_window is 0',
    ],
    [
      { kind: 'openai', models: { m: { ...MODEL, pricing: { input: -1, output: 1 } } } },
      'models.m.pricing.input is -1',
    ],
    [
      { kind: 'openai', models: { m: { ...MODEL, pricing: { input: 1 } } } },
      'models.m.pricing.output is undefined',
    ],
    [
      { kind: 'openai', models: { m: { ...MODEL, thinking: 'deep' } } },
      'models.m.thinking is "deep"',
    ],
    [
      { kind: 'openai', models: { m: { ...MODEL, capabilities: ['fly'] } } },
      'models.m.capabilities has "fly"',
    ],
    [{ kind: 'openai', models: { m: MODEL }, tiers: { fast: 'n' } }, 'tiers.fast is "n"'],
    [{ kind: 'openai', models: { m: MODEL }, tiers: { a: 'b', b: 'a' } }, 'tiers.a is "b"'],
    [{ kind: 'openai', models: { m: MODEL }, fallback: ['n'] }, 'fallback has "n"'],
    [{ kind: 'openai', wire: [] }, 'wire is not a mapping'],
    [{ kind: 'openai', wire: { tool_names: {} } }, 'wire.tool_names is not a known key'],
    [{ kind: 'openai', wire: { call_id: 9 } }, 'wire.call_id is not a mapping'],
    [{ kind: 'openai', wire: { call_id: { length: 8 } } }, 'wire.call_id.length is 8'],
    [{ kind: 'openai', wire: { call_id: { length: 1e6 } } }, 'wire.call_id.length is 1000000'],
    [{ kind: 'openai', wire: { call_id: { length: '9' } } }, 'wire.call_id.length is "9"'],
    [{ kind: 'openai', wire: { call_id: { pattern: '(a+)+$' } } }, 'wire.call_id.pattern is not'],
    [{ kind: 'openai', wire: { tool_name: { punctuation: 'é' } } }, 'tool_name.punctuation is "é"'],
    [{ kind: 'openai', wire: { tool_name: { punctuation: 'a-z' } } }, 'punctuation is "a-z"'],
    [{ kind: 'openai', wire: { tool_name: { exact: 'yes' } } }, 'wire.tool_name.exact is "yes"'],
    [{ kind: 'openai', wire: { property_name: true } }, 'wire.property_name is not a mapping'],
    [{ kind: 'openai', wire: { refused_at_top: 'anyOf' } }, 'wire.refused_at_top is not a list'],
    [{ kind: 'openai', wire: { refused_at_top: ['a b'] } }, 'wire.refused_at_top has "a b"'],
    [{ kind: 'openai', wire: { images: ['image/png'] } }, 'wire.images has "image/png"'],
    [{ kind: 'openai', wire: { images: ['svg'] } }, 'wire.images has "svg"'],
    [{ kind: 'openai', wire: { list_items: 1 } }, 'wire.list_items is 1'],
    [{ kind: 'openai', wire: { blank_text: null } }, 'wire.blank_text is null'],
    [{ kind: 'openai', wire: { after_results: 'tool' } }, 'wire.after_results is "tool"'],
  ])('%j is refused: %s', ([value, message]) => {
    expect(() => parseCatalog({ mine: layered(value) }, KINDS)).toThrow(
      expect.objectContaining({
        code: 'config_invalid',
        message: expect.stringContaining(message),
      }),
    );
  });

  test('an error points at the file and line that set the value', () => {
    const value = { kind: 'openai', models: { m: { ...MODEL, max_output_tokens: 'many' } } };
    const file = layered(value, { 'models.m.max_output_tokens': 'p.yaml:7', models: 'p.yaml:3' });
    expect(() => parseCatalog({ mine: file }, KINDS)).toThrow(
      /^p\.yaml:7: provider mine: models\.m\.max_output_tokens/,
    );
  });

  test('tiers may name tiers, and own aliases win over the common ones', () => {
    const value = {
      kind: 'openai',
      models: { a: MODEL, b: MODEL },
      tiers: { fast: 'a', cheap: 'fast', haiku: 'b' },
    };
    const { tiers } = parseCatalog({ mine: layered(value) }, KINDS)['mine'] ?? {};
    expect(tiers).toMatchObject({ fast: 'a', cheap: 'a', haiku: 'b', low: 'a' });
    expect(tiers).not.toHaveProperty('general');
    expect(tiers).not.toHaveProperty('sonnet');
  });

  test('a fallback may be a model of another provider, and a listed id is always the own one', () => {
    const catalog = parseCatalog(
      {
        p: layered({
          kind: 'anthropic',
          api_key_env: 'P',
          models: { a: MODEL },
          fallback: ['q/b'],
        }),
        q: layered({
          kind: 'openai',
          api_key_env: 'Q',
          models: { b: MODEL, 'p/a': MODEL },
          fallback: ['p/a', 'p/x'],
          other_models: MODEL,
        }),
      },
      KINDS,
    );
    const chain = (provider: string, wanted: string, usable: readonly string[]) =>
      resolveFallbacks(
        resolveModel({ provider, wanted }, { catalog, kinds: KINDS, usable: ['p', 'q'] }),
        undefined,
        { catalog, kinds: KINDS, usable },
      ).map((model) => `${model.provider}:${model.id}`);
    expect(chain('p', 'a', ['p', 'q'])).toEqual(['q:b']);
    expect(() => chain('p', 'a', ['p'])).toThrow(
      expect.objectContaining({ code: 'provider_key_missing' }),
    );
    expect(() => chain('q', 'b', ['p', 'q'])).toThrow(
      expect.objectContaining({
        code: 'model_not_found',
        message: expect.stringContaining('"x"') as string,
      }),
    );
  });

  test("rules of the wire are the dialect's, with single members replaced", () => {
    const own = { kind: 'openai', dialect: 'mistral', models: { m: MODEL } };
    const shorter = { ...own, wire: { call_id: { length: 12 }, images: ['png'] } };
    const { lab, gateway, other } = parseCatalog(
      {
        mistral: layered({ ...own, wire: { call_id: { length: 9, exact: true } } }),
        lab: layered(own),
        gateway: layered(shorter),
        other: layered({ ...own, dialect: 'vllm' }),
      },
      KINDS,
    );
    expect(lab?.wire).toEqual({ call_id: { length: 9, exact: true } });
    expect(gateway?.wire).toEqual({ call_id: { length: 12, exact: true }, images: ['png'] });
    expect(other).not.toHaveProperty('wire');
  });

  test('a dialect is one that is known', () => {
    const kind = { kind: 'openai', models: { m: MODEL } };
    expect(parseCatalog({ p: layered(kind) }, KINDS)['p']?.dialect).toBe('compatible');
    expect(() => parseCatalog({ p: layered({ ...kind, dialect: 'soup' }) }, KINDS)).toThrow(
      expect.objectContaining({
        code: 'config_invalid',
        hint: expect.stringContaining('vllm') as string,
      }),
    );
    expect(CATALOG['openrouter']?.dialect).toBe('openrouter');
  });
});
