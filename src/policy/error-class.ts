import { type ErrorCode, RyeError } from '../core/errors.ts';
import { isRecord, type JsonObject } from '../core/json.ts';
import { didYouMean } from '../core/text.ts';

/** Category of a failed model call; decides if another attempt makes sense. */
export const ERROR_CATEGORIES = [
  'rate_limited',
  'transient',
  'permanent',
  'quota',
  'auth',
  'context_exceeded',
  'cancelled',
  'content_filtered',
] as const;
export type ErrorCategory = (typeof ERROR_CATEGORIES)[number];

/** Policy for the delay before the next attempt. Durations are milliseconds. */
export type RetryPolicy =
  | { readonly kind: 'exponential'; readonly baseMs: number; readonly maxMs: number }
  | { readonly kind: 'fixed'; readonly delayMs: number }
  /** The server's delay; `fallback` if it sent none. */
  | { readonly kind: 'use_header'; readonly fallback: RetryPolicy }
  | { readonly kind: 'none' };

/** Facts of a failed call; a provider's failure has this shape. */
export interface FailureFacts {
  readonly message: string;
  readonly phase: string;
  readonly status?: number;
  readonly type?: string;
}

/** HTTP statuses from `first` to `last`. */
export interface StatusRange {
  readonly first: number;
  readonly last: number;
}

/** One pattern: any of the values within a key, all of the keys. Texts are compared in lower case. */
export interface ErrorRule {
  readonly id: string;
  readonly status: readonly StatusRange[];
  readonly type: readonly string[];
  readonly phase: readonly string[];
  /** Parts of the message. */
  readonly message: readonly string[];
  readonly category: ErrorCategory;
  readonly retryable: boolean;
  readonly policy: RetryPolicy;
}

export interface Classification {
  /** The rule that matched, or `default`. */
  readonly id: string;
  readonly category: ErrorCategory;
  readonly retryable: boolean;
  readonly policy: RetryPolicy;
}

const UNMATCHED: Classification = {
  id: 'default',
  category: 'permanent',
  retryable: false,
  policy: { kind: 'none' },
};

const RULE_KEYS = ['id', 'description', 'match', 'category', 'retryable', 'retry'];
const MATCH_KEYS = ['status', 'type', 'phase', 'message'];
const POLICY_KEYS = [
  'policy',
  'base_seconds',
  'max_seconds',
  'delay_seconds',
  'jitter',
  'fallback',
];

/**
 * Reads the `patterns` list of `error_classification.yaml`. `origin` is the file that errors name; a rule without
 * conditions, an unknown key or a negative delay is `config_invalid`, so that a typo never changes what is retried.
 */
export function parseErrorRules(
  patterns: readonly unknown[],
  origin: string,
): readonly ErrorRule[] {
  return patterns.map((raw, index) => parseRule(raw, `${origin}: patterns[${index}]`));
}

function parseRule(raw: unknown, where: string): ErrorRule {
  const rule = record(raw, where);
  onlyKeys(rule, RULE_KEYS, where);
  const match = record(rule['match'], `${where}.match`);
  onlyKeys(match, MATCH_KEYS, `${where}.match`);
  if (Object.keys(match).length === 0) {
    throw invalid(
      `${where}.match has no condition`,
      'Give at least one of status, type, phase, message.',
    );
  }
  const category = oneOf(rule['category'], ERROR_CATEGORIES, `${where}.category`);
  const retryable = rule['retryable'] ?? (category === 'rate_limited' || category === 'transient');
  if (typeof retryable !== 'boolean') throw invalid(`${where}.retryable is not true or false`);
  return {
    id: typeof rule['id'] === 'string' ? rule['id'] : where,
    status: listOf(match['status'], `${where}.match.status`).map((item) =>
      statusRange(item, `${where}.match.status`),
    ),
    type: texts(match['type'], `${where}.match.type`),
    phase: texts(match['phase'], `${where}.match.phase`),
    message: texts(match['message'], `${where}.match.message`),
    category,
    retryable,
    policy: parsePolicy(rule['retry'] ?? { policy: 'none' }, `${where}.retry`),
  };
}

function parsePolicy(raw: unknown, where: string): RetryPolicy {
  const policy = record(raw, where);
  onlyKeys(policy, POLICY_KEYS, where);
  const kind = oneOf(
    policy['policy'],
    ['exponential', 'fixed', 'use_header', 'none'],
    `${where}.policy`,
  );
  switch (kind) {
    case 'exponential':
      if (policy['jitter'] !== undefined && policy['jitter'] !== 'full') {
        throw invalid(
          `${where}.jitter is ${JSON.stringify(policy['jitter'])}`,
          'Only full is supported.',
        );
      }
      return {
        kind,
        baseMs: milliseconds(policy['base_seconds'] ?? 2, `${where}.base_seconds`),
        maxMs: milliseconds(policy['max_seconds'] ?? 120, `${where}.max_seconds`),
      };
    case 'fixed':
      return {
        kind,
        delayMs: milliseconds(policy['delay_seconds'] ?? 60, `${where}.delay_seconds`),
      };
    case 'use_header':
      return {
        kind,
        fallback: parsePolicy(policy['fallback'] ?? { policy: 'exponential' }, `${where}.fallback`),
      };
    case 'none':
      break;
  }
  return { kind: 'none' };
}

