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
  /** Restores the terminal and stops the job, as Ctrl+Z does elsewhere; takes the terminal again when the job continues. */
  suspend(): void;
  /** Restores the terminal. Idempotent. */
  close(): void;
}

export interface TerminalHandlers {
  readonly onKey: (key: Key) => void;
  readonly onResize: () => void;
  /** Called with an empty screen, which must be drawn completely. */
  readonly onReturn: () => void;
}

/** Takes the terminal: alternate screen, keys one by one. Restores it at the latest when the process exits. */
export function openTerminal(handlers: TerminalHandlers): BrowserTerminal {
  return new OpenTerminal(handlers);
}

/** Milliseconds until the browser returns if the signal did not stop the job, as without job control. */
const STOPPED_MS = 100;

class OpenTerminal implements BrowserTerminal {
  readonly #terminal = new ProcessTerminal();
  readonly #handlers: TerminalHandlers;
  #state: 'open' | 'suspended' | 'closed' = 'open';
  readonly #suspend = (): void => this.suspend();
  readonly #restore = (): void => this.close();
  readonly #return = (): void => this.#enterAgain();

  constructor(handlers: TerminalHandlers) {
    this.#handlers = handlers;
    process.on('exit', leaveAtExit);
    process.on('SIGTSTP', this.#suspend);
    process.on('SIGCONT', this.#return);
    // an error message must not disappear with the alternate screen
    process.on('uncaughtExceptionMonitor', this.#restore);
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
    // without a handler, the signal stops this process like every other in the job
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
    process.removeListener('uncaughtExceptionMonitor', this.#restore);
    process.removeListener('exit', leaveAtExit);
    // the library switches key codes a moment after its start, even if it has been stopped since
    process.on('exit', resetKeys);
  }

  /** Takes the terminal again after the job continues: another program may have changed it. */
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

// bracketed paste, the key codes of kitty and of xterm
const RESET_KEYS = '\u001b[?2004l\u001b[<u\u001b[>4;0m';

function leaveAtExit(): void {
  writeLast(`${RESET_KEYS}${LEAVE_SCREEN}`);
}

function resetKeys(): void {
  writeLast(RESET_KEYS);
}

/** Writes synchronously, because streams do not flush when the process exits. */
function writeLast(text: string): void {
  try {
    writeSync(process.stdout.fd, text);
  } catch {
    // the terminal is gone
  }
}

const PASTE_START = '\u001b[200~';
const PASTE_END = '\u001b[201~';
/** Sequences of the Linux console and tmux that the library does not know. */
const OTHER_KEYS: Readonly<Record<string, string>> = {
  '\u001b[1~': 'home',
  '\u001b[7~': 'home',
  '\u001b[4~': 'end',
  '\u001b[8~': 'end',
};
const CONTROL = /\p{Cc}/u;

/** Decodes a key from terminal input; undefined if the input is not a key. */
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
