import { spawn } from 'node:child_process';
import { fstatSync, type Stats } from 'node:fs';
import process from 'node:process';
import type { WriteStream } from 'node:tty';
import { FEATURES } from '../../features/shipped.ts';
import type { OpenRyeOptions, Rye } from '../../kernel/app/api/rye.ts';
import type { ThreadList } from '../../kernel/app/thread-list.ts';
import { EXIT, messageOf, RyeError, systemCodeOf } from '../../kernel/core/errors.ts';
import type { Delivery, Io, Sink } from '../ui/io.ts';
import { oneLine, shown } from '../ui/visible.ts';

/** Milliseconds within which repeated signals count once: npm forwards signals that the terminal also sends. */
const SAME_SIGNAL_MS = 200;
/** Milliseconds for tools and the finalization after a second signal. */
const HURRY_MS = 5000;
/** Milliseconds after the second signal before a third one stops the finalization. */
const PATIENCE_MS = 1000;
/** Maximum milliseconds for the cancellation request in the registry, which recovery reads. */
const NOTE_MS = 1000;

const STOPPING = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT'] as const;
type StoppingSignal = (typeof STOPPING)[number];

interface Cancellation {
  /** Returns a signal that aborts with the first stopping signal. Listens from the first call on. */
  readonly signal: () => AbortSignal;
  /** Names the project whose threads this process may run. */
  readonly opened: (options: OpenRyeOptions) => void;
}

/**
 * Turns SIGINT, SIGTERM and SIGHUP into one cancellation. A second signal, or a SIGQUIT, kills the process groups of
 * tools instead of waiting for them. If the run does not end soon after, the process exits and starts a `rye threads
 * recover`, which finalizes its threads as cancelled.
 */
function createCancellation(): Cancellation {
  const controller = new AbortController();
  let isListening = false;
  let project: OpenRyeOptions | undefined;
  let firstAt: number | undefined;
  let hurriedAt: number | undefined;
  let isStopping = false;

  const stopHard = async (): Promise<void> => {
    if (isStopping) return;
    isStopping = true;
    if (project !== undefined) await leaveToRecovery(project);
    process.exit(EXIT.cancelled);
  };
  const hurry = (now: number): void => {
    hurriedAt = now;
    void killTools();
    setTimeout(() => void stopHard(), HURRY_MS).unref();
  };
  const stop = (name: StoppingSignal): void => {
    const now = performance.now();
    if (firstAt === undefined) {
      firstAt = now;
      controller.abort(`interrupted by ${name}`);
      if (name === 'SIGQUIT') hurry(now);
    } else if (hurriedAt !== undefined) {
      if (now - hurriedAt >= PATIENCE_MS) void stopHard();
    } else if (now - firstAt >= SAME_SIGNAL_MS || name === 'SIGQUIT') hurry(now);
  };
  return {
    signal: () => {
      if (!isListening) {
        isListening = true;
        for (const name of STOPPING) process.on(name, stop);
      }
      return controller.signal;
    },
    opened: (options) => {
      project = options;
    },
  };
}

async function killTools(): Promise<void> {
  const { hurryGroups } = await import('../../kernel/app/thread-list.ts');
  hurryGroups();
}

/** Requests the cancellation of this process's threads and starts the command that finalizes them after it exits. */
async function leaveToRecovery(options: OpenRyeOptions): Promise<void> {
  const { projectPath, userSpacePath } = options;
  const { requestOwnCancel } = await import('../../kernel/app/thread-list.ts');
  const noted = await Promise.race([
    requestOwnCancel(options).catch(() => 0),
    new Promise<number>((resolve) => {
      setTimeout(resolve, NOTE_MS, 1);
    }),
  ]);
  const [, program] = process.argv;
  if (noted === 0 || program === undefined || process.platform === 'win32') return;
  // the pipe closes when this process exits, which ends the shell's read
  const recovery = spawn(
    '/bin/sh',
    [
      '-c',
      'read -r _; exec "$@"',
      'sh',
      process.execPath,
      program,
      '--project',
      projectPath,
      '--user-space',
      userSpacePath,
      'threads',
      'recover',
    ],
    { cwd: projectPath, detached: true, stdio: ['pipe', 'ignore', 'ignore'] },
  );
  recovery.on('error', () => undefined);
  recovery.stdin.on('error', () => undefined);
  recovery.unref();
}

const DEFAULT_COLUMNS = 80;
const DEFAULT_ROWS = 24;

function sinkOf(stream: WriteStream, onError: (error: unknown) => void): Sink {
  stream.on('error', onError);
  return {
    isTty: stream.isTTY,
    get columns() {
      return stream.columns > 0 ? stream.columns : DEFAULT_COLUMNS;
    },
    get rows() {
      return stream.rows > 0 ? stream.rows : DEFAULT_ROWS;
    },
    write(content) {
      stream.write(content);
    },
    writeRaw(content) {
      stream.write(content);
    },
  };
}

async function readAll(stream: AsyncIterable<unknown>): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(Buffer.from(chunk as Uint8Array));
  return Buffer.concat(chunks).toString('utf8');
}

