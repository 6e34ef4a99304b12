import { writeSync } from 'node:fs';
import process from 'node:process';
import { emitKeypressEvents, type Interface } from 'node:readline';

/** A key, or a pasted text. */
export interface Key {
  /**
   * Such as `a`, `enter`, `up`, `ctrl+c`, `alt+enter`, `paste`; letters are lower case. `text` for a character without
   * a name.
   */
  readonly name: string;
  /** The characters to insert; absent for a key without any. */
  readonly text?: string;
}

export interface KeyHandlers {
  readonly onKey: (key: Key) => void;
  /** The size of the terminal has changed, or another program has drawn on it. */
  readonly onRedraw: () => void;
  /** The terminal is gone. */
  readonly onEnd: () => void;
  /** Keys were typed before the keyboard was open: the terminal has echoed this text. */
  readonly onTypedAhead?: (text: string) => void;
}

export interface Keyboard {
  /** Stops the job, as Ctrl-Z does elsewhere. The keys return when the job continues. */
  suspend(): void;
  /**
   * Leaves the terminal to another program, such as an editor, until the returned function is called. Meanwhile Ctrl-C is
   * that program's, and interrupts nothing here.
   */
  lend(): () => void;
  /** Restores the terminal. Idempotent. */
  close(): void;
}

const ESCAPE = '\u001b';
/** Makes the terminal mark pasted text, so that its line breaks are no Enter. */
const MARK_PASTES = `${ESCAPE}[?2004h`;
const PLAIN_PASTES = `${ESCAPE}[?2004l`;
const SHOW_CURSOR = `${ESCAPE}[?25h`;

/** Milliseconds after which an Escape is the key and not the beginning of another key's sequence. */
export const ESCAPE_MS = 30;

/** Milliseconds until the keyboard is taken again if the signal did not stop the job, as without job control. */
const STOPPED_MS = 100;

/** Turns what Node decodes into keys and pastes. */
function keyDecoder({ onKey, onTypedAhead }: KeyHandlers) {
  let pasted: string | undefined;
  let isAfterReturn = false;
  // what the terminal held until now: it has line feeds for Enter, which raw keys do not
  let typedAhead: string | undefined = '';
  return {
    onKeypress: (text: string | undefined, typed: Pressed): void => {
      const isAhead = typedAhead !== undefined && pasted === undefined;
      if (isAhead) typedAhead += typed.sequence ?? '';
      const pressed = isAhead ? asRaw(typed) : typed;
      if (pressed.name === 'paste-start') pasted = '';
      else if (pressed.name === 'paste-end') {
        const whole = pasted ?? '';
        pasted = undefined;
        onKey({ name: 'paste', text: whole });
      } else if (pasted !== undefined) {
        // CR LF is one line break
        if (!isAfterReturn || pressed.name !== 'enter') pasted += pastedText(text, pressed);
        isAfterReturn = pressed.name === 'return';
      } else {
        const key = keyOf(text, pressed);
        if (key !== undefined) onKey(key);
      }
    },
    endAhead: (): void => {
      const text = typedAhead ?? '';
      typedAhead = undefined;
      if (text !== '') onTypedAhead?.(text);
    },
  };
}

