import { expect } from 'vitest';
import { main } from '../../src/faces/cli/main.ts';
import type { Io } from '../../src/faces/ui/io.ts';
import type { Key, KeyHandlers } from '../../src/faces/ui/keyboard.ts';
import { graphemesOf } from '../../src/faces/ui/terminal-text.ts';
import { openRye } from '../../src/open-rye.ts';
import { createFakeIo } from './fake-io.ts';
import { screenOf } from './screen.ts';

/** A command of this process at a terminal that is not one: keys go in, and the screen can be read. */
export interface FakeTerminal {
  /** Types a text, key by key. */
  type(text: string): void;
  press(...keys: readonly (string | Key)[]): void;
  /** Types a text and presses Enter. */
  enter(text: string): void;
  screen(): string;
  /** Waits for a text on the screen. */
  shows(text: string | RegExp): Promise<void>;
  /** Sends SIGINT, as Ctrl-C does to a program that has not taken the keys. */
  interrupt(): void;
  /** The terminal goes away. */
  hangUp(): void;
  /** The exit status, once the command has ended. */
  readonly ended: Promise<number>;
  readonly stderr: () => string;
}

export interface FakeTerminalOptions {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly columns?: number;
  /** Keys that were typed before the program asked for them. */
  readonly typedAhead?: readonly Key[];
}

export function openFakeTerminal(
  argv: readonly string[],
  { cwd, env, columns = 80, typedAhead = [] }: FakeTerminalOptions,
): FakeTerminal {
  let handlers: KeyHandlers | undefined;
  const fake = createFakeIo({
    stdoutIsTty: true,
    stderrIsTty: true,
    columns,
    env: { NO_COLOR: '1', ...env },
    cwd,
  });
  const io: Io = {
    ...fake,
    stdinIsTty: true,
    monotonic: () => performance.now(),
    now: () => Date.now(),
    openKeyboard: (given) => {
      handlers = given;
      for (const key of typedAhead) given.onKey(key);
      return Promise.resolve({ suspend: () => {}, lend: () => () => {}, close: () => {} });
    },
    openRye: (options) => Promise.resolve(openRye(options)),
    openThreadList: (options) => Promise.resolve(openRye(options)),
  };
  const press: FakeTerminal['press'] = (...keys) => {
    for (const key of keys) handlers?.onKey(typeof key === 'string' ? { name: key } : key);
  };
  const type = (text: string): void =>
    press(...graphemesOf(text).map((one) => ({ name: one.toLowerCase(), text: one })));
  const screen = (): string => screenOf(fake.out()).join('\n');
  return {
    type,
    press,
    enter: (text) => {
      type(text);
      press('enter');
    },
    screen,
    shows: async (text) => {
      const wanted =
        typeof text === 'string' ? expect.stringContaining(text) : expect.stringMatching(text);
      try {
        await expect.poll(screen, { timeout: 60_000, interval: 5 }).toEqual(wanted);
      } catch (error) {
        // the matcher's own message has only the first words of the screen
        throw new Error(`${String(text)} is not on the screen:\n${screen()}`, { cause: error });
      }
    },
    interrupt: fake.interrupt,
    hangUp: () => handlers?.onEnd(),
    ended: main(argv, io),
    stderr: fake.err,
  };
}
