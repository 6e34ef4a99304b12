import { existsSync } from 'node:fs';
import type { JsonObject } from '../../core/json.ts';
import { boundedProgress, HeadTailBuffer } from '../output.ts';
import { childEnvironment, type ProcessResult, runProcess } from '../process.ts';
import {
  errorOutput,
  guarded,
  integerArgument,
  objectSchema,
  type Tool,
  type ToolContext,
  type ToolOutput,
  textArgument,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, NOTICE_BYTES } from './options.ts';

const DEFAULT_TIMEOUT_SECONDS = 120;
const MAX_TIMEOUT_SECONDS = 3600;
const DEFAULT_OUTPUT_BYTES = 32_768;
/** Maximum bytes to keep without a cap. */
const CEILING_BYTES = 16 * 1024 * 1024;
const PROGRESS_BYTES = 256 * 1024;

/**
 * `rye/bash`: a shell command in the project folder, stdin empty. stdout and stderr are shown together as they
 * came; of too much the head and the tail. A non-zero exit is an error output. `data`: `exit_code` (null after a
 * signal), `output`, `duration_ms`, `timed_out`.
 */
export function createBashTool(options: BuiltinOptions): Tool {
  return {
    id: 'rye/bash',
    description:
      'Runs a shell command in the project folder and returns its output and exit code. stdin is empty; processes left in the background are ended with the command.',
    inputSchema: objectSchema(
      {
        command: { type: 'string', minLength: 1, description: 'The command line.' },
        timeout_seconds: {
          type: 'integer',
          minimum: 1,
          maximum: MAX_TIMEOUT_SECONDS,
          description: `Default ${DEFAULT_TIMEOUT_SECONDS}.`,
        },
      },
      ['command'],
    ),
    traits: {
      reads_only: false,
      idempotent: false,
      network: true,
      sequential: false,
      timeout_seconds: MAX_TIMEOUT_SECONDS,
    },
    execute: (input, context) => guarded(() => run(input, context, options)),
  };
}

async function run(
  input: JsonObject,
  context: ToolContext,
  options: BuiltinOptions,
): Promise<ToolOutput> {
  const output = new HeadTailBuffer(outputCap(options));
  const live = boundedProgress((chunk) => context.progress(chunk), PROGRESS_BYTES);
  const collect = (chunk: Buffer): undefined => {
    output.push(chunk);
    live(chunk);
  };
  const seconds = integerArgument(input, 'timeout_seconds', DEFAULT_TIMEOUT_SECONDS);
  const result = await runProcess({
    command: existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh',
    args: ['-c', textArgument(input, 'command')],
    cwd: context.projectPath,
    env: childEnvironment(options.env, {
      projectPath: context.projectPath,
      threadId: context.threadId,
      pass: options.passEnv ?? [],
    }),
    timeoutMs: seconds * 1000,
    signal: context.signal,
    confine: options.sandbox?.(true),
    onStdout: collect,
    onStderr: collect,
  });
  return present(output.text(), result, options.metadata ?? true);
}

/** The ending must fit into the result too, because a result that is too large for the context loses its middle. */
function outputCap({ maxOutputBytes, maxResultBytes = 0 }: BuiltinOptions): number {
  if (maxOutputBytes !== undefined && maxOutputBytes > 0) return maxOutputBytes;
  const cap = maxOutputBytes === 0 ? CEILING_BYTES : DEFAULT_OUTPUT_BYTES;
  return maxResultBytes === 0 ? cap : Math.min(cap, Math.max(maxResultBytes - NOTICE_BYTES, 0));
}

function present(output: string, result: ProcessResult, metadata: boolean): ToolOutput {
  const data = {
    exit_code: result.exitCode,
    output,
    duration_ms: result.durationMs,
    timed_out: result.stopped === 'timeout',
  };
  const ending = metadata || result.stopped !== undefined ? `(${endingOf(result)})` : '';
  const shown = [output.replace(/\n$/, ''), ending].filter((part) => part !== '').join('\n');
  const body = shown === '' ? '(no output)' : shown;
  return result.exitCode === 0 && result.stopped === undefined
    ? textOutput(body, data)
    : errorOutput(body, data);
}

function endingOf({ exitCode, exitSignal, stopped, durationMs }: ProcessResult): string {
  if (stopped === 'timeout') return `timed out, ${durationMs}ms; set timeout_seconds for more`;
  if (stopped === 'aborted') return `cancelled, ${durationMs}ms`;
  return `exit ${exitCode ?? exitSignal ?? 'unknown'}, ${durationMs}ms`;
}
