/** Process exit codes of the command line, one meaning each. They are public interface. */
export const EXIT = {
  ok: 0,
  failed: 1,
  usage: 2,
  integrity: 3,
  denied: 4,
  limit: 5,
  notFound: 6,
  provider: 7,
  waiting: 8,
  cancelled: 130,
} as const;

export type ExitCode = (typeof EXIT)[keyof typeof EXIT];

/**
 * Every error code with the exit status it leads to. The keys are public interface: scripts match on them, so a
 * key is never renamed and never reused for something else.
 */
const EXIT_BY_CODE = {
  // the work itself failed
  thread_error: EXIT.failed,
  tool_failed: EXIT.failed,
  hook_failed: EXIT.failed,
  outputs_missing: EXIT.failed,
  directive_error: EXIT.failed,
  fail_if: EXIT.failed,
  loop_detected: EXIT.failed,
  answer_cut: EXIT.failed,
  answer_empty: EXIT.failed,
  log_write_failed: EXIT.failed,
  log_malformed: EXIT.failed,
  storage_failed: EXIT.failed,
  state_unwritable: EXIT.failed,
  state_missing: EXIT.failed,
  resource_exhausted: EXIT.failed,
  thread_locked: EXIT.failed,
  schedules_locked: EXIT.failed,
  spawn_failed: EXIT.failed,
  thread_crashed: EXIT.failed,
  aborted_by_hook: EXIT.failed,
  content_filtered: EXIT.failed,
  literal_unsupported: EXIT.failed,
  replay_exhausted: EXIT.failed,
  replay_differs: EXIT.failed,
  check_failed: EXIT.failed,
  sandbox_unavailable: EXIT.failed,
  fleet_unavailable: EXIT.failed,
  source_unavailable: EXIT.failed,
  internal: EXIT.failed,
  // the request or an item cannot be used as written
  usage: EXIT.usage,
  feature_missing: EXIT.usage,
  plugin_invalid: EXIT.usage,
  invalid_input: EXIT.usage,
  invalid_item_id: EXIT.usage,
  invalid_thread_id: EXIT.usage,
  duplicate_item: EXIT.usage,
  directive_malformed: EXIT.usage,
  xml_malformed: EXIT.usage,
  knowledge_malformed: EXIT.usage,
  tool_malformed: EXIT.usage,
  tool_id_reserved: EXIT.usage,
  tool_unsupported: EXIT.usage,
  rule_malformed: EXIT.usage,
  skill_malformed: EXIT.usage,
  item_too_large: EXIT.usage,
  result_too_large: EXIT.usage,
  session_malformed: EXIT.usage,
  config_invalid: EXIT.usage,
  hook_invalid: EXIT.usage,
  condition_invalid: EXIT.usage,
  pattern_invalid: EXIT.usage,
  permission_malformed: EXIT.usage,
  query_malformed: EXIT.usage,
  extends_cycle: EXIT.usage,
  extends_too_deep: EXIT.usage,
  unknown_limit: EXIT.usage,
  invalid_limit: EXIT.usage,
  wire_name_collision: EXIT.usage,
  thread_id_taken: EXIT.usage,
  thread_exists: EXIT.usage,
  illegal_transition: EXIT.usage,
  ambiguous: EXIT.usage,
  file_changed: EXIT.usage,
  isolation_unavailable: EXIT.usage,
  already_exists: EXIT.usage,
  read_only_space: EXIT.usage,
  confirmation_required: EXIT.usage,
  terminal_required: EXIT.usage,
  program_required: EXIT.usage,
  // integrity
  unsigned: EXIT.integrity,
  content_modified: EXIT.integrity,
  key_untrusted: EXIT.integrity,
  key_revoked: EXIT.integrity,
  key_out_of_scope: EXIT.integrity,
  signature_invalid: EXIT.integrity,
  signature_partial: EXIT.integrity,
  signature_outdated: EXIT.integrity,
  item_moved: EXIT.integrity,
  signed_by_thread: EXIT.integrity,
  key_missing: EXIT.integrity,
  key_unsafe: EXIT.integrity,
  user_space_refused: EXIT.integrity,
  system_item_modified: EXIT.integrity,
  guard_changed: EXIT.integrity,
  thread_tampered: EXIT.integrity,
  thread_damaged: EXIT.integrity,
  transcript_tampered: EXIT.integrity,
  thread_rolled_back: EXIT.integrity,
  part_missing: EXIT.integrity,
  plugin_modified: EXIT.integrity,
  part_outdated: EXIT.integrity,
  // policy
  raise_limits_required: EXIT.denied,
  capability_denied: EXIT.denied,
  ceiling_exceeded: EXIT.denied,
  risk_blocked: EXIT.denied,
  acknowledge_required: EXIT.denied,
  path_denied: EXIT.denied,
  tool_unavailable: EXIT.denied,
  not_descendant: EXIT.denied,
  approval_denied: EXIT.denied,
  approval_expired: EXIT.denied,
  approval_invalid: EXIT.denied,
  approval_closed: EXIT.denied,
  approval_refused: EXIT.denied,
  approval_required: EXIT.denied,
  approval_unreachable: EXIT.denied,
  // limits and money
  limit_turns: EXIT.limit,
  limit_tokens: EXIT.limit,
  limit_spend: EXIT.limit,
  limit_duration_seconds: EXIT.limit,
  limit_spawns: EXIT.limit,
  limit_depth: EXIT.limit,
  budget_insufficient: EXIT.limit,
  budget_unregistered: EXIT.limit,
  model_unpriced: EXIT.limit,
  wait_timeout: EXIT.limit,
  // nothing there
  item_not_found: EXIT.notFound,
  thread_not_found: EXIT.notFound,
  entry_not_found: EXIT.notFound,
  key_not_found: EXIT.notFound,
  model_not_found: EXIT.notFound,
  file_not_found: EXIT.notFound,
  approval_not_found: EXIT.notFound,
  // the model provider
  provider_auth: EXIT.provider,
  provider_quota: EXIT.provider,
  provider_rate_limited: EXIT.provider,
  provider_unreachable: EXIT.provider,
  provider_rejected: EXIT.provider,
  provider_key_missing: EXIT.provider,
  proxy_refused: EXIT.provider,
  proxy_unreachable: EXIT.provider,
  ca_unreadable: EXIT.provider,
  provider_overrun: EXIT.provider,
  context_exceeded: EXIT.provider,
  // a person has to decide, or to resume the thread
  approval_pending: EXIT.waiting,
  thread_suspended: EXIT.waiting,
  thread_parked: EXIT.waiting,
  // cancellation by a person
  cancelled: EXIT.cancelled,
} as const satisfies Record<string, ExitCode>;

