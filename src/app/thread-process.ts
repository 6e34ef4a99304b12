import { parseArgs } from 'node:util';
import { RyeError } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import type { OpenRyeOptions, Rye } from './api/rye.ts';
import { openRye } from './open-rye.ts';
import type { Preset } from './presets.ts';
import { RUN_THREAD } from './runner-command.ts';

export interface ThreadProcessOptions
  extends Pick<OpenRyeOptions, 'env' | 'onNotice' | 'mcpServers' | 'skills'> {
  /** `process.argv`: the program, and the thread that it was started for. */
  readonly argv: readonly string[];
  /** Has at least the deciding handlers, tools and directives that the thread was started with. */
  readonly preset: Preset;
  /** Ends the thread as cancelled. */
  readonly signal?: AbortSignal;
}

/**
 * Runs the thread that a process was started for: the whole work of a script that `openRye({ program })` names. Resolves
 * with the thread's result; throws `usage` for arguments that rye did not give, and why the thread can't be run.
 */
export async function runThreadProcess(options: ThreadProcessOptions): Promise<ThreadResult> {
  const { argv, env, preset, onNotice, signal = new AbortController().signal } = options;
  const { mcpServers, skills } = options;
  const { project, userSpace, overrides, command, threadId } = argumentsOf(argv.slice(2));
  const open = () =>
    openRye({
      projectPath: project,
      userSpacePath: userSpace,
      env,
      preset,
      configOverrides: overrides,
      program: argv.slice(1, 2),
      ...compact({ onNotice, mcpServers, skills }),
    });
  const using = async (run: (rye: Rye) => Promise<ThreadResult>): Promise<ThreadResult> => {
    const rye = open();
    try {
      return await run(rye);
    } finally {
      rye.close();
    }
  };
  if (command !== RUN_THREAD)
    return await using((rye) => rye.recovery.resume({ threadId, signal }));
  return await runInTurn(threadId, (id, onNext) =>
    using((rye) => rye.children.runLaunched(id, { signal, onNext })),
  );
}

/** Threads that one process runs, one after the other: what one of them leaks is freed at the latest then. */
const MAX_IN_TURN = 100;
const MAX_RESIDENT_BYTES = 256 * 1024 * 1024;

/**
 * Runs a launched thread, then the queued ones that this process takes when it ends, each with a newly opened rye, so
 * that it sees the configuration and keys of its time. Resolves with the result of the first.
 */
export async function runInTurn<T>(
  first: string,
  run: (threadId: string, onNext: (threadId: string) => boolean) => Promise<T>,
): Promise<T> {
  const taken = [first];
  let count = 0;
  const onNext = (threadId: string): boolean => {
    if (taken.length > count || count >= MAX_IN_TURN) return false;
    if (process.memoryUsage.rss() > MAX_RESIDENT_BYTES) return false;
    taken.push(threadId);
    return true;
  };
  const results: T[] = [];
  // the list grows while it is read
  for (const threadId of taken) {
    count += 1;
    results.push(await run(threadId, onNext));
  }
  return results[0] as T;
}

function argumentsOf(args: readonly string[]) {
  const { values, positionals } = parsed(args);
  const { project, 'user-space': userSpace, config: overrides = [] } = values;
  const command = positionals.slice(0, -1).join(' ');
  const threadId = positionals.at(-1);
  const isKnown = command === RUN_THREAD || command === 'threads resume';
  if (!isKnown || project === undefined || userSpace === undefined || threadId === undefined) {
    throw new RyeError('usage', 'this program was not started by rye for a thread', {
      hint: 'Name it in openRye({ program }) and start the thread from there.',
    });
  }
  return { project, userSpace, overrides, command, threadId };
}

function parsed(args: readonly string[]) {
  try {
    return parseArgs({
      args: [...args],
      options: {
        project: { type: 'string' },
        'user-space': { type: 'string' },
        config: { type: 'string', multiple: true },
      },
      allowPositionals: true,
    });
  } catch (error) {
    throw new RyeError('usage', 'the arguments are not those that rye starts a thread with', {
      cause: error,
    });
  }
}