/** Takes the terminal's keys. Restores the terminal at the latest when the process exits. */
export function openKeyboard(handlers: KeyHandlers): Keyboard {
  const { stdin, stderr } = process;
  let state: 'open' | 'suspended' | 'lent' | 'closed' = 'open';
  const { onKeypress, endAhead } = keyDecoder(handlers);
  const take = (): void => {
    stdin.setRawMode(true);
    stdin.resume();
    stderr.write(MARK_PASTES);
  };
  const restore = (): void => {
    stdin.setRawMode(false);
    stdin.pause();
    stderr.write(`${PLAIN_PASTES}${SHOW_CURSOR}`);
  };
  // every stream learns its new size before anything is drawn
  const onResize = (): void => void setImmediate(handlers.onRedraw);
  const onContinue = (): void => {
    if (state === 'closed' || state === 'lent') return;
    state = 'open';
    take();
    // the size may have changed meanwhile
    process.kill(process.pid, 'SIGWINCH');
    onResize();
  };
  const suspend = (): void => {
    if (state !== 'open') return;
    state = 'suspended';
    restore();
    process.kill(0, 'SIGTSTP');
    // it also keeps the process alive, which has nothing else to wait for
    setTimeout(() => {
      if (state === 'suspended') onContinue();
    }, STOPPED_MS);
  };
  const lend = (): (() => void) => {
    if (state !== 'open') return () => {};
    state = 'lent';
    restore();
    const handlersOfInterrupt = process.listeners('SIGINT');
    process.removeAllListeners('SIGINT').on('SIGINT', ignore);
    return () => {
      process.removeListener('SIGINT', ignore);
      for (const handler of handlersOfInterrupt) process.on('SIGINT', handler);
      if (state !== 'lent') return;
      state = 'open';
      take();
    };
  };
  const close = (): void => {
    if (state === 'closed') return;
    if (state === 'open') restore();
    state = 'closed';
    stdin.off('keypress', onKeypress).off('end', handlers.onEnd).off('close', handlers.onEnd);
    stderr.off('resize', onResize);
    process.off('SIGCONT', onContinue).off('exit', leave).off('uncaughtExceptionMonitor', close);
  };

  emitKeypressEvents(stdin, { escapeCodeTimeout: ESCAPE_MS } as unknown as Interface);
  stdin.on('keypress', onKeypress).once('end', handlers.onEnd).once('close', handlers.onEnd);
  stderr.on('resize', onResize);
  process.on('SIGCONT', onContinue).on('exit', leave).on('uncaughtExceptionMonitor', close);
  take();
  afterFirstRead(endAhead);
  return { suspend, lend, close };
}

/** Calls `act` once what the terminal held has been read, in the first round of the event loop. */
export function afterFirstRead(act: () => void): void {
  setImmediate(() => setImmediate(act));
}

function ignore(): void {
  // with a listener, the signal does not end the process
}

/** Streams do not flush when the process exits; Node itself ends the raw mode. */
function leave(): void {
  try {
    writeSync(process.stderr.fd, `${PLAIN_PASTES}${SHOW_CURSOR}`);
  } catch {
    // the terminal is gone
  }
}

/** A key as Node's decoder reports it. */
interface Pressed {
  readonly sequence?: string;
  readonly name?: string | undefined;
  readonly ctrl?: boolean;
  readonly meta?: boolean;
  readonly shift?: boolean;
}

const RENAMED: Readonly<Record<string, string>> = {
  return: 'enter',
  // a bare line feed: Ctrl-J, and what some terminals send for Shift-Enter
  enter: 'newline',
};
const CONTROL = /\p{Cc}/u;

/** Returns a decoded key; undefined for what no program here uses. */
function keyOf(text: string | undefined, pressed: Pressed): Key | undefined {
  const { name, ctrl, meta, shift } = pressed;
  if (isTyped(text, pressed)) return { name: name ?? 'text', text };
  if (name === undefined || name === 'undefined') return undefined;
  if (name === 'escape') return { name };
  const modifiers = [ctrl === true && 'ctrl', meta === true && 'alt', shift === true && 'shift'];
  return { name: [...modifiers.filter(Boolean), RENAMED[name] ?? name].join('+') };
}

/** Returns a key that was typed before the keyboard was open as it is since. */
function asRaw(pressed: Pressed): Pressed {
  return pressed.name === 'enter' ? { ...pressed, name: 'return' } : pressed;
}

function isTyped(text: string | undefined, { ctrl, meta }: Pressed): text is string {
  return text !== undefined && text !== '' && ctrl !== true && meta !== true && !CONTROL.test(text);
}

/** Returns pasted text with line breaks as they are; control sequences are dropped. */
function pastedText(text: string | undefined, { name }: Pressed): string {
  if (name === 'return' || name === 'enter') return '\n';
  if (name === 'tab') return '\t';
  return text === undefined || CONTROL.test(text) ? '' : text;
}
