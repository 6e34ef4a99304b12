import { lstatSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { RyeError, systemCodeOf } from '../core/errors.ts';
import { compact } from '../core/json.ts';
import type { ThreadResult } from '../core/thread.ts';
import { offerProcess } from '../threads/family/idle-fs.ts';
import type { OpenRyeOptions, Rye } from './api/rye.ts';
import { openRye } from './open-rye.ts';
import type { Preset } from './presets.ts';
import { RUN_THREAD } from './runner-command.ts';
import { systemClock } from './system.ts';

/** Files and folders that are looked at; more than that are not compared. */
const MAX_FILES = 1000;
/** A file may change again without a new time of change within this many milliseconds. */
const YOUNG_MS = 100;

interface Places {
  readonly projectPath: string;
  readonly userSpacePath: string;
}

/**
 * Returns a text that differs after any change of the files that an opened rye reads once: configuration, keys, their
 * signatures and the user's `.env`. Undefined if it can't prove that, as for files that changed just now or are links.
 */
export function settingsState(
  { projectPath, userSpacePath }: Places,
  nowMs: number,
): string | undefined {
  const roots = [projectPath, userSpacePath].flatMap((space) =>
    ['config', 'signatures', '.env'].map((name) => join(space, '.ai', name)),
  );
  const lines: string[] = [];
  const look = (path: string): boolean => {
    const stats = statsOf(path);
    if (stats === undefined) {
      lines.push(`${path} -`);
      return true;
    }
    const { ino, size, mode, mtimeNs, ctimeNs } = stats;
    const isYoung = Number(ctimeNs / 1_000_000n) > nowMs - YOUNG_MS;
    if (lines.length >= MAX_FILES || isYoung || stats.isSymbolicLink()) return false;
    lines.push(`${path} ${ino} ${size} ${mode} ${mtimeNs} ${ctimeNs}`);
    if (!stats.isDirectory()) return true;
    return readdirSync(path).every((name) => look(join(path, name)));
  };
  return roots.every(look) ? lines.join('\n') : undefined;
}

function statsOf(path: string) {
  try {
    return lstatSync(path, { bigint: true });
  } catch (error) {
    if (systemCodeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}

export interface ThreadProcessOptions
  extends Pick<OpenRyeOptions, 'env' | 'features' | 'onNotice' | 'mcpServers' | 'skills'> {
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
  const { features, mcpServers, skills } = options;
  const { project, userSpace, overrides, command, threadId } = argumentsOf(argv.slice(2));
  const open = () =>
    openRye({
      projectPath: project,
      userSpacePath: userSpace,
      env,
      preset,
      configOverrides: overrides,
      program: argv.slice(1, 2),
      ...compact({ features, onNotice, mcpServers, skills }),
    });
  if (command === RUN_THREAD) return await runInTurn(threadId, { open, signal });
  const rye = open();
  try {
    return await rye.recovery.resume({ threadId, signal });
  } finally {
    rye.close();
  }
}

/** Threads that one process runs, one after the other: what one of them leaks is freed at the latest then. */
const MAX_IN_TURN = 100;
const MAX_RESIDENT_BYTES = 256 * 1024 * 1024;
/** Milliseconds in which a process whose thread has ended takes another one. */
const IDLE_MS = 1000;
/** Milliseconds for which an opened rye serves the next threads: what it knows of keys is at most this old. */
const KEPT_MS = 60_000;

export interface TurnOptions {
  /** Opens rye for a thread, and for the next ones while its settings are as they were. */
  readonly open: () => Rye | Promise<Rye>;
  /** Ends the running thread as cancelled, and starts no other. */
  readonly signal: AbortSignal;
  /** True for a process that ends as a whole when its threads have ended. */
  readonly exiting?: boolean;
  /** True: waits a moment for another thread. Only for a process in which no code of a program runs. */
  readonly waits?: boolean;
}

/**
 * Runs a launched thread, then the queued ones that this process takes when it ends or that others hand to it. Each sees
 * the configuration and keys of its time. Resolves with the result of the first.
 */
export async function runInTurn(first: string, options: TurnOptions): Promise<ThreadResult> {
  const { signal, exiting = false, waits = false } = options;
  const isAsStarted = startedState();
  const taken = [first];
  const results: Promise<ThreadResult>[] = [];
  const mayTakeMore = (): boolean => !signal.aborted && mayRunMore(taken.length) && isAsStarted();
  const rye = new KeptRye(options.open);
  try {
    // the list grows while it is read
    for (const [at, threadId] of taken.entries()) {
      const onNext = (next: string): boolean => {
        if (taken.length > at + 1 || !mayTakeMore()) return false;
        taken.push(next);
        return true;
      };
      const run = async (): Promise<ThreadResult> =>
        await (await rye.current()).children.runLaunched(threadId, { signal, onNext });
      results.push(run());
      // the failure of one thread is not that of the next
      await Promise.allSettled(results);
      if (!waits || taken.length > at + 1 || !mayTakeMore()) continue;
      const { projectPath } = await rye.current();
      const { pid } = process;
      const next = await offerProcess({
        projectPath,
        pid,
        clock: systemClock,
        waitMs: IDLE_MS,
        signal,
      });
      if (next !== undefined) taken.push(next);
    }
  } finally {
    rye.close(exiting);
  }
  return await (results[0] as Promise<ThreadResult>);
}

/** True if a process that has run so many threads may run another one. */
export function mayRunMore(count: number): boolean {
  return count < MAX_IN_TURN && process.memoryUsage.rss() <= MAX_RESIDENT_BYTES;
}

/** Returns a test that the working folder and the environment are as they are now. */
export function startedState(): () => boolean {
  const started = processState();
  return () => processState() === started;
}

function processState(): string {
  return JSON.stringify([process.cwd(), Object.entries(process.env)]);
}

/** An opened rye that is opened again when the files that it has read may have changed. */
class KeptRye {
  readonly #open: TurnOptions['open'];
  #rye: Rye | undefined;
  #state: string | undefined;
  #openedMs = 0;

  constructor(open: TurnOptions['open']) {
    this.#open = open;
  }

  async current(): Promise<Rye> {
    const nowMs = performance.now();
    if (this.#rye) {
      const isFresh = nowMs - this.#openedMs < KEPT_MS && this.#state !== undefined;
      if (isFresh && this.#state === settingsState(this.#rye, Date.now())) return this.#rye;
      this.#rye.close();
    }
    // its state before it reads anything
    const rye = await this.#open();
    this.#rye = rye;
    this.#state = settingsState(rye, Date.now());
    this.#openedMs = nowMs;
    return rye;
  }

  close(exiting: boolean): void {
    this.#rye?.close({ exiting });
  }
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
