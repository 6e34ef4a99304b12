import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { basename, dirname, join } from 'node:path';
import { RyeError } from '../../core/errors.ts';
import type { JsonObject, JsonValue } from '../../core/json.ts';
import { isJsonObject, parseJson } from '../../core/json.ts';
import type { ToolFile } from '../../items/tool-files-fs.ts';
import { guarded } from '../guard.ts';
import { boundedProgress, HeadBuffer, TailBuffer } from '../output.ts';
import { type Confine, childEnvironment, type ProcessResult, runProcess } from '../process.ts';
import type { Tool, ToolContext, ToolOutput, ToolTraits } from '../tool.ts';
import { CAUTIOUS_TRAITS, errorOutput, textOutput } from '../tool.ts';
import { coveredText, interpreterOf, shellOf } from './run-copy.ts';
import {
  type ResolvedInput,
  type ResolveSecret,
  resolveSecrets,
  scrubText,
  scrubValue,
} from './secrets.ts';

const MAX_STDOUT_BYTES = 10 * 1024 * 1024;
const STDERR_TAIL_BYTES = 8 * 1024;
const PROGRESS_BYTES = 64 * 1024;

/** How the file of a tool is run. */
export type ItemToolKind =
  | 'javascript'
  | 'typescript'
  | 'python'
  | 'shell'
  | 'executable'
  | 'manifest';

/** A tool item whose signature has been checked. */
export interface ItemToolSource {
  readonly id: string;
  /** Absolute path that the bytes were read from. */
  readonly path: string;
  readonly kind: ItemToolKind;
  /** Program and arguments of a manifest; `{tool_dir}` and `{project}` are replaced in each. */
  readonly command?: readonly string[];
  /** What stands in `{tool_dir}` while it runs: the files that the manifest pins, as they were checked. */
  readonly files?: readonly ToolFile[];
  readonly description: string;
  readonly inputSchema: JsonObject;
  /** Environment variables that the tool asks for; names that speak of secrets are not passed. */
  readonly env?: readonly string[];
  /** What the tool declares; the rest is cautious. */
  readonly traits: Partial<ToolTraits>;
  /** The bytes that were verified. These run, not what stands in the file by then. */
  readonly content: string | Uint8Array;
}

export interface ItemToolOptions {
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Names of further environment variables for the tool. */
  readonly passEnv?: readonly string[];
  /** Absent: there are no secrets. */
  readonly resolveSecret?: ResolveSecret;
  /** Folder for private run folders. Default: the system's temporary folder. */
  readonly runFolder?: string;
  /** Confines the tool, with the network or without it; absent: it runs as it is. */
  readonly sandbox?: ((network: boolean) => Confine) | undefined;
}

/**
 * A tool item as a {@link Tool}: parameters as one JSON document on stdin, result as JSON or text on stdout,
 * diagnostics on stderr, success by exit code 0. JSON that is not an object comes as `data.result`; an object
 * with `"success": false` is an error output. The verified bytes are run from a private folder that is removed
 * afterwards, with the project as working directory, so neighbouring files are no part of the tool.
 */
export function createItemTool(source: ItemToolSource, options: ItemToolOptions): Tool {
  return {
    id: source.id,
    description: source.description,
    inputSchema: source.inputSchema,
    traits: { ...CAUTIOUS_TRAITS, ...source.traits },
    execute: (input, context) => guarded(() => execute(source, { input, context, options })),
  };
}

interface Call {
  readonly input: JsonObject;
  readonly context: ToolContext;
  readonly options: ItemToolOptions;
}

