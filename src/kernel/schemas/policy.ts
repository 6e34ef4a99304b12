import * as z from 'zod';
import { RISKS } from '../core/capability.ts';

const oneOf = <const T extends string>(...names: readonly T[]) =>
  z.enum(names).meta({ problem: `is {value}, not one of ${names.join(', ')}` });
const mapping = { problem: 'is not a mapping' };
const seconds = z
  .number()
  .min(0)
  .nullish()
  .meta({ problem: 'is {value}, not a number of seconds' });
const unread = z.unknown().optional();

const text = z.string().min(1).meta({ problem: 'is {value}, not a text' });
const texts = z
  .union([text, z.array(text).min(1).meta({ problem: 'is an empty list' })])
  .optional();
const status = { problem: 'is {value}, not a status such as 429, or 5xx' };
const code = z.int().meta(status);
const codes = z
  .string()
  .regex(/^[1-5][xX][xX]$/)
  .meta(status);

/** When and how a failed model call is repeated. */
const retry = z
  .strictObject({
    policy: oneOf('exponential', 'fixed', 'use_header', 'none'),
    base_seconds: seconds,
    max_seconds: seconds,
    delay_seconds: seconds,
    jitter: oneOf('equal', 'full').optional(),
    max_retries: z.int().min(0).optional().meta({ problem: 'is {value}, not a whole number' }),
    // another retry, which is checked by itself
    fallback: unread,
  })
  .meta(mapping);

/** A pattern of `error_classification.yaml`. */
export const errorPattern = z
  .strictObject({
    id: unread,
    description: unread,
    match: z
      .strictObject({
        status: z
          .union([
            code,
            codes,
            z
              .array(z.union([code, codes]))
              .min(1)
              .meta({ problem: 'is an empty list' }),
          ])
          .optional(),
        type: texts,
        phase: texts,
        message: texts,
      })
      .meta(mapping),
    category: oneOf(
      'rate_limited',
      'transient',
      'permanent',
      'quota',
      'auth',
      'context_exceeded',
      'cancelled',
      'content_filtered',
    ),
    retryable: z.boolean().nullish().meta({ problem: 'is not true or false' }),
    retry: unread,
  })
  .meta(mapping);

const riskPolicy = oneOf('allow', 'ask', 'acknowledge_required', 'block').optional();

/** `capability_risk.yaml`. */
export const riskTable = z
  .object({
    risk_levels: z
      .strictObject({
        safe: riskPolicy,
        write: riskPolicy,
        elevated: riskPolicy,
        unrestricted: riskPolicy,
      })
      .optional()
      .meta(mapping),
    classifications: z
      .array(
        z
          .object({
            risk: oneOf(...RISKS),
            patterns: z
              .array(z.unknown())
              .min(1)
              .meta({ problem: 'is not a list of capabilities' }),
            description: unread,
          })
          .meta(mapping),
      )
      .meta({ problem: 'is not a list' }),
  })
  .meta(mapping);

const requirement = oneOf('off', 'warn', 'required');
const requirements = z
  .union([
    requirement,
    z.strictObject({
      project: requirement.optional(),
      user: requirement.optional(),
      system: requirement.optional(),
    }),
  ])
  .optional();

/** `trust.yaml`: for each operation a requirement, or one for each space; and where `rye sign` writes signatures. */
export const trust = z
  .strictObject({
    execute: requirements,
    fetch: requirements,
    context: requirements,
    config: requirements,
    // the form of new signatures, which both count
    signing: oneOf('inline', 'detached').optional(),
  })
  .meta({ problem: 'is not a mapping of operations to requirements' });

export const policy = z.object({ errorPattern, retry, riskTable, trust });
export type ErrorPatternFile = z.infer<typeof errorPattern>;
export type RetryFile = z.infer<typeof retry>;
export type RiskTableFile = z.infer<typeof riskTable>;
export type TrustFile = z.infer<typeof trust>;
