import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { deserializeMessage, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { messageOf, RyeError } from '../../core/errors.ts';
import {
  type Confine,
  type ConfinedCommand,
  endGroup,
  hurryWith,
  signalGroup,
} from '../process.ts';
import { MessageLines, TOO_LONG } from './message-lines.ts';

const STDERR_KEPT = 2000;
/** Time that a server has to end by itself when its stdin is closed. */
const LEAVE_MS = 500;

export interface StdioCommand {
  readonly command: string;
  readonly args: readonly string[];
  readonly cwd: string;
  /** The whole environment of the server. */
  readonly env: Readonly<Record<string, string>>;
  readonly confine: Confine | undefined;
}

/**
 * The client's end of the stdio transport: one JSON message a line. Other than the SDK's own it gives the server a
 * process group of its own, all of which ends with the connection, and a sandbox where there is one.
 */
export class StdioTransport implements Transport {
  onclose?: () => void;
  onerror?: (error: Error) => void;
  onmessage?: (message: JSONRPCMessage) => void;
  readonly #command: StdioCommand;
  readonly #lines = new MessageLines();
  #failure: string | undefined;
  #child: ChildProcess | undefined;
  #confined: ConfinedCommand | undefined;
  #stderr = '';

  constructor(command: StdioCommand) {
    this.#command = command;
  }

  get isClosed(): boolean {
    return !this.#child?.stdin?.writable;
  }

  /** Why rye ended the connection; undefined if it did not. */
  get failure(): string | undefined {
    return this.#failure;
  }

  /** The last that the server said on stderr, on one line. */
  get lastWords(): string {
    return this.#stderr.trim().replaceAll(/\s+/g, ' ').slice(-300);
  }

  async start(): Promise<void> {
    const { command, args, cwd, env, confine } = this.#command;
    const { signal } = new AbortController();
    this.#confined = await confine?.({ command, args, signal });
    const run = this.#confined ?? { command, args };
    const child = spawn(run.command, [...run.args], {
      cwd,
      env,
      stdio: 'pipe',
      detached: true,
      windowsHide: true,
    });
    this.#child = child;
    try {
      await once(child, 'spawn');
    } catch (error) {
      throw new RyeError('spawn_failed', `${JSON.stringify(command)}: ${messageOf(error)}`, {
        hint: 'Check that the program is installed and on PATH.',
      });
    }
    hurryWith(child);
    child.on('error', () => undefined); // a failed signal; the exit tells the rest
    child.stdin.on('error', (error) => this.onerror?.(error));
    child.stderr.on('data', (chunk: Buffer) => {
      this.#stderr = (this.#stderr + chunk.toString()).slice(-STDERR_KEPT);
    });
    child.stdout.on('data', (chunk: Buffer) => this.#read(chunk));
    child.once('close', () => this.onclose?.());
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const { stdin } = this.#child ?? {};
    if (!stdin?.writable) throw new Error('the server does not read any more');
    if (!stdin.write(serializeMessage(message))) {
      await Promise.race([once(stdin, 'drain'), once(stdin, 'close')]);
    }
  }

  /** Closes the server's stdin, then ends what is left of its process group. */
  async close(): Promise<void> {
    const child = this.#child;
    if (child === undefined) return;
    // a server that floods its output would use up the time that it is given to end by itself
    if (this.#lines.isFlooded) this.kill();
    const closed = new Promise<void>((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) resolve();
      child.once('close', () => resolve());
      setTimeout(resolve, LEAVE_MS);
    });
    child.stdin?.end();
    await closed;
    await endGroup(child);
    child.stdout?.destroy();
    child.stderr?.destroy();
    await this.#confined?.release();
    this.#confined = undefined;
  }

  /** Ends the process group at once, for when nothing can be waited for. */
  kill(): void {
    if (this.#child) signalGroup(this.#child, 'SIGKILL');
  }

  #read(chunk: Buffer): void {
    const lines = this.#lines.push(chunk);
    if (lines === 'too_long') {
      this.#failure = TOO_LONG;
      this.onerror?.(new Error(TOO_LONG));
      this.#child?.stdout?.destroy();
      this.kill();
      return;
    }
    for (const line of lines) {
      try {
        this.onmessage?.(deserializeMessage(line));
      } catch (error) {
        // a line that is no message, such as a stray log line
        this.onerror?.(error instanceof Error ? error : new Error(messageOf(error)));
      }
    }
  }
}