async function execute(
  source: ItemToolSource,
  { input, context, options }: Call,
): Promise<ToolOutput> {
  const resolved = await resolveSecrets(
    source.inputSchema,
    input,
    options.resolveSecret ?? noSecret,
  );
  const folder = await mkdtemp(join(options.runFolder ?? tmpdir(), 'rye-run-'));
  try {
    const command = await prepareCommand(source, folder, context.projectPath);
    return await run(source, { command, resolved, context, options });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

function noSecret(): undefined {
  return undefined;
}

interface Command {
  readonly program: string;
  readonly args: readonly string[];
}

/** Writes the verified bytes into the private folder and says how to run them. */
async function prepareCommand(
  source: ItemToolSource,
  folder: string,
  projectPath: string,
): Promise<Command> {
  if (source.kind === 'manifest') {
    for (const { name, bytes } of source.files ?? []) {
      const file = join(folder, name);
      await mkdir(dirname(file), { recursive: true });
      await writeFile(file, bytes, { mode: 0o700, flag: 'wx' });
    }
    return manifestCommand(source, folder, projectPath);
  }
  const file = join(folder, basename(source.path));
  await writeFile(file, coveredText(source.content), { mode: 0o600, flag: 'wx' });
  if (source.kind === 'typescript') assertTypescriptRuns(source);
  if (source.kind === 'javascript' || source.kind === 'typescript') {
    // Node's remark that it had to guess the module type is not the tool's diagnostics.
    return {
      program: process.execPath,
      args: ['--disable-warning=MODULE_TYPELESS_PACKAGE_JSON', file],
    };
  }
  if (source.kind === 'python') return { program: 'python3', args: ['-B', file] };
  if (source.kind === 'shell') return { program: shellOf(source.path), args: [file] };
  return { program: interpreterOf(source.id, source.path), args: [file] };
}

/** Node runs TypeScript by itself from 22.18 on. */
function assertTypescriptRuns({ id, path }: ItemToolSource): void {
  const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
  if (major > 22 || (major === 22 && minor >= 18)) return;
  throw new RyeError(
    'spawn_failed',
    `${id} is TypeScript, which Node ${process.versions.node} does not run`,
    {
      location: { path },
      hint: 'Use Node 22.18 or later, or compile the tool to JavaScript.',
    },
  );
}

function manifestCommand(source: ItemToolSource, folder: string, projectPath: string): Command {
  const fill = (part: string) =>
    part.replaceAll(/\{(tool_dir|project)\}/g, (_match, name: string) =>
      name === 'project' ? projectPath : folder,
    );
  const [program, ...args] = (source.command ?? []).map(fill);
  if (program === undefined || program === '') {
    throw new RyeError('tool_malformed', `the manifest of ${source.id} names no command`, {
      location: { path: source.path },
      hint: 'Add a command, such as command: [jq, "."].',
    });
  }
  return { program, args };
}

interface Run {
  readonly command: Command;
  readonly resolved: ResolvedInput;
  readonly context: ToolContext;
  readonly options: ItemToolOptions;
}

async function run(
  source: ItemToolSource,
  { command, resolved, context, options }: Run,
): Promise<ToolOutput> {
  const stdout = new HeadBuffer(MAX_STDOUT_BYTES);
  const stderr = new TailBuffer(STDERR_TAIL_BYTES);
  // A secret may be split over two chunks, so a call that has one shows nothing live.
  const live =
    resolved.secrets.length === 0
      ? boundedProgress((text) => context.progress(text), PROGRESS_BYTES)
      : () => undefined;
  const seconds = source.traits.timeout_seconds ?? CAUTIOUS_TRAITS.timeout_seconds;
  const result = await runProcess({
    command: command.program,
    args: command.args,
    cwd: context.projectPath,
    env: childEnvironment(options.env, {
      projectPath: context.projectPath,
      threadId: context.threadId,
      pass: [...(options.passEnv ?? []), ...(source.env ?? [])],
    }),
    stdin: JSON.stringify(resolved.input),
    timeoutMs: seconds * 1000,
    signal: context.signal,
    confine: options.sandbox?.(source.traits.network ?? CAUTIOUS_TRAITS.network),
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
  return present(source.id, result, {
    stdout: stdout.text(),
    stderr: scrubText(stderr.text(), resolved.secrets),
    secrets: resolved.secrets,
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
    const parts = [`${id} ${failure}.`, stderr.trim(), text].filter((part) => part !== '');
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
