import type { Rye } from '../app/api/rye.ts';
import type { Colors } from '../cli/terminal-text.ts';
import { toRyeError } from '../core/errors.ts';
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

/** An effect that ends the browser. */
type Ending = Extract<Effect, { kind: 'quit' | 'resume' }>;

interface BrowseOptions {
  readonly colors: Colors;
  /** Ends the browser. */
  readonly signal: AbortSignal;
}

interface End {
  readonly resolve: (ending: Ending) => void;
  readonly reject: (error: unknown) => void;
}

/** Reads the session tree of a thread, which takes a moment for a large log. */
export async function readTree({ trees }: Rye, threadId: string): Promise<TreeSource> {
  const tree = await trees.open(threadId);
  const { title, total } = tree;
  return { threadId, title, total, rows: (filter) => tree.rows(filter) };
}

/** Shows the tree in the terminal until the person leaves. Always restores the terminal. */
export async function browse(rye: Rye, tree: TreeSource, options: BrowseOptions): Promise<Ending> {
  return await new Promise<Ending>((resolve, reject) => {
    new Session(rye, tree, options, { resolve, reject }).start();
  });
}

class Session {
  readonly #rye: Rye;
  readonly #options: BrowseOptions;
  readonly #end: End;
  readonly #terminal: ReturnType<typeof openTerminal>;
  #state: BrowserState;
  #lines: readonly string[] | undefined;
  /** True during a write; keys are dropped then. */
  #isBusy = false;
  #ending: Ending | undefined;

  constructor(rye: Rye, tree: TreeSource, options: BrowseOptions, end: End) {
    this.#rye = rye;
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
    this.#state = openState(tree, this.#terminal.size);
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

  /** Leaves at once, or at the end of a write. */
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
      const { threadId } = this.#state.source;
      const notice = await this.#write(threadId, effect);
      this.#state = withSource(this.#state, await readTree(this.#rye, threadId), notice);
    } catch (error) {
      const { message, code } = toRyeError(error);
      this.#state = { ...this.#state, notice: `${message} [${code}]` };
    }
    this.#isBusy = false;
    if (this.#ending) this.#leave(this.#ending);
    else this.#guarded(() => this.#draw());
  }

  /** Does what `rye threads branch` and `rye threads label` do. */
  async #write(threadId: string, effect: Exclude<Effect, Ending>): Promise<string> {
    const { trees } = this.#rye;
    const { entry } = effect;
    if (effect.kind === 'branch') {
      const written = await trees.branch(threadId, { at: entry });
      return written.length === 0 ? 'the head is there already' : `the head is now ${entry}`;
    }
    await trees.label(threadId, entry, effect.label);
    return effect.label === null ? 'label removed' : `labeled ${effect.label}`;
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
