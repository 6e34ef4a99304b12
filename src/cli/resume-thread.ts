import type { Rye } from '../app/api/rye.ts';
import type { ResumeThreadRequest } from '../app/api/threads.ts';
import type { ExitCode } from '../core/errors.ts';
import type { Invocation } from './invocation.ts';
import type { Io } from './io.ts';
import { createRenderer } from './render/create-renderer.ts';
import { exitCodeOfResult } from './thread-exit.ts';

/** Runs a thread on and prints it as `rye threads resume` does, for the commands that end in a resume. */
export async function resumeThread(
  { recovery }: Rye,
  request: Omit<ResumeThreadRequest, 'signal' | 'onEvent'>,
  parts: { readonly invocation: Invocation; readonly io: Io; readonly signal: AbortSignal },
): Promise<ExitCode> {
  const { invocation, io, signal } = parts;
  const { global } = invocation;
  const renderer = createRenderer({
    mode: global.json ? 'json' : 'text',
    io,
    global,
    isLive: true,
  });
  try {
    const result = await recovery.resume({ ...request, signal, onEvent: renderer.event });
    renderer.finish(result);
    return exitCodeOfResult(result);
  } finally {
    renderer.close();
  }
}
