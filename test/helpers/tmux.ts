import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { expect } from 'vitest';

const WAIT = { timeout: 60_000, interval: 50 };

let servers = 0;

/** A separate tmux server, so that no other session is affected. */
export class TmuxServer {
  readonly #name: string;
  readonly #env: Readonly<Record<string, string>>;
  #opened = 0;

  constructor(name: string, env: Readonly<Record<string, string>>) {
    // a server that is ending still has its name
    servers += 1;
    this.#name = `${name}-${process.pid}-${servers}`;
    this.#env = { ...env, TERM: 'xterm-256color', LANG: 'C.UTF-8' };
  }

  run(...args: readonly string[]): string {
    return execFileSync('tmux', ['-L', this.#name, '-f', '/dev/null', ...args], {
      encoding: 'utf8',
      env: this.#env,
    });
  }

  /** Sets the buffer that is pasted next. */
  load(text: string): void {
    execFileSync('tmux', ['-L', this.#name, '-f', '/dev/null', 'load-buffer', '-'], {
      input: text,
      env: this.#env,
    });
  }

  /** Opens a terminal with a shell in a folder. */
  open(name: string, folder: string, size: readonly [number, number] = [100, 30]): Tmux {
    const [columns, rows] = size.map(String);
    const area = ['-x', columns ?? '', '-y', rows ?? ''];
    // a test that is tried again has its earlier session still
    this.#opened += 1;
    const session = `${name}-${this.#opened}`;
    this.run('new-session', '-d', '-s', session, ...area, '-c', folder, 'sh');
    return new Tmux(this, session);
  }

  close(): void {
    if (this.#opened > 0) this.run('kill-server');
  }
}

/** One terminal. */
export class Tmux {
  readonly #server: TmuxServer;
  readonly #name: string;

  constructor(server: TmuxServer, name: string) {
    this.#server = server;
    this.#name = name;
  }

  /** Runs a command line, then prints its exit status and whether the terminal is as it was. */
  run(command: string): void {
    this.type(`clear; ${command}; echo "exit=$? $(stty -a | grep -o ' -\\?icanon')"`);
    this.press('Enter');
  }

  /** Writes every byte that the terminal gets to a file. */
  record(file: string): void {
    this.#server.run('pipe-pane', '-O', '-t', this.#name, `cat > ${file}`);
  }

  press(...keys: readonly string[]): void {
    this.#server.run('send-keys', '-t', this.#name, ...keys);
  }

  type(text: string): void {
    this.#server.run('send-keys', '-t', this.#name, '-l', text);
  }

  /** Types a line and presses Enter. */
  enter(text: string): void {
    this.type(text);
    this.press('Enter');
  }

  /** Pastes a text as a terminal with bracketed paste does. */
  paste(text: string): void {
    this.#server.load(text);
    this.#server.run('paste-buffer', '-p', '-r', '-t', this.#name);
  }

  screen(): string {
    return this.#server.run('capture-pane', '-p', '-t', this.#name);
  }

  resize(columns: number, rows: number): void {
    const area = ['-x', String(columns), '-y', String(rows)];
    this.#server.run('resize-window', '-t', this.#name, ...area);
  }

  /** The process ID of the program that runs in this terminal. */
  pid(): number {
    const shell = this.#server.run('display-message', '-p', '-t', this.#name, '#{pane_pid}').trim();
    const children = readFileSync(`/proc/${shell}/task/${shell}/children`, 'utf8');
    return Number(children.trim().split(' ')[0]);
  }

  async shows(text: string | RegExp): Promise<void> {
    const wanted =
      typeof text === 'string' ? expect.stringContaining(text) : expect.stringMatching(text);
    await expect
      .poll(() => this.screen(), WAIT)
      .toEqual(wanted)
      .catch((error: unknown) => {
        throw new Error(`not shown: ${String(text)}\n${this.screen().trimEnd()}`, { cause: error });
      });
  }

  async lacks(text: string): Promise<void> {
    await expect.poll(() => this.screen(), WAIT).not.toContain(text);
  }

  /** The shell is back with this exit status and its line editing. */
  async ended(status: number): Promise<void> {
    await this.shows(`exit=${status}  icanon`);
  }
}
