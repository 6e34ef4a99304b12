import { existsSync } from 'node:fs';
import { extname } from 'node:path';
import { RyeError } from '../core/errors.ts';
import { isJsonObject, type JsonObject, type JsonValue, parseJson } from '../core/json.ts';
import { headAndTail } from '../core/text.ts';
import { boundedProgress, HeadBuffer, TailBuffer } from './output.ts';
import { type Confine, childEnvironment, type ProcessResult, runProcess } from './process.ts';
import { scrubText, scrubValue } from './secrets.ts';
import { errorOutput, type ToolContext, type ToolOutput, textOutput } from './tool.ts';

const MAX_STDOUT_BYTES = 10 * 1024 * 1024;
const STDERR_TAIL_BYTES = 8 * 1024;
/** Maximum bytes of a failed script's output to show; more would hide the reason. */
const FAILED_STDOUT_BYTES = 16 * 1024;
const PROGRESS_BYTES = 64 * 1024;

/** A program and its arguments; no shell ever reads them. */
export interface Command {
  readonly program: string;
  readonly args: readonly string[];
}

/** The environment that every script of a space runs in. */
export interface ScriptOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Names of further environment variables for it. */
  readonly passEnv?: readonly string[];
  /** Confines it, with the network or without it; absent: it runs as it is. */
  readonly sandbox?: ((network: boolean) => Confine) | undefined;
}

export interface ScriptRun {
  /** The name for messages. */
  readonly id: string;
  readonly command: Command;
  /** The private folder that the script was copied to. */
  readonly folder: string;
  /** Goes to stdin as one JSON document. */
  readonly input: JsonObject;
  readonly timeoutSeconds: number;
  readonly network: boolean;
  /** Texts that must not leave the call. */
  readonly secrets?: readonly string[];
  readonly context: ToolContext;
  readonly options: ScriptOptions;
}

/**
 * Returns the command for `file`, the copy of `path`: by the extension alone, never by a shebang. Throws `tool_malformed`
 * for an unknown extension.
 */
export function scriptCommand(id: string, path: string, file: string): Command {
  switch (extname(path).toLowerCase()) {
    case '.js':
    case '.mjs':
    case '.cjs':
      return nodeCommand(file);
    case '.py':
      return { program: 'python3', args: ['-B', file] };
    case '.sh':
    case '.bash':
      return { program: shellOf(path), args: [file] };
    default:
      return { program: interpreterOf(id, path), args: [file] };
  }
}

/** Node without its remark that it had to guess the module type, which is not the script's diagnostics. */
export function nodeCommand(file: string): Command {
  return {
    program: process.execPath,
    args: ['--disable-warning=MODULE_TYPELESS_PACKAGE_JSON', file],
  };
}

/**
 * Runs a script by the contract of tools: parameters as one JSON document on stdin, result as JSON or text on stdout,
 * diagnostics on stderr, success by exit code 0, a reduced environment, the project as working directory, a separate
 * process group that ends with the call. JSON that is not an object comes as `data.result`; an object with
 * `"success": false` is an error output.
 */
export async function runScript(run: ScriptRun): Promise<ToolOutput> {
  const { id, command, context, options, secrets = [] } = run;
  const stdout = new HeadBuffer(MAX_STDOUT_BYTES);
  const stderr = new TailBuffer(STDERR_TAIL_BYTES);
  // A secret may be split over two chunks, so a call that has one shows nothing live.
  const live =
    secrets.length === 0
      ? boundedProgress((text) => context.progress(text), PROGRESS_BYTES)
      : () => undefined;
  const result = await runProcess({
    command: command.program,
    args: command.args,
    cwd: context.projectPath,
    env: childEnvironment(options.env, context, options.passEnv),
    stdin: JSON.stringify(run.input),
    timeoutMs: run.timeoutSeconds * 1000,
    signal: context.signal,
    confine: options.sandbox?.(run.network),
    programFolder: run.folder,
    onStdout: (chunk) => {
      stdout.push(chunk);
      return !stdout.overflowed;
    },
    onStderr: (chunk) => {
      stderr.push(chunk);
      live(chunk);
      return true;
    },
  });
  return present(id, result, {
    stdout: stdout.text(),
    stderr: scrubText(stderr.text(), secrets),
    secrets,
  });
}

