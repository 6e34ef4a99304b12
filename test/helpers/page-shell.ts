import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { screenOf } from './screen.ts';

const [ESCAPE, BELL] = ['\u001b', '\u0007'];
/** The end of a command with its exit status, as terminals that integrate a shell mark it (OSC 133 of FinalTerm). */
const COMMAND_END = new RegExp(`${ESCAPE}\\]133;D;(\\d+)${BELL}`);
const OPERATING_SYSTEM_COMMAND = new RegExp(
  `${ESCAPE}\\][^${BELL}${ESCAPE}]*(?:${BELL}|${ESCAPE}\\\\)`,
  'g',
);
/** Python has a portable way to a pseudo-terminal, and every machine that tests rye has Python. */
const TERMINAL = 'import pty, sys; sys.exit(pty.spawn(["sh", "-i"]) >> 8)';

export interface Shown {
  readonly code: number;
  /** The rows of the terminal when the command has ended. */
  readonly lines: readonly string[];
}

/** A shell in a terminal, in which the commands of a page are typed one after the other. */
export interface PageShell {
  /** Types a command line. One that does not end is interrupted, which its status tells. */
  type(command: string): Promise<Shown>;
  /** Types a command that stays, and waits until its lines satisfy `isShown` or it has ended. */
  open(command: string, isShown: (lines: readonly string[]) => boolean): Promise<Shown>;
  /** Presses Ctrl-C and waits until the command has ended. */
  stop(): Promise<void>;
  close(): Promise<void>;
}

export interface PageShellOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly columns: number;
}

/** A fleet with a new database starts within it on a busy machine. */
const LONGEST_MS = 90_000;
const CTRL_C = '\u0003';

export async function openPageShell({ cwd, env, columns }: PageShellOptions): Promise<PageShell> {
  const child = spawn('python3', ['-c', TERMINAL], {
    cwd,
    env: {
      TERM: 'xterm-256color',
      LANG: 'C.UTF-8',
      ...env,
      PS1: `${ESCAPE}]133;D;$?${BELL}`,
      PS2: '',
    },
  });
  let output = '';
  let onOutput = (): void => {};
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    output += text;
    onOutput();
  });
  const ended = once(child, 'close').then(() => onOutput());
  /** Takes the output up to the end of the command, or looks at it once it satisfies `isShown`. */
  const next = async (isShown: (lines: readonly string[]) => boolean): Promise<Shown> =>
    await new Promise((resolve, reject) => {
      onOutput = () => {
        const end = COMMAND_END.exec(output);
        const text = end === null ? output : output.slice(0, end.index);
        const lines = screenOf(text.replaceAll(OPERATING_SYSTEM_COMMAND, ''));
        if (end !== null) {
          output = output.slice(end.index + end[0].length);
          resolve({ code: Number(end[1]), lines });
        } else if (isShown(lines)) resolve({ code: 0, lines });
        else if (child.exitCode !== null) reject(new Error(`the shell has ended: ${output}`));
      };
      onOutput();
    });
  const isNeverShown = (): boolean => false;
  const interrupt = (): void => {
    child.stdin.write(CTRL_C);
  };
  const open: PageShell['open'] = async (command, isShown) => {
    const tooLong = setTimeout(interrupt, LONGEST_MS);
    child.stdin.write(`${command}\n`);
    try {
      return await next(isShown);
    } finally {
      clearTimeout(tooLong);
    }
  };
  const type: PageShell['type'] = async (command) => await open(command, isNeverShown);
  await next(isNeverShown);
  await type(`stty -echo cols ${columns} rows 200`);
  return {
    type,
    open,
    stop: async () => {
      interrupt();
      await next(isNeverShown);
    },
    close: async () => {
      child.stdin.end('exit\n');
      await ended;
    },
  };
}
