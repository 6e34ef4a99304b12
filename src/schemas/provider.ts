import * as z from 'zod';

const mapping = { problem: 'is not a mapping' };
const list = { problem: 'is not a list' };
const text = z.string().min(1).nullish().meta({ problem: 'is {value}, not a text' });
const tokens = z.int().positive().meta({ problem: 'is {value}, not a number of tokens above 0' });
const price = z.number().min(0).meta({
  problem: 'is {value}',
  hint: 'A price is a number of USD per million tokens, 0 or more.',
});
const oneOf = <const T extends string>(...names: readonly T[]) =>
  z.enum(names).meta({ problem: 'is {value}', hint: `Use one of ${names.join(', ')}.` });
const header = {
  problem: 'is not a header',
  hint: 'A header is a name and one line of text.',
};

const modelFile = z
  .strictObject({
    context_window: tokens,
    max_output_tokens: tokens,
    pricing: z
      .strictObject({
        input: price,
        output: price,
        cache_read: price.optional(),
        cache_write: price.optional(),
      })
      .nullish()
      .meta(mapping),
    thinking: oneOf('always', 'adaptive', 'between_tools', 'budget', 'none').optional(),
    capabilities: z
      .array(
        z.enum(['tools', 'images', 'forced_tools', 'structured_output']).meta({
          problem: 'has {value}',
          hint: 'Use some of tools, images, forced_tools, structured_output.',
        }),
      )
      .meta(list)
      .optional(),
  })
  .meta(mapping);

/** A file of `.ai/config/agent/providers/`. A kind of the program may have more members. */
export const providerFile = z.strictObject({
  kind: z.string(),
  dialect: oneOf(
    'compatible',
    'openai',
    'openrouter',
    'ollama',
    'vllm',
    'llamacpp',
    'azure',
    'gemini',
    'groq',
    'lmstudio',
    'mistral',
  ).nullish(),
  description: z.unknown().optional(),
  base_url: text,
  base_url_env: text,
  api_key_env: text,
  auth_token_env: text,
  key_optional: z.boolean().nullish().meta({ problem: 'is {value}, not true or false' }),
  key_header: z
    .string()
    .regex(/^[A-Za-z0-9-]+$/)
    .nullish()
    .meta({ problem: 'is {value}, not the name of a header' }),
  chat_path: z
    .string()
    .regex(/^\/\S*$/)
    .nullish()
    .meta({
      problem: 'is {value}',
      hint: 'Use a path that starts with /, such as /chat/completions.',
    }),
  aws_service: z
    .string()
    .regex(/^[a-z0-9-]+$/)
    .nullish()
    .meta({
      problem: 'is {value}',
      hint: 'Use the signing name of the service, such as bedrock-mantle.',
    }),
  price_list: text,
  output_tokens_per_second: z
    .number()
    .positive()
    .nullish()
    .meta({ problem: 'is {value}, not a number of tokens above 0' }),
  headers: z
    .record(
      z
        .string()
        .regex(/^[A-Za-z0-9-]+$/)
        .meta(header),
      z
        .string()
        .regex(/^[^\r\n\0]*$/)
        .meta(header),
    )
    .nullish()
    .meta(mapping),
  models: z.record(z.string(), modelFile).nullish().meta(mapping),
  other_models: modelFile.optional(),
  tiers: z
    .record(
      z.string(),
      z.string().meta({
        problem: 'is {value}, which is neither a model nor a tier of this provider',
      }),
    )
    .nullish()
    .meta(mapping),
  fallback: z
    .array(z.string().meta({ problem: 'has {value}, which is not a model of this provider' }))
    .nullish()
    .meta(list),
  prices_as_of: text,
});

export type ProviderFile = z.infer<typeof providerFile>;
export type ModelFile = z.infer<typeof modelFile>;
