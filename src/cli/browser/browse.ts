import { toRyeError } from '../../core/errors.ts';
import type { Colors } from '../output.ts';
import { frameOf } from './frame.ts';
import { paint } from './paint.ts';
import {
  type BrowserState,
  type Effect,
  openState,
  type TreeSource,
  withSize,
  withSource,
} from './state.ts';
import { openTerminal } from './terminal.ts';
import { type Key, update } from './update.ts';

/** What ends the browser, and what is to be done then. */
export type Ending = Extract<Effect, { kind: 'quit' | 'resume' }>;

export interface BrowseOptions {
  readonly colors: Colors;
  /** Ends the browser. */
  readonly signal: AbortSignal;
  readonly source: TreeSource;
  /** Reads the tree again. */
  readonly reread: () => Promise<TreeSource>;
  /** Writes a label or moves the leaf; says what was done. */
  readonly apply: (effect: Exclude<Effect, Ending>) => Promise<string>;
}

/** Shows the tree on the terminal until the person leaves. The terminal is given back whatever happens. */
export async function browse(options: BrowseOptions): Promise<Ending> {
  return await new Promise<Ending>((resolve, reject) => {
    new Session(options, { resolve, reject }).start();
  });
}

class Session {
  readonly #options: BrowseOptions;
  readonly #end: { resolve: (ending: Ending) => void; reject: (error: unknown) => void };
  readonly #terminal: ReturnType<typeof openTerminal>;
  #state: BrowserState;
  #lines: readonly string[] | undefined;
  /** Something is being written: keys wait for nobody, so they are dropped. */
  #isBusy = false;
  #ending: Ending | undefined;

  constructor(
    options: BrowseOptions,
    end: { resolve: (ending: Ending) => void; reject: (error: unknown) => void },
  ) {
    this.#options = options;
    this.#end = end;
    this.#terminal = openTerminal({
      onKey: (key) => {
        this.#guarded(() => {
          this.#take(key);
        });
      },
      onResize: () => {
        this.#guarded(() => {
          this.#resized();
        });
      },
      onReturn: () => {
        this.#guarded(() => {
          this.#resized();
        });
      },
    });
    this.#state = openState(options.source, this.#terminal.size);
  }

  start(): void {
    const { signal } = this.#options;
    const quit = (): void => {
      this.#leave({ kind: 'quit' });
    };
    signal.addEventListener('abort', quit, { once: true });
    if (signal.aborted) quit();
    else this.#guarded(() => this.#draw());
  }

  #guarded(action: () => void): void {
    try {
      action();
    } catch (error) {
      this.#terminal.close();
      this.#end.reject(error);
    }
  }

  /** Leaves at once, or when what is being written is whole. */
  #leave(ending: Ending): void {
    this.#ending = ending;
    if (this.#isBusy) return;
    this.#terminal.close();
    this.#end.resolve(ending);
  }

  #resized(): void {
    this.#lines = undefined;
    this.#state = withSize(this.#state, this.#terminal.size);
    this.#draw();
  }

  #take(key: Key): void {
    if (key.name === 'ctrl+z') {
      this.#terminal.suspend();
      return;
    }
    if (this.#isBusy && key.name !== 'ctrl+c') return;
    const { state, effect } = update(this.#state, key);
    this.#state = state;
    if (effect?.kind === 'quit' || effect?.kind === 'resume') {
      this.#leave(effect);
      return;
    }
    if (effect) void this.#apply(effect);
    this.#draw();
  }

  async #apply(effect: Exclude<Effect, Ending>): Promise<void> {
    this.#isBusy = true;
    this.#state = { ...this.#state, notice: 'writing…' };
    try {
      const notice = await this.#options.apply(effect);
      this.#state = withSource(this.#state, await this.#options.reread(), notice);
    } catch (error) {
      const { message, code } = toRyeError(error);
      this.#state = { ...this.#state, notice: `${message} [${code}]` };
    }
    this.#isBusy = false;
    if (this.#ending) this.#leave(this.#ending);
    else this.#guarded(() => this.#draw());
  }

  #draw(): void {
    const { output, lines } = paint(frameOf(this.#state), {
      last: this.#lines,
      colors: this.#options.colors,
    });
    this.#lines = lines;
    if (output !== '') this.#terminal.write(output);
  }
}
