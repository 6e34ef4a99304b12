import type { Delivery, Io } from '../../src/faces/ui/io.ts';
import { FEATURES } from '../../src/features/shipped.ts';
import type { OpenRyeOptions, Rye } from '../../src/kernel/app/api/rye.ts';
import { RyeError } from '../../src/kernel/core/errors.ts';

export interface FakeIoOptions {
  readonly stdoutIsTty?: boolean;
  readonly stderrIsTty?: boolean;
  readonly columns?: number;
  readonly rows?: number;
  /** Milliseconds since 1970 at which the clock is frozen. */
  readonly now?: number;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly stdin?: string;
  /** A person's answer at the terminal; absent: stdin is not a terminal. */
  readonly answer?: string;
  readonly delivery?: Delivery;
  /** The result of `openRye`; only the members that the test calls. */
  readonly rye?: Partial<Rye>;
}

export interface FakeIo extends Io {
  readonly out: () => string;
  readonly err: () => string;
  readonly opened: readonly OpenRyeOptions[];
  /** Handler of SIGINT. */
  readonly interrupt: () => void;
}

/** An Io that records what is written. The clock is frozen. */
export function createFakeIo(options: FakeIoOptions = {}): FakeIo {
  const { columns = 80, rows = 24, now = 0, cwd = process.cwd(), env = {}, rye } = options;
  const written = { stdout: '', stderr: '' };
  const controller = new AbortController();
  let unread = options.stdin ?? '';
  const opened: OpenRyeOptions[] = [];
  const sink = (name: 'stdout' | 'stderr', isTty = false): Io['stdout'] => ({
    isTty,
    columns,
    rows,
    write: (content) => {
      written[name] += content;
    },
    writeRaw: (content) => {
      written[name] += typeof content === 'string' ? content : Buffer.from(content).toString();
    },
  });
  const open = (request: OpenRyeOptions): Promise<Rye> => {
    opened.push(request);
    if (rye === undefined) throw new RyeError('internal', 'this test opens no project');
    return Promise.resolve({ close: () => {}, ...rye } as Rye);
  };
  return {
    stdout: sink('stdout', options.stdoutIsTty),
    stderr: sink('stderr', options.stderrIsTty),
    stdinIsTty: options.answer !== undefined,
    endsWithCommand: false,
    readStdin: () => {
      unread = '';
      return Promise.resolve(options.stdin ?? '');
    },
    readLines: async function* lines() {
      const text = unread;
      unread = '';
      if (text !== '') yield* await Promise.resolve(text.replace(/\n$/, '').split('\n'));
    },
    openKeyboard: () => Promise.reject(new Error('this test has no keyboard')),
    stdinState: () => Promise.resolve(unread === '' ? 'none' : 'data'),
    ask: (question) => {
      written.stderr += question;
      return Promise.resolve(options.answer ?? '');
    },
    env: { HOME: '/home/ada', ...env },
    program: 'rye',
    cwd,
    monotonic: () => 0,
    now: () => now,
    repeat: () => () => {},
    cancellation: () => controller.signal,
    outputClosed: new AbortController().signal,
    flush: () => Promise.resolve(options.delivery ?? 'whole'),
    features: FEATURES,
    openRye: open,
    openThreadList: open,
    out: () => written.stdout,
    err: () => written.stderr,
    opened,
    interrupt: () => {
      controller.abort();
    },
  };
}
