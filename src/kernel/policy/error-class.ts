import { assertConfig, type CheckedSchema } from '../core/check.ts';
import { type ErrorCode, RyeError } from '../core/errors.ts';
import schemas from '../schemas/policy.json' with { type: 'json' };
import type { ErrorPatternFile, RetryFile } from '../schemas/policy.ts';

const schema: Readonly<Record<'errorPattern' | 'retry', CheckedSchema>> = schemas.properties;

/** Category of a failed model call; decides if another attempt makes sense. */
export type ErrorCategory = ErrorPatternFile['category'];

/** Policy for the delay before the next attempt. Durations are milliseconds. */
export type RetryPolicy =
  /** Jitter is equal unless it is full. */
  | {
      readonly kind: 'exponential';
      readonly baseMs: number;
      readonly maxMs: number;
      readonly jitter?: 'full';
    }
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
  /** False: the provider reports that the same request will fail again. */
  readonly should_retry?: boolean;
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
  /** The most retries of such a failure in one turn; absent: as many as there is time for. */
  readonly maxRetries?: number;
}

export interface Classification {
  /** The rule that matched, or `default`. */
  readonly id: string;
  readonly category: ErrorCategory;
  readonly retryable: boolean;
  readonly policy: RetryPolicy;
  readonly maxRetries?: number;
}

const UNMATCHED: Classification = {
  id: 'default',
  category: 'permanent',
  retryable: false,
  policy: { kind: 'none' },
};

const OVERFLOW: Classification = { ...UNMATCHED, id: 'numbers', category: 'context_exceeded' };

const NUMBER = String.raw`(\d[\d,._]{0,20}\d)`;
const MORE_THAN = new RegExp(
  String.raw`${NUMBER}\D{0,80}?(?:>|exceed|longer than|larger than|greater than|more than|over the|above)\D{0,80}?${NUMBER}`,
  'i',
);
const AT_MOST = new RegExp(
  String.raw`(?:limit|maximum|max|at most|only|up to|supports?)\D{0,60}?${NUMBER}\D{1,100}?(?:requested|request|contains?|has|have|got|given|received|resulted|is|sent)\D{0,60}?${NUMBER}`,
  'i',
);
/** Counts in the same words that no compaction makes smaller. */
const NO_OVERFLOW =
  /per (?:minute|second|hour|day)|\b[tr]pm\b|rate.?limit|quota|credits?|dollar|bytes|seconds|temperature|max_tokens (?:is )?too|output tokens?|completion tokens?|tools?\b|images?\b/i;
const MIN_WINDOW = 1000;

/** True if a refusal names more input tokens than it allows, in any words. */
function statesOverflow({ message, status = 400 }: FailureFacts): boolean {
  const isRefusal = status === 400 || status === 413 || status === 422;
  if (!isRefusal || !/token|context|prompt|input/i.test(message) || NO_OVERFLOW.test(message))
    return false;
  const [, more = '', most = ''] = MORE_THAN.exec(message) ?? [];
  const [, limit = '', asked = ''] = AT_MOST.exec(message) ?? [];
  return isOver(more, most) || isOver(asked, limit);
}

function isOver(asked: string, limit: string): boolean {
  const [most, sent] = [limit, asked].map((text) => Number(text.replaceAll(/[,._]/g, '')));
  return most !== undefined && sent !== undefined && most >= MIN_WINDOW && sent > most;
}

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
  assertConfig(schema.errorPattern, raw, where);
  const { id, match, category, retryable, retry } = raw as ErrorPatternFile;
  if (Object.keys(match).length === 0) {
    throw new RyeError('config_invalid', `${where}.match has no condition`, {
      hint: 'Give at least one of status, type, phase, message.',
    });
  }
  return {
    id: typeof id === 'string' ? id : where,
    status: listOf(match.status).map(statusRange),
    type: listOf(match.type).map(lowerCase),
    phase: listOf(match.phase).map(lowerCase),
    message: listOf(match.message).map(lowerCase),
    category,
    retryable: retryable ?? (category === 'rate_limited' || category === 'transient'),
    policy: parsePolicy(retry ?? { policy: 'none' }, `${where}.retry`),
    ...maxRetriesOf(retry),
  };
}