async function* linesOf(signal: AbortSignal): AsyncIterable<string> {
  const { createInterface } = await import('node:readline');
  const lines = createInterface({ input: process.stdin, crlfDelay: Number.POSITIVE_INFINITY });
  const stop = (): void => lines.close();
  signal.addEventListener('abort', stop, { once: true });
  try {
    if (!signal.aborted) yield* lines;
  } finally {
    signal.removeEventListener('abort', stop);
    lines.close();
  }
}

/** {@link Io.stdinState} */
async function stdinState(): Promise<'data' | 'silent' | 'none'> {
  const { stdin } = process;
  if (stdin.isTTY || stdin.readableEnded || stdin.destroyed) return 'none';
  let kind: Stats;
  try {
    kind = fstatSync(0);
  } catch {
    return 'none';
  }
  if (!kind.isFile() && !kind.isFIFO() && !kind.isSocket()) return 'none';
  const state = await new Promise<'data' | 'silent' | 'none'>((resolve) => {
    const settle = (): void => {
      resolve(stdin.readableLength > 0 ? 'data' : 'none');
    };
    stdin.once('readable', settle).once('end', settle).once('error', settle);
    // one round of the event loop delivers what a pipe holds; a file always answers
    if (!kind.isFile())
      setImmediate(() => setImmediate(resolve, kind.isFIFO() ? 'silent' : 'none'));
  });
  stdin.removeAllListeners('readable').pause();
  // stops the pipe in a later tick; who reads before that would wait forever for the rest
  await new Promise((resolve) => void setImmediate(resolve));
  return state;
}

async function ask(question: string): Promise<string> {
  const { createInterface } = await import('node:readline');
  const { ESCAPE_MS } = await import('../ui/keyboard.ts');
  const lines = createInterface({
    input: process.stdin,
    output: process.stderr,
    escapeCodeTimeout: ESCAPE_MS,
  });
  try {
    return await new Promise<string>((resolve) => {
      lines.once('close', () => {
        resolve('');
      });
      lines.question(question, resolve);
    });
  } finally {
    lines.close();
  }
}

function workingFolder(): string {
  try {
    return process.cwd();
  } catch (error) {
    throw new RyeError('file_not_found', "the working directory doesn't exist any more", {
      hint: 'Change to a folder that exists, or name the project: rye --project FOLDER …',
      cause: error,
    });
  }
}

/** {@link Io.openRye} */
export async function openRye(options: OpenRyeOptions): Promise<Rye> {
  const { hideEnvironment } = await import('../../kernel/app/hidden-environment.ts');
  hideEnvironment(process.env);
  return (await import('../../kernel/app/open-rye.ts')).openRye(options);
}

/** {@link Io.openThreadList} */
export async function openThreadList(options: OpenRyeOptions): Promise<ThreadList> {
  const { namesStore } = await import('../../kernel/app/store-setting.ts');
  // the threads of a fleet are not in a file of the project
  if (namesStore(options)) return openRye(options);
  return (await import('../../kernel/app/thread-list.ts')).openThreadList(options);
}

/** The Io of the running process. */
export function createProcessIo(): Io {
  const cancellation = createCancellation();
  const closed = new AbortController();
  let delivery: Delivery = 'whole';
  const stderr = sinkOf(process.stderr, () => {});
  const open = sinkOf(process.stdout, (error) => {
    if (delivery !== 'whole') return;
    delivery = systemCodeOf(error) === 'EPIPE' ? 'reader_gone' : 'failed';
    closed.abort();
    if (delivery === 'reader_gone') return;
    stderr.write(
      shown`rye: cannot write to standard output: ${oneLine(messageOf(error))} [storage_failed]\n`,
    );
  });
  const stdout: Sink = {
    ...open,
    get columns() {
      return open.columns;
    },
    get rows() {
      return open.rows;
    },
    write(content) {
      if (delivery === 'whole') open.write(content);
    },
    writeRaw(content) {
      if (delivery === 'whole') open.writeRaw(content);
    },
  };
  return {
    stdout,
    stderr,
    stdinIsTty: process.stdin.isTTY,
    endsWithCommand: true,
    readStdin: () => readAll(process.stdin),
    readLines: linesOf,
    stdinState,
    ask,
    openKeyboard: async (handlers) => (await import('../ui/keyboard.ts')).openKeyboard(handlers),
    env: process.env,
    program: process.argv[1] ?? 'rye',
    get cwd() {
      return workingFolder();
    },
    monotonic: () => performance.now(),
    now: () => Date.now(),
    repeat: (ms, action) => {
      const timer = setInterval(action, ms).unref();
      return () => {
        clearInterval(timer);
      };
    },
    cancellation: cancellation.signal,
    outputClosed: closed.signal,
    flush: async () => {
      await Promise.all([drained(process.stdout), drained(process.stderr)]);
      return delivery;
    },
    openRye: async (options) => {
      cancellation.opened(options);
      return openRye(options);
    },
    openThreadList,
    features: FEATURES,
  };
}

function drained(stream: WriteStream): Promise<void> {
  return new Promise((resolve) => {
    if (stream.destroyed) {
      resolve();
      return;
    }
    stream.write('', () => {
      resolve();
    });
  });
}
