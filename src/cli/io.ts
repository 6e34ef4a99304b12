import type { OpenRyeOptions, Rye } from '../app/api/rye.ts';
import type { ThreadList } from '../app/thread-list.ts';

/** One output stream. */
export interface Sink {
  readonly isTty: boolean;
  /** Columns of the terminal; 80 where there is none. */
  readonly columns: number;
  /** Rows of the terminal; 24 where there is none. */
  readonly rows: number;
  write(content: string | Uint8Array): void;
}

/** `reader_gone`: the other end of the pipe closed, as `head` does, which is no failure. `failed`: the output is lost. */
export type Delivery = 'whole' | 'reader_gone' | 'failed';

/** Everything that a command touches outside itself, so that a test can stand in for the process. */
export interface Io {
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly stdinIsTty: boolean;
  /** All of standard input as UTF-8. */
  readStdin(): Promise<string>;
  /** Shows a question on stderr and reads one line of the terminal; empty when it ends or is interrupted. */
  ask(question: string): Promise<string>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Throws `file_not_found` if the working directory was deleted. */
  readonly cwd: string;
  /** Milliseconds that never go back. */
  monotonic(): number;
  /** Milliseconds since 1970. */
  now(): number;
  /** Calls `action` every `ms` until the returned function is called. Does not keep the process alive. */
  repeat(ms: number, action: () => void): () => void;
  /**
   * From the first call on, SIGINT, SIGTERM, SIGHUP and SIGQUIT abort this signal instead of ending the process. A closed
   * stdout does not: a thread does not depend on the reader of its output.
   */
  cancellation(): AbortSignal;
  /** Aborts when stdout takes nothing more. For commands that only show something, such as `threads logs --follow`. */
  readonly outputClosed: AbortSignal;
  /** Waits until what was written has left the process, and says whether stdout took all of it. */
  flush(): Promise<Delivery>;
  openRye(options: OpenRyeOptions): Promise<Rye>;
  /** The part of it that lists threads, in a fraction of the time. */
  openThreadList(options: OpenRyeOptions): Promise<ThreadList>;
}