interface Captured {
  readonly stdout: string;
  readonly stderr: string;
  readonly secrets: readonly string[];
}

function present(
  id: string,
  result: ProcessResult,
  { stdout, stderr, secrets }: Captured,
): ToolOutput {
  const parsed = parseJson(stdout);
  const value = parsed === undefined ? undefined : scrubValue(parsed, secrets);
  const text = value === undefined ? scrubText(stdout, secrets).replace(/\n$/, '') : pretty(value);
  const data = dataOf(value, result);
  const failure = failureOf(result);
  if (failure !== undefined) {
    const shown = headAndTail(text, FAILED_STDOUT_BYTES);
    const parts = [`${id} ${failure}.`, stderr.trim(), shown].filter((part) => part !== '');
    return errorOutput(parts.join('\n'), data);
  }
  if (isJsonObject(value) && value['success'] === false) return errorOutput(text, data);
  return textOutput(text === '' ? '(no output)' : text, data);
}

function dataOf(value: JsonValue | undefined, { exitCode }: ProcessResult): JsonObject {
  if (value === undefined) return { exit_code: exitCode };
  return isJsonObject(value) ? value : { result: value };
}

function failureOf(result: ProcessResult): string | undefined {
  const { exitCode, exitSignal, stopped, durationMs } = result;
  if (stopped === 'timeout') return `timed out after ${Math.round(durationMs / 100) / 10} seconds`;
  if (stopped === 'aborted') return 'was cancelled';
  if (stopped === 'output') {
    return `was stopped: it wrote more than ${MAX_STDOUT_BYTES} bytes to stdout`;
  }
  if (exitCode === 0) return undefined;
  return exitCode === null
    ? `was ended by ${exitSignal ?? 'a signal'}`
    : `failed with exit code ${exitCode}`;
}

function pretty(value: JsonValue): string {
  return typeof value === 'string' ? value : JSON.stringify(value, null, 2);
}

/**
 * The bytes that an interpreter gets: exactly what the signature covers. The line of a shebang, which it does not
 * cover, becomes an empty one, for interpreters take switches, encodings and even other interpreters from it; and
 * ends of line are LF, as they were hashed, for a CR added to a line of a shell script changes what it does.
 */
export function coveredText(content: string | Uint8Array): string {
  const text = typeof content === 'string' ? content : Buffer.from(content).toString('utf8');
  const lines = text.replaceAll('\r\n', '\n');
  if (!lines.startsWith('#!')) return lines;
  const end = lines.indexOf('\n');
  return end === -1 ? '' : lines.slice(end);
}

/** The shell of shell tools; which one a script asks for is not signed, and bash runs what sh runs. */
export function shellOf(path: string): string {
  if (existsSync('/bin/bash')) return '/bin/bash';
  return extname(path) === '.bash' ? 'bash' : 'sh';
}

const INTERPRETERS: Readonly<Record<string, string>> = { '.rb': 'ruby', '.pl': 'perl' };

/** Returns the interpreter for an extension; shebangs never count. */
function interpreterOf(id: string, path: string): string {
  const extension = extname(path).toLowerCase();
  const interpreter = Object.hasOwn(INTERPRETERS, extension) ? INTERPRETERS[extension] : undefined;
  if (interpreter !== undefined) return interpreter;
  throw new RyeError('tool_malformed', `no interpreter is known for ${id}`, {
    location: { path },
    hint: 'Describe it in a YAML manifest with a command, or write it in JavaScript, Python, shell, Ruby or Perl.',
  });
}
