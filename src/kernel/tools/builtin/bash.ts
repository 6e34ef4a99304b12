import { existsSync } from 'node:fs';
import { boundedProgress, HeadTailBuffer } from '../output.ts';
import { childEnvironment, type ProcessResult, runProcess } from '../process.ts';
import {
  builtinTool,
  CAUTIOUS_TRAITS,
  errorOutput,
  type Tool,
  type ToolOutput,
  textOutput,
} from '../tool.ts';
import { type BuiltinOptions, NOTICE_BYTES, tooLarge } from './options.ts';

const DEFAULT_TIMEOUT_SECONDS = 120;
const MAX_TIMEOUT_SECONDS = 3600;
const DEFAULT_OUTPUT_BYTES = 32_768;
/** Maximum bytes to keep without a cap. */
const CEILING_BYTES = 16 * 1024 * 1024;
const PROGRESS_BYTES = 256 * 1024;

/**
 * `rye/bash` runs a shell command in the project folder with an empty stdin. Shows stdout and stderr together in their
 * order, and only the head and tail of long output. A non-zero exit is an error output. `data`: `exit_code` (null after
 * a signal), `output`, `duration_ms`, `timed_out`.
 */
export function createBashTool(options: BuiltinOptions): Tool {
  return builtinTool({
    id: 'rye/bash',
    description:
      'Runs a shell command in the project folder and returns its output and exit code. Each command has a new shell: a changed folder or variable does not last. stdin is empty; processes left in the background are ended with the command.',
    properties: {
      command: { type: 'string', minLength: 1, description: 'The command line.' },
      timeout_seconds: {
        type: 'integer',
        minimum: 1,
        maximum: MAX_TIMEOUT_SECONDS,
        description: `Default ${DEFAULT_TIMEOUT_SECONDS}.`,
      },
    },
    required: ['command'],
    traits: { ...CAUTIOUS_TRAITS, timeout_seconds: MAX_TIMEOUT_SECONDS },
    async run({ command, timeout_seconds = DEFAULT_TIMEOUT_SECONDS }, context) {
      const output = new HeadTailBuffer(outputCap(options));
      const live = boundedProgress((chunk) => context.progress(chunk), PROGRESS_BYTES);
      const collect = (chunk: Buffer): undefined => {
        output.push(chunk);
        live(chunk);
      };
      const shell = existsSync('/bin/bash') ? '/bin/bash' : '/bin/sh';
      const result = await runProcess({
        // one pipe for both: from two they could not be put back into their order
        command: '/bin/sh',
        args: ['-c', 'exec "$0" -c "$1" 2>&1', shell, command],
        cwd: context.projectPath,
        env: childEnvironment(options.env, context, options.passEnv),
        timeoutMs: timeout_seconds * 1000,
        signal: context.signal,
        confine: options.sandbox?.(true),
        onStdout: collect,
        onStderr: collect,
      });
      if (options.whole && options.maxOutputBytes === undefined && output.omitted > 0) {
        const what = `the command wrote more than the ${CEILING_BYTES} bytes that a step can use`;
        return tooLarge(what, 'Write its output to a file.');
      }
      return present(output.text(), result, options.metadata ?? true);
    },
  });
}

/** The ending must fit into the result too, because a result that is too large for the context loses its middle. */
function outputCap({ maxOutputBytes, maxResultBytes = 0, whole }: BuiltinOptions): number {
  if (maxOutputBytes !== undefined && maxOutputBytes > 0) return maxOutputBytes;
  const cap = maxOutputBytes === 0 || whole ? CEILING_BYTES : DEFAULT_OUTPUT_BYTES;
  return maxResultBytes === 0 ? cap : Math.min(cap, Math.max(maxResultBytes - NOTICE_BYTES, 0));
}

function present(output: string, result: ProcessResult, metadata: boolean): ToolOutput {
  const data = {
    exit_code: result.exitCode,
    output,
    duration_ms: result.durationMs,
    timed_out: result.stopped === 'timeout',
  };
  const isTold = metadata || result.stopped !== undefined || result.leftovers.length > 0;
  const ending = isTold ? `(${endingOf(result)})` : '';
  const shown = [output.replace(/\n$/, ''), ending].filter((part) => part !== '').join('\n');
  const body = shown === '' ? '(no output)' : shown;
  return result.exitCode === 0 && result.stopped === undefined
    ? textOutput(body, data)
    : errorOutput(body, data);
}

function endingOf({ leftovers, ...result }: ProcessResult): string {
  const left = leftovers.map(({ pid, name }) => `${name} (process ${pid})`).join(', ');
  return left === '' ? reasonOf(result) : `${reasonOf(result)}; still running: ${left}`;
}

function reasonOf({
  exitCode,
  exitSignal,
  stopped,
  durationMs,
}: Omit<ProcessResult, 'leftovers'>): string {
  if (stopped === 'timeout') return `timed out, ${durationMs}ms; set timeout_seconds for more`;
  if (stopped === 'aborted') return `cancelled, ${durationMs}ms`;
  return `exit ${exitCode ?? exitSignal ?? 'unknown'}, ${durationMs}ms`;
}
