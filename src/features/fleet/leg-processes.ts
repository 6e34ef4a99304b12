import { type ChildProcess, spawn } from 'node:child_process';
import { statSync } from 'node:fs';
import { systemCodeOf } from '../../kernel/core/errors.ts';
import { isRecord, parseJson } from '../../kernel/core/json.ts';
import type { LegMessage, LegOrder, LegReply } from './leg-control.ts';

/** Milliseconds for which a process without a leg is kept beside the first one. */
const IDLE_MS = 10_000;
/** Milliseconds after which a process is started ahead of its leg: the leg before it has the processor first. */
const AHEAD_MS = 500;

export interface LegProcessesOptions {
  /** The program of a leg. */
  readonly command: string;
  /** The first one is a file: if it was replaced, no process that was started before runs another leg. */
  readonly args: readonly string[];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** The most processes with a leg at once. */
  readonly slots: number;
  /** Receives each line that a process prints and that is no reply, with the thread of its last leg. */
  readonly onLine: (threadId: string | undefined, line: string) => void;
}

/**
 * The processes in which a worker runs legs, one leg at a time in each. One is started ahead, so that a leg need not wait
 * for the start of a program; a process whose leg has ended well takes the next one.
 */
export class LegProcesses {
  readonly #options: LegProcessesOptions;
  readonly #busy = new Set<LegProcess>();
  /** The process that waits longest is last: others are used before it and it ends first. */
  readonly #idle: LegProcess[] = [];
  #ahead: NodeJS.Timeout | undefined;
  #isEnded = false;

  constructor(options: LegProcessesOptions) {
    this.#options = options;
  }

  get running(): number {
    return this.#busy.size;
  }

