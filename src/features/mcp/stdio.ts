import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { deserializeMessage, serializeMessage } from '@modelcontextprotocol/sdk/shared/stdio.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { JSONRPCMessage } from '@modelcontextprotocol/sdk/types.js';
import { messageOf, RyeError, systemCodeOf } from '../../kernel/core/errors.ts';
import { headChars } from '../../kernel/core/text.ts';
import { webFetch } from '../../kernel/startup/web-fetch.ts';
import {
  type Confine,
  type ConfinedCommand,
  endGroup,
  hurryWith,
  signalGroup,
} from '../../kernel/tools/process.ts';
import { markedProgram } from '../../kernel/tools/tool-mark.ts';

const MAX_LENGTH = 300;
const ERROR_LINE = /^(?:[\w.$]*(?:Error|Exception)\b|(?:fatal|panic|error)\b)/i;
const TRACEBACK = 'Traceback (most recent call last)';

/**
 * Returns what tells a person on one line why a program failed, from its output on stderr: the line that names the error,
 * which stack traces bury, else the text from its start. Cut between words; at most 300 characters.
 */
export function tellingWords(stderr: string): string {
  const lines = stderr
    .split('\n')
    .map((line) => line.trim())
    .filter((line) => line !== '');
  const errors = lines.filter((line) => ERROR_LINE.test(line));
  // Python prints the stack above the error, and the error that ended the program last
  const named = stderr.includes(TRACEBACK) ? errors.at(-1) : errors[0];
  return cut((named ?? lines.join(' ')).replaceAll(/\s+/g, ' '));
}

function cut(text: string): string {
  if (text.length <= MAX_LENGTH) return text;
  const head = headChars(text, MAX_LENGTH - 1);
  const space = head.lastIndexOf(' ');
  return `${space > 0 ? head.slice(0, space) : head}…`;
}

/** Characters of the beginning, which names the error in most languages, and as many of the end. */
const STDERR_KEPT = 4000;
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
 * The client's end of the stdio transport: one JSON message a line. Unlike the SDK's own, it gives the server a
 * separate process group, which ends with the connection, and a sandbox if there is one.
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
  #stderrHead = '';
  #stderrTail = '';

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

  /** The reason of a failure for a person, from its output on stderr, on one line. */
  get lastWords(): string {
    return tellingWords(this.#stderrHead + this.#stderrTail);
  }

  async start(): Promise<void> {
    const { command, args, cwd, env, confine } = this.#command;
    const { signal } = new AbortController();
    this.#confined = await confine?.({ command, args, signal });
    const run = this.#confined ?? markedProgram(this.#command);
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
      const isMissing = systemCodeOf(error) === 'ENOENT';
      const reason = isMissing ? 'program not found' : messageOf(error);
      throw new RyeError('spawn_failed', `${reason}: ${command}`, {
        hint: 'Check that the program is installed and on PATH.',
      });
    }
    hurryWith(child);
    child.on('error', () => undefined); // a failed signal; the exit tells the rest
    child.stdin.on('error', (error) => this.onerror?.(error));
    child.stderr.on('data', (chunk: Buffer) => {
      const text = chunk.toString();
      const room = STDERR_KEPT - this.#stderrHead.length;
      this.#stderrHead += text.slice(0, room);
      this.#stderrTail = (this.#stderrTail + text.slice(room)).slice(-STDERR_KEPT);
    });
    child.stdout.on('data', (chunk: Buffer) => this.#read(chunk));
    child.once('close', () => this.onclose?.());
  }

  async send(message: JSONRPCMessage): Promise<void> {
    const { stdin } = this.#child ?? {};
    if (!stdin?.writable) throw new Error('the server no longer reads its input');
    if (!stdin.write(serializeMessage(message))) {
      await Promise.race([once(stdin, 'drain'), once(stdin, 'close')]);
    }
  }

  /** Closes the server's stdin, then ends the rest of its process group. */
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

/**
 * A larger message ends the connection: no legitimate answer is that large, and parsing one would delay every timer and
 * signal of the process.
 */
const MAX_MESSAGE_BYTES = 16 * 1024 * 1024;

/** Why a connection ends at such a message. */
const TOO_LONG = `it sent a message of more than ${MAX_MESSAGE_BYTES / 1024 / 1024} MiB`;

const NEWLINE = 0x0a;
const FLOOD_BYTES = 1024 * 1024;

/** Splits a stream into lines in time and memory linear in its bytes, however small its chunks are. */
class MessageLines {
  #pieces: Buffer[] = [];
  #held = 0;

  /** True in the middle of a message that is longer than answers are. */
  get isFlooded(): boolean {
    return this.#held > FLOOD_BYTES;
  }

  /** The lines that a chunk completes, without empty ones; `too_long` as soon as one passes the bound. */
  push(chunk: Buffer): readonly string[] | 'too_long' {
    const lines: string[] = [];
    let start = 0;
    for (let end = chunk.indexOf(NEWLINE); end !== -1; end = chunk.indexOf(NEWLINE, start)) {
      if (!this.#hold(chunk.subarray(start, end))) return 'too_long';
      const line = Buffer.concat(this.#pieces).toString('utf8').replace(/\r$/, '');
      this.#pieces = [];
      this.#held = 0;
      if (line !== '') lines.push(line);
      start = end + 1;
    }
    return this.#hold(chunk.subarray(start)) ? lines : 'too_long';
  }

  #hold(piece: Buffer): boolean {
    this.#held += piece.length;
    if (this.#held > MAX_MESSAGE_BYTES) {
      this.#pieces = [];
      return false;
    }
    if (piece.length > 0) this.#pieces.push(piece);
    return true;
  }
}

/**
 * A `fetch` whose responses end with an error at a message beyond the bound: an event of an event stream, or the whole
 * body of any other response.
 */
export function boundedFetch(env: StdioCommand['env']) {
  return async (input: string | URL, init: RequestInit = {}): Promise<Response> => {
    const response = await webFetch(input, init, env);
    if (response.body === null) return response;
    const isStream = response.headers.get('content-type')?.includes('text/event-stream') === true;
    let held = 0;
    const bound = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        const end = isStream
          ? Buffer.from(chunk.buffer, chunk.byteOffset, chunk.byteLength).lastIndexOf(NEWLINE)
          : -1;
        held = end === -1 ? held + chunk.length : chunk.length - end - 1;
        if (held > MAX_MESSAGE_BYTES) controller.error(new Error(TOO_LONG));
        else controller.enqueue(chunk);
      },
    });
    const { status, statusText, headers } = response;
    return new Response(response.body.pipeThrough(bound), { status, statusText, headers });
  };
}
