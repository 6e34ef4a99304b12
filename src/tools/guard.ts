import { RyeError, systemCodeOf } from '../core/errors.ts';
import type { ToolOutput } from './tool.ts';
import { errorOutput } from './tool.ts';

/**
 * Runs a tool's work and turns expected failures into error outputs that name the code and what to do next;
 * `data.code` is the error code. Anything else is a bug and passes on to the pipeline.
 */
export async function guarded(work: () => Promise<ToolOutput>): Promise<ToolOutput> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof RyeError) return problemOutput(error);
    const code = systemCodeOf(error);
    if (code === undefined || !(error instanceof Error) || !('syscall' in error)) throw error;
    return errorOutput(`The operating system refused: ${error.message}`, { code: 'tool_failed' });
  }
}

/** An error as a model reads it: code, message, hint. */
function problemOutput(error: RyeError): ToolOutput {
  const hint = error.hint === undefined ? '' : `\n${error.hint}`;
  return errorOutput(`${error.code}: ${error.message}${hint}`, { code: error.code });
}
