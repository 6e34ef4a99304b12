import { readdirSync, readFileSync } from 'node:fs';
import * as fc from 'fast-check';
import { it } from 'vitest';
import { parse } from 'yaml';
import { shippedKinds } from '../../src/kernel/app/models.ts';
import { isRecord, type JsonObject } from '../../src/kernel/core/json.ts';
import { parseCatalog } from '../../src/kernel/providers/catalog.ts';
import { runs } from '../helpers/runs.ts';
import { parseCatalog as parseByHand } from './by-hand/catalog.ts';
import { expectSame, mutated } from './old-and-new.ts';

const FOLDER = new URL('../../.ai/config/agent/providers/', import.meta.url);
const KINDS = shippedKinds();

const model = {
  context_window: 1000,
  max_output_tokens: 100,
  thinking: 'budget',
  capabilities: ['tools'],
  pricing: { input: 1, output: 2, cache_read: 0.5, cache_write: 0 },
};
const documents: readonly JsonObject[] = [
  // `wire` is newer than what was written by hand
  ...readdirSync(FOLDER).map((file) => {
    const { wire: _wire, ...rest } = parse(
      readFileSync(new URL(file, FOLDER), 'utf8'),
    ) as JsonObject;
    return rest;
  }),
  {
    kind: 'openai',
    dialect: 'vllm',
    description: 'All members.',
    base_url: 'http://127.0.0.1/v1',
    base_url_env: 'A',
    api_key_env: 'B',
    auth_token_env: 'C',
    key_optional: true,
    key_header: 'api-key',
    chat_path: '/deployments/{model}/chat/completions?api-version=1',
    aws_service: 'bedrock-mantle',
    price_list: 'openai',
    output_tokens_per_second: 1200.5,
    headers: { 'X-A': 'b' },
    models: { m: model, n: { context_window: 1, max_output_tokens: 1 } },
    other_models: model,
    tiers: { fast: 'm', cheap: 'fast' },
    fallback: ['n'],
    prices_as_of: '2026-01-01',
  },
  { kind: 'anthropic', models: { m: model }, tiers: { high: 'm' } },
];
const origins = new Map([
  ['models', 'p.yaml:3'],
  ['models.m.context_window', 'p.yaml:5'],
]);

it('a provider file is read and refused as by hand', () => {
  fc.assert(
    fc.property(mutated(documents).filter(isRecord), (value) => {
      const files = { mine: { value: value as JsonObject, origins } };
      expectSame(
        () => parseByHand(files, KINDS),
        () => parseCatalog(files, KINDS),
      );
    }),
    runs(1500),
  );
});
