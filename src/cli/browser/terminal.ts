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
  /** Gives the terminal back as it was. Idempotent. */
  close(): void;
}

/** Takes the terminal over: another screen, keys one by one. It is given back at the latest when the process ends. */
export function openTerminal(handlers: {
  readonly onKey: (key: Key) => void;
  readonly onResize: () => void;
}): BrowserTerminal {
  const terminal = new ProcessTerminal();
  let isOpen = true;
  process.stdout.write(ENTER_SCREEN);
  process.on('exit', leaveAtExit);
  terminal.start((data) => {
    const key = keyOf(data);
    if (key) handlers.onKey(key);
  }, handlers.onResize);
  return {
    get size() {
      return { columns: terminal.columns, rows: terminal.rows };
    },
    write: (text) => {
      terminal.write(text);
    },
    close: () => {
      if (!isOpen) return;
      isOpen = false;
      process.removeListener('exit', leaveAtExit);
      terminal.stop();
      terminal.write(LEAVE_SCREEN);
    },
  };
}

function leaveAtExit(): void {
  // a stream would not be written any more
  writeSync(process.stdout.fd, LEAVE_SCREEN);
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