/** A stable, machine-readable name of an error. */
export type ErrorCode = keyof typeof EXIT_BY_CODE;

/** The exit status that an error code leads to. */
export function exitCodeOf(code: ErrorCode): ExitCode {
  return EXIT_BY_CODE[code];
}

export function isErrorCode(value: string): value is ErrorCode {
  return Object.hasOwn(EXIT_BY_CODE, value);
}

/** Position of a problem in a person's file; lines and columns count from 1. */
export interface SourceLocation {
  readonly path: string;
  readonly line?: number;
  readonly column?: number;
}

export interface RyeErrorOptions {
  /** One sentence that tells what to do next. */
  readonly hint?: string | undefined;
  readonly location?: SourceLocation | undefined;
  /** Facts for programs: must be JSON values and free of secrets. */
  readonly details?: Readonly<Record<string, unknown>> | undefined;
  readonly cause?: unknown;
}

/** The serialized form of an error, as `--json`, `thread.json` and the log show it. */
export interface ErrorInfo {
  readonly code: ErrorCode;
  readonly message: string;
  readonly hint?: string;
  readonly details?: Readonly<Record<string, unknown>>;
}

/** The only error class. `message` names the input that is wrong; `hint` tells what to do. */
export class RyeError extends Error {
  override readonly name = 'RyeError';
  readonly code: ErrorCode;
  readonly hint: string | undefined;
  readonly location: SourceLocation | undefined;
  readonly details: Readonly<Record<string, unknown>> | undefined;

  constructor(code: ErrorCode, message: string, options: RyeErrorOptions = {}) {
    const { hint, location, details, cause } = options;
    super(
      location ? `${formatLocation(location)}: ${message}` : message,
      cause === undefined ? {} : { cause },
    );
    this.code = code;
    this.hint = hint;
    this.location = location;
    this.details = details;
  }

  get exitCode(): ExitCode {
    return exitCodeOf(this.code);
  }

  toJSON(): ErrorInfo {
    return {
      code: this.code,
      message: this.message,
      ...(this.hint === undefined ? {} : { hint: this.hint }),
      ...(this.details === undefined ? {} : { details: this.details }),
    };
  }
}

/** `file:line:col`, the form that editors make clickable. */
export function formatLocation({ path, line, column }: SourceLocation): string {
  if (line === undefined) return path;
  return column === undefined ? `${path}:${line}` : `${path}:${line}:${column}`;
}

/** The message of anything that was thrown. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The `code` of a Node system error such as `ENOSPC`, if it is one. */
export function systemCodeOf(error: unknown): string | undefined {
  if (typeof error !== 'object' || error === null || !('code' in error)) return undefined;
  return typeof error.code === 'string' ? error.code : undefined;
}

/** Wraps anything thrown as a RyeError; a RyeError passes through unchanged. */
export function toRyeError(error: unknown, code: ErrorCode = 'internal'): RyeError {
  if (error instanceof RyeError) return error;
  return new RyeError(code, messageOf(error), { cause: error });
}

/** Prefix of a warning about a guard or another trusted file that is ignored. */
const IGNORED = 'ignored: ';

/** The warning about a file that is ignored; every place that reports it uses this text. */
export function ignoredWarning(error: {
  readonly message: string;
  readonly code: string;
  readonly hint?: string | undefined;
}): string {
  return `${IGNORED}${error.message} [${error.code}]. ${error.hint ?? ''}`.trim();
}

/** Joins hints, each with a full stop. */
export function joinHints(hints: readonly string[]): string {
  return hints.map((hint) => (/[.!?]$/.test(hint) ? hint : `${hint}.`)).join(' ');
}

/** True for a warning that no option silences. */
export function isSecurityWarning(text: string): boolean {
  return text.startsWith(IGNORED);
}

/** An error about something that a feature does which this rye was opened without. */
export function featureMissing(name: string): RyeError {
  return new RyeError('feature_missing', `this rye was opened without its feature "${name}"`, {
    hint: 'Install the whole package, or open rye with that feature.',
  });
}