  /** Runs a leg. Resolves to the exit status that its process has, or would have if it did not wait for another leg. */
  async run(order: LegOrder, signal: AbortSignal): Promise<number | null> {
    const program = programState(this.#options);
    let taken = this.#idle.shift();
    // a program that was replaced must not load the rest of itself from the new one
    while (taken !== undefined && (taken.program !== program || taken.isGone)) {
      taken.end();
      taken = this.#idle.shift();
    }
    const one = taken ?? new LegProcess(this.#options, program);
    this.#busy.add(one);
    this.#startAhead();
    const drain = (): void => one.send({ kind: 'drain' });
    try {
      const end = one.run(order);
      if (signal.aborted) drain();
      signal.addEventListener('abort', drain, { once: true });
      const { status, isKept } = await end;
      if (isKept) this.#keep(one);
      return status;
    } finally {
      signal.removeEventListener('abort', drain);
      this.#busy.delete(one);
      this.#startAhead();
    }
  }

  /** Sends a message to each process that runs a leg. */
  send(message: LegMessage): void {
    for (const one of this.#busy) one.send(message);
  }

  /** Starts a process ahead of its leg, soon. */
  start(): void {
    this.#startAhead(0);
  }

  /** Kills the processes of the legs that run, with what they have started. */
  kill(): void {
    for (const one of this.#busy) one.kill();
  }

  /** Ends the processes without a leg. No other is kept. */
  close(): void {
    this.#isEnded = true;
    clearTimeout(this.#ahead);
    for (const one of this.#idle.splice(0)) one.end();
  }

  #keep(one: LegProcess): void {
    if (this.#isEnded) {
      one.end();
      return;
    }
    this.#idle.unshift(one);
    one.onGone = () => this.#forget(one);
    one.idleTimer = setTimeout(() => {
      if (this.#idle.length === 1) return;
      this.#forget(one);
      one.end();
    }, IDLE_MS).unref();
  }

  #forget(one: LegProcess): void {
    const at = this.#idle.indexOf(one);
    if (at >= 0) this.#idle.splice(at, 1);
  }

  #startAhead(afterMs = AHEAD_MS): void {
    if (this.#isEnded || this.#ahead !== undefined) return;
    this.#ahead = setTimeout(() => {
      this.#ahead = undefined;
      if (this.#isEnded || this.#idle.length > 0 || this.#busy.size >= this.#options.slots) return;
      this.#keep(new LegProcess(this.#options, programState(this.#options)));
    }, afterMs).unref();
  }
}

interface LegEnd {
  readonly status: number | null;
  readonly isKept: boolean;
}

/** A process for legs. It ends when this process does: its stdin closes. */
class LegProcess {
  readonly program: string;
  readonly #child: ChildProcess;
  idleTimer: NodeJS.Timeout | undefined;
  onGone: (() => void) | undefined;
  isGone = false;
  #threadId: string | undefined;
  #ended: ((end: LegEnd) => void) | undefined;
  #failed: ((error: Error) => void) | undefined;
  #failure: Error | undefined;

  constructor({ command, args, cwd, env, onLine }: LegProcessesOptions, program: string) {
    this.program = program;
    const child = spawn(command, args, {
      cwd,
      env,
      stdio: ['pipe', 'pipe', 'pipe'],
      detached: true,
    });
    this.#child = child;
    child.stdin.on('error', () => undefined);
    eachLine(child.stdout, (line) => {
      const status = statusIn(line);
      if (status === undefined) onLine(this.#threadId, line);
      else this.#receive(status);
    });
    eachLine(child.stderr, (line) => onLine(this.#threadId, line));
    child.once('error', (error) => this.#end(null, error));
    child.once('close', (status) => this.#end(status));
  }

  async run(order: LegOrder): Promise<LegEnd> {
    clearTimeout(this.idleTimer);
    this.onGone = undefined;
    this.#threadId = order.threadId;
    return await new Promise((resolve, reject) => {
      if (this.#failure) {
        reject(this.#failure);
        return;
      }
      [this.#ended, this.#failed] = [resolve, reject];
      if (this.isGone) resolve({ status: null, isKept: false });
      else this.#write(order);
    });
  }

  send(message: LegMessage): void {
    this.#write(message);
  }

  /** Lets a process without a leg end. */
  end(): void {
    clearTimeout(this.idleTimer);
    this.#child.stdin?.end();
  }

  kill(): void {
    const { pid, exitCode } = this.#child;
    if (pid === undefined || exitCode !== null) return;
    try {
      process.kill(-pid, 'SIGKILL');
    } catch (error) {
      if (systemCodeOf(error) !== 'ESRCH') throw error;
    }
  }

  #write(value: LegMessage | LegOrder): void {
    if (this.#child.stdin?.writable) this.#child.stdin.write(`${JSON.stringify(value)}\n`);
  }

  #receive(status: LegReply['status']): void {
    const ended = this.#ended;
    this.#ended = undefined;
    ended?.({ status, isKept: true });
  }

  #end(status: number | null, error?: Error): void {
    this.isGone = true;
    this.#failure = error;
    if (error) this.#failed?.(error);
    else this.#ended?.({ status, isKept: false });
    this.#ended = undefined;
    this.onGone?.();
  }
}

/** The status of a reply; undefined for what a library prints. */
function statusIn(line: string): LegReply['status'] | undefined {
  const value = parseJson(line);
  const status = isRecord(value) ? value['status'] : undefined;
  return typeof status === 'number' ? status : undefined;
}

/** Calls back with each line of a stream that is not blank. */
function eachLine(stream: NodeJS.ReadableStream | null, onLine: (line: string) => void): void {
  let rest = '';
  stream?.setEncoding('utf8');
  stream?.on('data', (text: string) => {
    const lines = `${rest}${text}`.split('\n');
    rest = lines.pop() ?? '';
    for (const line of lines) if (line.trim() !== '') onLine(line);
  });
  stream?.on('end', () => {
    if (rest.trim() !== '') onLine(rest);
  });
}

/** Returns a text that differs once the program was replaced. */
function programState({ args }: LegProcessesOptions): string {
  try {
    const { ino, size, mtimeMs } = statSync(args[0] ?? '');
    return [ino, size, mtimeMs].join();
  } catch {
    return '';
  }
}
