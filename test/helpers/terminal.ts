import { execFileSync } from 'node:child_process';
import path from 'node:path';
import { expect } from 'vitest';
import { cliPackage } from './run-cli.ts';

const WAIT = { timeout: 60_000, interval: 50 };

/** A real terminal: a shell in a separate tmux server. */
export interface Terminal {
  /** Types a command line of `rye`; the exit status follows as `exit=0`. */
  run(args: string): void;
  press(...keys: readonly string[]): void;
  type(text: string): void;
  /** The visible rows. */
  screen(): string;
  /** The visible rows with the sequences of their colors. */
  colors(): string;
  resize(columns: number, rows: number): void;
  /** Waits for a text on the screen. */
  shows(text: string | RegExp): Promise<void>;
  close(): void;
}

export interface TerminalOptions {
  readonly cwd: string;
  readonly home: string;
  readonly columns: number;
  readonly rows?: number;
  readonly env?: Readonly<Record<string, string>>;
}

let opened = 0;

export async function openTerminal(options: TerminalOptions): Promise<Terminal> {
  const { cwd, home, env = {}, ...size } = options;
  const program = path.join(await cliPackage(), 'bin', 'rye.js');
  opened += 1;
  const server = `rye-terminal-${process.pid}-${opened}`;
  const tmux = (...args: readonly string[]): string =>
    execFileSync('tmux', ['-u', '-L', server, '-f', '/dev/null', ...args], {
      encoding: 'utf8',
      env: {
        ...env,
        PATH: process.env['PATH'],
        HOME: home,
        TERM: 'xterm-256color',
        LANG: 'C.UTF-8',
        PS1: '> ',
      },
    });
  const [width, height] = [String(size.columns), String(size.rows ?? 40)];
  tmux('new-session', '-d', '-s', 't', '-x', width, '-y', height, '-c', cwd, 'sh');
  const screen = (): string => tmux('capture-pane', '-p', '-t', 't').trimEnd();
  return {
    run: (args) => {
      // at once: until the shell clears it, the screen would still show the last command
      tmux('send-keys', '-R', '-t', 't');
      const line = `clear; ${process.execPath} ${program} ${args}; echo exit=$?`;
      tmux('send-keys', '-t', 't', '-l', line);
      tmux('send-keys', '-t', 't', 'Enter');
    },
    press: (...keys) => {
      tmux('send-keys', '-t', 't', ...keys);
    },
    type: (text) => {
      tmux('send-keys', '-t', 't', '-l', text);
    },
    screen,
    colors: () => tmux('capture-pane', '-p', '-e', '-t', 't'),
    resize: (columns, rows) => {
      tmux('resize-window', '-t', 't', '-x', String(columns), '-y', String(rows));
    },
    shows: async (text) => {
      const wanted =
        typeof text === 'string' ? expect.stringContaining(text) : expect.stringMatching(text);
      await expect.poll(screen, WAIT).toEqual(wanted);
    },
    close: () => {
      tmux('kill-server');
    },
  };
}
