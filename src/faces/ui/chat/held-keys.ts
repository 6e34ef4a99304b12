import type { Io } from '../io.ts';
import { afterFirstRead, type Key, type Keyboard, type KeyHandlers } from '../keyboard.ts';
import { displayWidth } from '../terminal-text.ts';

/** The keys of a terminal, kept until there is a field for them. */
export interface HeldKeys {
  /** Aborts if Ctrl-C is pressed before there is a field, or if the terminal goes. */
  readonly signal: AbortSignal;
  /** Hands over the keys so far, then every further one. */
  attach(handlers: KeyHandlers): Keyboard;
  /** Restores the terminal. Idempotent. */
  close(): void;
}

const ESCAPE = '\u001b';

/** Takes the keys of the terminal while a command opens its project, and removes the echo of the text before. */
export async function holdKeys(io: Pick<Io, 'openKeyboard' | 'stderr'>): Promise<HeldKeys> {
  const left = new AbortController();
  const held: Key[] = [];
  let handlers: KeyHandlers | undefined;
  const keyboard = await io.openKeyboard({
    onKey: (key) => {
      if (handlers) handlers.onKey(key);
      else if (key.name === 'ctrl+c') left.abort('interrupted by Ctrl-C');
      else held.push(key);
    },
    onRedraw: () => handlers?.onRedraw(),
    onEnd: () => (handlers ? handlers.onEnd() : left.abort('the terminal is closed')),
    onTypedAhead: (text) => io.stderr.writeRaw(withoutEcho(text, io.stderr.columns)),
  });
  // the echo goes before anything is printed
  await new Promise<void>((resolve) => afterFirstRead(resolve));
  return {
    signal: left.signal,
    attach: (given) => {
      handlers = given;
      for (const key of held.splice(0)) given.onKey(key);
      return keyboard;
    },
    close: () => keyboard.close(),
  };
}

/** Returns what removes an echoed text from the terminal. It began at the start of a line. */
function withoutEcho(text: string, columns: number): string {
  // an Enter that the terminal has not echoed is a carriage return
  const lines = text.split('\n').slice(0, -1);
  const rows = lines.map((line) => Math.max(1, Math.ceil(displayWidth(line) / columns)));
  const above = rows.reduce((sum, count) => sum + count, 0);
  return `${above > 0 ? `${ESCAPE}[${above}A` : ''}\r${ESCAPE}[J`;
}
