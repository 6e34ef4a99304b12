import { writeSync } from 'node:fs';
import process from 'node:process';
import {
  decodeKittyPrintable,
  isKeyRelease,
  ProcessTerminal,
  parseKey,
} from '@mariozechner/pi-tui';
import type { Size } from './layout.ts';
import { ENTER_SCREEN, LEAVE_SCREEN } from './paint.ts';
import type { Key } from './update.ts';

export interface BrowserTerminal {
  readonly size: Size;
  write(text: string): void;
  /** Gives the terminal back and stops the job, as Ctrl+Z does elsewhere; takes it over again when the job goes on. */
  suspend(): void;
  /** Gives the terminal back as it was. Idempotent. */
  close(): void;
}

export interface TerminalHandlers {
  readonly onKey: (key: Key) => void;
  readonly onResize: () => void;
  /** The screen is empty: all of it is to be drawn. */
  readonly onReturn: () => void;
}

/** Takes the terminal over: another screen, keys one by one. It is given back at the latest when the process ends. */
export function openTerminal(handlers: TerminalHandlers): BrowserTerminal {
  return new OpenTerminal(handlers);
}

/** A job that nobody can continue is not stopped by the signal: then the browser is back after this time. */
const STOPPED_MS = 100;

class OpenTerminal implements BrowserTerminal {
  readonly #terminal = new ProcessTerminal();
  readonly #handlers: TerminalHandlers;
  #state: 'open' | 'suspended' | 'closed' = 'open';
  readonly #suspend = (): void => this.suspend();
  readonly #giveBack = (): void => this.close();
  readonly #return = (): void => this.#enterAgain();

  constructor(handlers: TerminalHandlers) {
    this.#handlers = handlers;
    process.on('exit', leaveAtExit);
    process.on('SIGTSTP', this.#suspend);
    process.on('SIGCONT', this.#return);
    // what is said of an error must not stand on a screen that is left
    process.on('uncaughtExceptionMonitor', this.#giveBack);
    this.#enter();
  }

  get size(): Size {
    return { columns: this.#terminal.columns, rows: this.#terminal.rows };
  }

  write(text: string): void {
    if (this.#state === 'open') this.#terminal.write(text);
  }

  suspend(): void {
    if (this.#state !== 'open') return;
    this.#state = 'suspended';
    this.#leave();
    // without a handler the signal does what it does to every program of the job
    process.removeListener('SIGTSTP', this.#suspend);
    process.kill(0, 'SIGTSTP');
    setTimeout(() => {
      if (this.#state === 'suspended') this.#enterAgain();
    }, STOPPED_MS);
  }

  close(): void {
    if (this.#state === 'closed') return;
    if (this.#state === 'open') this.#leave();
    this.#state = 'closed';
    process.removeListener('SIGTSTP', this.#suspend);
    process.removeListener('SIGCONT', this.#return);
    process.removeListener('uncaughtExceptionMonitor', this.#giveBack);
    process.removeListener('exit', leaveAtExit);
    // the library asks for other key codes a moment after it was started, also where it was stopped since
    process.on('exit', resetKeys);
  }

  /** The job goes on, whatever had stopped it: the terminal has been somebody else's. */
  #enterAgain(): void {
    if (this.#state === 'suspended') process.on('SIGTSTP', this.#suspend);
    else this.#terminal.stop();
    this.#state = 'open';
    this.#enter();
    this.#handlers.onReturn();
  }

  #enter(): void {
    process.stdout.write(ENTER_SCREEN);
    this.#terminal.start((data) => {
      const key = keyOf(data);
      if (key) this.#handlers.onKey(key);
    }, this.#handlers.onResize);
  }

  #leave(): void {
    this.#terminal.stop();
    this.#terminal.write(LEAVE_SCREEN);
  }
}

// bracketed paste, the key codes of kitty and those of xterm
const RESET_KEYS = '\u001b[?2004l\u001b[<u\u001b[>4;0m';

function leaveAtExit(): void {
  writeLast(`${RESET_KEYS}${LEAVE_SCREEN}`);
}

function resetKeys(): void {
  writeLast(RESET_KEYS);
}

/** Streams are not written any more when the process ends. */
function writeLast(text: string): void {
  try {
    writeSync(process.stdout.fd, text);
  } catch {
    // the terminal is gone
  }
}

const PASTE_START = '\u001b[200~';
const PASTE_END = '\u001b[201~';
/** Sequences of the Linux console and tmux that the library has no name for. */
const OTHER_KEYS: Readonly<Record<string, string>> = {
  '\u001b[1~': 'home',
  '\u001b[7~': 'home',
  '\u001b[4~': 'end',
  '\u001b[8~': 'end',
};
const CONTROL = /\p{Cc}/u;

/** The key that a piece of input stands for; undefined for what is no key. */
function keyOf(data: string): Key | undefined {
  if (data.startsWith(PASTE_START)) {
    const text = data.slice(PASTE_START.length).replace(PASTE_END, '');
    return { name: 'paste', text: text.replaceAll(/\s+/g, ' ') };
  }
  if (isKeyRelease(data)) return undefined;
  const typed = CONTROL.test(data) ? decodeKittyPrintable(data) : data;
  const name = OTHER_KEYS[data] ?? (typed === undefined ? parseKey(data) : nameOf(typed));
  return name === undefined ? undefined : { name, ...(typed === undefined ? {} : { text: typed }) };
}

function nameOf(typed: string): string {
  if (typed === ' ') return 'space';
  const lower = typed.toLowerCase();
  return typed === lower ? typed : `shift+${lower}`;
}
