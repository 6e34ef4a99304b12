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
const flag = z.boolean().optional().meta({ problem: 'is {value}, not true or false' });
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

const textRule = z
  .strictObject({
    punctuation: z
      .string()
      .regex(/^[!-/:-@[-`{-~]*$/)
      .optional()
      .meta({
        problem: 'is {value}',
        hint: 'Name the characters that are allowed besides letters and digits, such as "_-".',
      }),
    length: z
      .int()
      .min(9)
      .max(1000)
      .optional()
      .meta({ problem: 'is {value}, not a number of characters from 9 to 1000' }),
    exact: flag,
    starts_with_letter: flag,
  })
  .optional()
  .meta(mapping);
const keyword = z
  .string()
  .regex(/^\$?[A-Za-z]{1,40}$/)
  .meta({ problem: 'has {value}, not a keyword of JSON Schema' });

/** The rules of an API for requests. An absent member is that of the kind of API. */
const wireFile = z.strictObject({
  tool_name: textRule,
  call_id: textRule,
  property_name: textRule.unwrap().nullish().meta(mapping),
  refused_at_top: z.array(keyword).optional().meta(list),
  list_items: flag,
  images: z
    .array(
      z
        .enum(['png', 'jpeg', 'gif', 'webp'])
        .meta({ problem: 'has {value}', hint: 'Use some of png, jpeg, gif, webp.' }),
    )
    .optional()
    .meta(list),
  blank_text: flag,
  after_results: oneOf('user', 'assistant').optional(),
});

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
  credential_command: z
    .array(z.string().min(1).meta({ problem: 'has {value}, not a text' }))
    .min(1)
    .nullish()
    .meta({ problem: 'is {value}, not a list of a program and its arguments' }),
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
  betas: z
    .array(
      z
        .string()
        .regex(/^[A-Za-z0-9._-]+$/)
        .meta({ problem: 'has {value}, not the name of a beta' }),
    )
    .nullish()
    .meta(list),
  context_management: z.looseObject({}).nullish().meta(mapping),
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
  wire: wireFile.optional().meta(mapping),
});

export type ProviderFile = z.infer<typeof providerFile>;
export type WireFile = z.infer<typeof wireFile>;
export type ModelFile = z.infer<typeof modelFile>;
