import type { OpenRyeOptions, Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadList } from '../../kernel/app/thread-list.ts';
import type { Keyboard, KeyHandlers } from './keyboard.ts';
import type { Shown } from './visible.ts';

/** One output stream. */
export interface Sink {
  readonly isTty: boolean;
  /** Columns of the terminal; 80 where there is none. */
  readonly columns: number;
  /** Rows of the terminal; 24 where there is none. */
  readonly rows: number;
  /** Writes text for people. */
  write(content: Shown): void;
  /** Writes bytes as they are: documents for programs, streams, and what moves the cursor. */
  writeRaw(content: string | Uint8Array): void;
}

/** `reader_gone`: the other end closed the pipe, as `head` does; not a failure. `failed`: output is lost. */
export type Delivery = 'whole' | 'reader_gone' | 'failed';

/** Everything that a command uses of its process. A test replaces it. */
export interface Io {
  readonly stdout: Sink;
  readonly stderr: Sink;
  readonly stdinIsTty: boolean;
  /** True if the process ends with its command. */
  readonly endsWithCommand: boolean;
  /** Reads all of standard input as UTF-8. */
  readStdin(): Promise<string>;
  /** Reads standard input line by line as it arrives, as UTF-8, until its end or until `signal` aborts. */
  readLines(signal: AbortSignal): AsyncIterable<string>;
  /**
   * `data`: text that nothing has read is piped in. `silent`: a shell's pipe is open and may still bring some. `none`: a
   * terminal, /dev/null, an end, or a silent socket, which a program that starts rye leaves open. Reads nothing away and
   * does not wait for a writer.
   */
  stdinState(): Promise<'data' | 'silent' | 'none'>;
  /** Prints a question on stderr and reads one line from the terminal. Returns '' on end of input or an interrupt. */
  ask(question: Shown): Promise<string>;
  /** Takes the keys of the terminal one by one, without echo, until the keyboard is closed. */
  openKeyboard(handlers: KeyHandlers): Promise<Keyboard>;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** The script of this program, which Node runs. */
  readonly program: string;
  /** Throws `file_not_found` if the working directory was deleted. */
  readonly cwd: string;
  /** Monotonic clock in milliseconds. */
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
  /** Aborts when stdout is closed. For commands that only print, such as `threads logs --follow`. */
  readonly outputClosed: AbortSignal;
  /** Waits until all output has left the process. Reports if stdout accepted all of it. */
  flush(): Promise<Delivery>;
  /** The features of this rye. */
  readonly features: NonNullable<OpenRyeOptions['features']>;
  openRye(options: OpenRyeOptions): Promise<Rye>;
  /** Opens only the list of threads, in a fraction of the time. */
  openThreadList(options: OpenRyeOptions): Promise<ThreadList>;
}

/** True if an environment variable has a value. */
export function isSet(value: string | undefined): boolean {
  return value !== undefined && value !== '';
}

/** True if lines may be redrawn: on a capable terminal that no CI system records. */
export function canRedraw(sink: Sink, env: Io['env']): boolean {
  return sink.isTty && env['TERM'] !== 'dumb' && !isSet(env['CI']);
}

/** True if a person can pick from a list: input and output are a capable terminal. */
export function canPick({
  io,
  global,
}: {
  readonly io: Io;
  readonly global: { readonly json: boolean };
}): boolean {
  return io.stdinIsTty && io.stdout.isTty && canRedraw(io.stderr, io.env) && !global.json;
}