/** Reads the number of retries of a checked policy. */
function maxRetriesOf(retry: unknown): Pick<ErrorRule, 'maxRetries'> {
  const { max_retries: maxRetries } = (retry ?? {}) as Partial<RetryFile>;
  return typeof maxRetries === 'number' ? { maxRetries } : {};
}

function parsePolicy(raw: unknown, where: string): RetryPolicy {
  assertConfig(schema.retry, raw, where);
  const {
    policy: kind,
    base_seconds,
    max_seconds,
    jitter,
    delay_seconds,
    fallback,
  } = raw as RetryFile;
  switch (kind) {
    case 'exponential':
      return {
        kind,
        baseMs: (base_seconds ?? 2) * 1000,
        maxMs: (max_seconds ?? 120) * 1000,
        ...(jitter === 'full' ? { jitter } : {}),
      };
    case 'fixed':
      return { kind, delayMs: (delay_seconds ?? 60) * 1000 };
    case 'use_header':
      return {
        kind,
        fallback: parsePolicy(fallback ?? { policy: 'exponential' }, `${where}.fallback`),
      };
    case 'none':
      return { kind };
  }
}

/**
 * The first rule that matches decides; what no rule knows is permanent, because repeating it costs money. A provider that
 * reports that a retry is of no use is believed.
 */
export function classify(facts: FailureFacts, rules: readonly ErrorRule[]): Classification {
  const rule = rules.find((candidate) => matches(candidate, facts));
  if ((rule?.category ?? 'permanent') === 'permanent' && statesOverflow(facts)) return OVERFLOW;
  if (rule === undefined) return UNMATCHED;
  const { id, category, policy, maxRetries } = rule;
  const retryable = rule.retryable && facts.should_retry !== false;
  return {
    id,
    category,
    retryable,
    policy,
    ...(maxRetries === undefined ? {} : { maxRetries }),
  };
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
 * Milliseconds to wait before attempt `attempt`. Exponential delays are at most `base·2^(attempt−1)` and `max`. Equal
 * jitter makes them at least half of that, so that they rise from one attempt to the next and still spread the retries of
 * many threads; full jitter makes them as short as nothing. A header is obeyed as it is.
 */
export function retryDelayMs({ policy, attempt, retryAfterMs, random }: RetryQuestion): number {
  switch (policy.kind) {
    case 'exponential': {
      const most = Math.min(policy.maxMs, policy.baseMs * 2 ** Math.max(0, attempt - 1));
      const least = policy.jitter === 'full' ? 0 : most / 2;
      return Math.round(least + random() * (most - least));
    }
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
  proxy_refused: 'proxy_refused',
  proxy_unreachable: 'proxy_unreachable',
  ca_unreadable: 'ca_unreadable',
  max_tokens_ignored: 'provider_overrun',
  answer_too_large: 'provider_overrun',
};

/** The error code that a thread ends with when this failure is final. */
export function failureCode(category: ErrorCategory, type: string | undefined): ErrorCode {
  const own =
    type !== undefined && Object.hasOwn(CODE_OF_TYPE, type) ? CODE_OF_TYPE[type] : undefined;
  return own ?? CODE_OF_CATEGORY[category];
}

function listOf<T extends string | number>(value: T | T[] | undefined): readonly T[] {
  if (value === undefined) return [];
  return Array.isArray(value) ? value : [value];
}

function lowerCase(text: string): string {
  return text.toLowerCase();
}

/** A status such as 429, or a class of them such as `5xx`. */
function statusRange(value: number | string): StatusRange {
  if (typeof value === 'number') return { first: value, last: value };
  const first = Number(value.charAt(0)) * 100;
  return { first, last: first + 99 };
}
