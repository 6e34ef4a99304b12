import {
  type ErrorCode,
  type ErrorInfo,
  EXIT,
  type ExitCode,
  exitCodeOf,
  RyeError,
  toRyeError,
} from '../../kernel/core/errors.ts';
import { compact } from '../../kernel/core/json.ts';
import { type Io, isSet, type Sink } from '../ui/io.ts';
import { wrapText } from '../ui/terminal-text.ts';
import { joined, jsonText, type Shown, shown, visible } from '../ui/visible.ts';
import { withWarnings } from './warnings.ts';

/** Form of the output: text for people, one JSON document, or JSON lines that end with a result line. */
export type OutputMode = 'text' | 'json' | 'stream-json';

/**
 * True for the import of a module that the bundle of `threads list` omits, see `startup/bundles.mjs`: another bundle
 * has to run the call. Nothing was printed by then.
 */
export function isNotBundled(error: unknown): boolean {
  return error instanceof Error && 'code' in error && error.code === 'RYE_NOT_BUNDLED';
}

/** Reads the output mode of a command line before it is parsed, so that a usage error has the right form. */
export function outputModeOf(argv: readonly string[]): OutputMode {
  const end = argv.indexOf('--');
  const options = end === -1 ? argv : argv.slice(0, end);
  const at = options.findLastIndex((word) => word.startsWith('--output-format'));
  const format = at === -1 ? undefined : (options[at]?.split('=')[1] ?? options[at + 1]);
  if (format === 'stream-json') return 'stream-json';
  return format === 'json' || options.includes('--json') ? 'json' : 'text';
}

/** Returns the document that a failure prints with `--json`. */
function failureDocument(error: ErrorInfo): {
  readonly success: false;
  readonly error: ErrorInfo;
} {
  const { code, message, hint, details } = error;
  return { success: false, error: compact({ code, message, hint, details }) as ErrorInfo };
}

/**
 * Returns the lines that a failure prints for people. Neutralizes them, because a message may quote hostile names. On a
 * terminal, lines break between words.
 */
export function failureText(
  {
    code,
    message,
    hint,
  }: {
    readonly code: ErrorCode;
    readonly message: string;
    readonly hint?: string | undefined;
  },
  sink?: Sink,
): Shown {
  const first = shown`rye: ${visible(message)} [${code}]\n`;
  const text = hint === undefined ? first : shown`${first}hint: ${visible(hint)}\n`;
  return sink?.isTty === true ? joined(wrapText(text, sink.columns), '\n') : text;
}

export interface FailureOptions {
  readonly mode: OutputMode;
  /** Print the stack trace too. */
  readonly verbose: boolean;
}

/** Prints anything thrown and returns its exit status. The one place where failures become output. */
export function reportFailure(
  thrown: unknown,
  io: Io,
  { mode, verbose }: FailureOptions,
): ExitCode {
  const error = inSandbox(withBugHint(toRyeError(thrown)), io.env);
  if (mode === 'text') {
    io.stderr.write(failureText(error, io.stderr));
  } else {
    const document = withWarnings(io, failureDocument(error.toJSON()));
    const status = error.code === 'cancelled' ? 'cancelled' : 'error';
    io.stdout.writeRaw(
      `${jsonText(mode === 'json' ? document : { event_type: 'result', status, ...document })}\n`,
    );
  }
  if (verbose) io.stderr.write(shown`${visible(stackOf(thrown))}\n`);
  return exitCodeOf(error.code);
}

function withBugHint(error: RyeError): RyeError {
  if (error.code !== 'internal' || error.hint !== undefined) return error;
  return new RyeError('internal', error.message, {
    hint: 'This is a bug in rye. Run it again with --verbose for the stack trace.',
    details: error.details,
    cause: error.cause ?? error,
  });
}

/** Explains why a rye that a confined command starts finds neither keys nor a place to write. */
function inSandbox(error: RyeError, env: Io['env']): RyeError {
  const isUnable = exitCodeOf(error.code) === EXIT.integrity || MISSING.has(error.code);
  if (!isSet(env['RYE_SANDBOX']) || !isUnable) return error;
  return new RyeError(error.code, error.message, {
    hint: 'A tool started this rye in the sandbox, which has no keys and cannot write .ai. A model starts a child thread with rye_execute. To run rye in commands, set tools.sandbox: off in .ai/config/agent/resilience.yaml and sign it.',
    details: error.details,
    cause: error.cause,
  });
}

const MISSING: ReadonlySet<ErrorCode> = new Set([
  'key_missing',
  'state_unwritable',
  'storage_failed',
]);

function stackOf(thrown: unknown): string {
  if (!(thrown instanceof Error)) return String(thrown);
  const own = thrown.stack ?? thrown.message;
  return thrown.cause === undefined ? own : `${own}\ncaused by: ${stackOf(thrown.cause)}`;
}