/** The first rule that matches decides; what no rule knows is permanent, because repeating it costs money. */
export function classify(facts: FailureFacts, rules: readonly ErrorRule[]): Classification {
  const rule = rules.find((candidate) => matches(candidate, facts));
  if (rule === undefined) return UNMATCHED;
  return { id: rule.id, category: rule.category, retryable: rule.retryable, policy: rule.policy };
}

function matches(rule: ErrorRule, facts: FailureFacts): boolean {
  const message = facts.message.toLowerCase();
  return (
    (rule.status.length === 0 || rule.status.some((range) => inRange(facts.status, range))) &&
    (rule.type.length === 0 ||
      (facts.type !== undefined && rule.type.includes(facts.type.toLowerCase()))) &&
    (rule.phase.length === 0 || rule.phase.includes(facts.phase.toLowerCase())) &&
    (rule.message.length === 0 || rule.message.some((part) => message.includes(part)))
  );
}

function inRange(status: number | undefined, { first, last }: StatusRange): boolean {
  return status !== undefined && status >= first && status <= last;
}

export interface RetryQuestion {
  readonly policy: RetryPolicy;
  /** 1 for the first retry. */
  readonly attempt: number;
  readonly retryAfterMs?: number | undefined;
  /** Uniform in [0, 1). */
  readonly random: () => number;
}

/**
 * Milliseconds to wait before attempt `attempt`. Exponential delays have full jitter (uniform between nothing and
 * `base·2^(attempt−1)`, at most `max`), which spreads the retries of many threads best; a header is obeyed as it is.
 */
export function retryDelayMs({ policy, attempt, retryAfterMs, random }: RetryQuestion): number {
  switch (policy.kind) {
    case 'exponential':
      return Math.round(
        random() * Math.min(policy.maxMs, policy.baseMs * 2 ** Math.max(0, attempt - 1)),
      );
    case 'fixed':
      return policy.delayMs;
    case 'use_header':
      return retryAfterMs ?? retryDelayMs({ policy: policy.fallback, attempt, random });
    case 'none':
      break;
  }
  return 0;
}

const CODE_OF_CATEGORY = {
  rate_limited: 'provider_rate_limited',
  transient: 'provider_unreachable',
  permanent: 'provider_rejected',
  quota: 'provider_quota',
  auth: 'provider_auth',
  context_exceeded: 'context_exceeded',
  cancelled: 'cancelled',
  content_filtered: 'content_filtered',
} as const satisfies Record<ErrorCategory, ErrorCode>;

/** Failure types of rye's own providers that are more precise than their category. */
const CODE_OF_TYPE: Readonly<Record<string, ErrorCode>> = {
  literal_unsupported: 'literal_unsupported',
  literal_step_failed: 'tool_failed',
  replay_exhausted: 'replay_exhausted',
  provider_key_missing: 'provider_key_missing',
  max_tokens_ignored: 'provider_overrun',
  answer_too_large: 'provider_overrun',
};

/** The error code that a thread ends with when this failure is final. */
export function failureCode(category: ErrorCategory, type: string | undefined): ErrorCode {
  const own =
    type !== undefined && Object.hasOwn(CODE_OF_TYPE, type) ? CODE_OF_TYPE[type] : undefined;
  return own ?? CODE_OF_CATEGORY[category];
}

function record(value: unknown, where: string): JsonObject {
  if (!isRecord(value)) throw invalid(`${where} is not a mapping`);
  return value as JsonObject;
}

function onlyKeys(value: JsonObject, known: readonly string[], where: string): void {
  const unknown = Object.keys(value).find((key) => !known.includes(key));
  if (unknown === undefined) return;
  throw invalid(
    `${where} has the unknown key ${unknown}`,
    didYouMean(unknown, known) ?? `Known: ${known.join(', ')}.`,
  );
}

function oneOf<T extends string>(value: unknown, known: readonly T[], where: string): T {
  const found = known.find((candidate) => candidate === value);
  if (found !== undefined) return found;
  throw invalid(`${where} is ${JSON.stringify(value)}`, `Use one of ${known.join(', ')}.`);
}

function listOf(value: unknown, where: string): readonly unknown[] {
  if (value === undefined) return [];
  const list: readonly unknown[] = Array.isArray(value) ? value : [value];
  // an empty list would match everything, which is never intended
  if (list.length === 0) throw invalid(`${where} is an empty list`);
  return list;
}

/** A status such as 429, or a class of them such as `5xx`. */
function statusRange(value: unknown, where: string): StatusRange {
  if (typeof value === 'number' && Number.isInteger(value)) return { first: value, last: value };
  const hundreds = typeof value === 'string' ? /^([1-5])xx$/i.exec(value)?.[1] : undefined;
  if (hundreds === undefined)
    throw invalid(`${where} has ${JSON.stringify(value)}`, 'Use a status such as 429, or 5xx.');
  return { first: Number(hundreds) * 100, last: Number(hundreds) * 100 + 99 };
}

function texts(value: unknown, where: string): readonly string[] {
  return listOf(value, where).map((item) => {
    if (typeof item !== 'string' || item === '')
      throw invalid(`${where} has ${JSON.stringify(item)}, not a text`);
    return item.toLowerCase();
  });
}

function milliseconds(value: unknown, where: string): number {
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) {
    throw invalid(`${where} is ${JSON.stringify(value)}, not a number of seconds`);
  }
  return value * 1000;
}

function invalid(message: string, hint?: string): RyeError {
  return new RyeError('config_invalid', message, { hint });
}
