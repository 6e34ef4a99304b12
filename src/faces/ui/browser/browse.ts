import { setTimeout as sleep } from 'node:timers/promises';
import type { Rye } from '../../../kernel/app/api/rye.ts';
import { toRyeError } from '../../../kernel/core/errors.ts';
import { compact } from '../../../kernel/core/json.ts';
import type { Colors } from '../terminal-text.ts';
import { frameOf } from './frame.ts';
import { paint } from './paint.ts';
import {
  atLeaf,
  type BrowserState,
  type Effect,
  openState,
  type TreeSource,
  withSize,
  withSource,
} from './state.ts';
import { openTerminal } from './terminal.ts';
import { type Key, update } from './update.ts';

/** Minimum milliseconds between two looks at a log that is followed. */
const FOLLOW_MS = 200;

/** An effect that ends the browser. */
type EndingEffect = Extract<Effect, { kind: 'quit' | 'resume' }> | ModelBranch;
/** A summary by the model takes its time and costs money, so the command line runs it. */
type ModelBranch = Extract<Effect, { kind: 'branch' }> & { readonly summary: 'model' };
type WriteEffect = Extract<Effect, { kind: 'branch' | 'label' }>;

/** The effect that ended the browser, and the thread that was shown then. */
export interface Ending {
  readonly effect: EndingEffect;
  readonly threadId: string;
}

interface BrowseOptions {
  readonly colors: Colors;
  /** Shows new entries from the start. */
  readonly follow: boolean;
  /** One line for the person at the start. */
  readonly notice: string;
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
  const { title, total, leaf_id: leafId, chain } = tree;
  const [firstThreadId] = chain;
  return {
    threadId: chain.at(-1) ?? threadId,
    ...(chain.length > 1 && { firstThreadId }),
    title,
    total,
    leafId,
    rows: (filter) => tree.rows(filter),
    isSent: (entry) => tree.isSent(entry),
    turnOf: (entry) => tree.turnOf(entry),
  };
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
  #ending: EndingEffect | undefined;
  /** The states of the threads that led to this one. */
  readonly #above: BrowserState[] = [];
  #follower: AbortController | undefined;

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
    this.#state = { ...openState(tree, this.#terminal.size), notice: options.notice };
  }

  start(): void {
    const { signal } = this.#options;
    const quit = (): void => {
      this.#leave({ kind: 'quit' });
    };
    signal.addEventListener('abort', quit, { once: true });
    if (signal.aborted) quit();
    else {
      this.#guarded(() => this.#draw());
      if (this.#options.follow) this.#toggleFollow();
    }
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
  #leave(effect: EndingEffect): void {
    this.#ending = effect;
    if (this.#isBusy) return;
    this.#follower?.abort();
    this.#terminal.close();
    this.#end.resolve({ effect, threadId: this.#state.source.threadId });
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
    if (effect && isEnding(effect)) {
      this.#leave(effect);
      return;
    }
    if (effect) this.#apply(effect);
    this.#draw();
  }

  #apply(effect: Exclude<Effect, EndingEffect>): void {
    const { threadId } = this.#state.source;
    switch (effect.kind) {
      case 'follow':
        this.#toggleFollow();
        break;
      case 'back': {
        const above = this.#above.pop();
        if (!above) break;
        this.#stopFollowing();
        this.#state = withSize(above, this.#terminal.size);
        break;
      }
      case 'open':
        void this.#busy('reading…', async () => {
          const source = await readTree(this.#rye, effect.thread);
          this.#stopFollowing();
          this.#above.push({ ...this.#state, notice: '' });
          const { size, trail } = this.#state;
          this.#state = openState(source, size, [...trail, threadId]);
        });
        break;
      case 'branch':
      case 'label':
        void this.#busy('writing…', async () => {
          const notice = await this.#write(effect);
          this.#state = withSource(this.#state, await readTree(this.#rye, threadId), notice);
        });
    }
  }

  /** Does something that takes a moment; a failure is a notice. */
  async #busy(notice: string, action: () => Promise<void>): Promise<void> {
    this.#isBusy = true;
    this.#state = { ...this.#state, notice };
    try {
      await action();
    } catch (error) {
      const { message, code, hint } = toRyeError(error);
      const next = hint === undefined ? '' : ` ${hint}`;
      this.#state = { ...this.#state, notice: `${message} [${code}]${next}` };
    }
    this.#isBusy = false;
    if (this.#ending) this.#leave(this.#ending);
    else this.#guarded(() => this.#draw());
  }

  /** Does what `rye threads branch` and `rye threads label` do. */
  async #write(effect: WriteEffect): Promise<string> {
    const { trees } = this.#rye;
    const { entry } = effect;
    const { outline, source } = this.#state;
    const row = outline.rows.find(({ entry: { id } }) => id === entry);
    const threadId = row?.entry.thread_id ?? source.threadId;
    if (effect.kind === 'branch') {
      const { summary } = effect;
      const written = await trees.branch(threadId, compact({ at: entry, summary }));
      return written.length === 0 ? 'the head is there already' : `the head is now ${entry}`;
    }
    await trees.label(threadId, entry, effect.label);
    return effect.label === null ? 'label removed' : `labeled ${effect.label}`;
  }

  #stopFollowing(): void {
    this.#follower?.abort();
    this.#follower = undefined;
    this.#state = { ...this.#state, isFollowing: false };
  }

  #toggleFollow(): void {
    if (this.#state.isFollowing) {
      this.#stopFollowing();
      return;
    }
    this.#follower = new AbortController();
    this.#state = atLeaf({ ...this.#state, isFollowing: true });
    void this.#follow(this.#follower.signal);
  }

  /** Reads the tree again whenever the log has grown, until the current run ends. */
  async #follow(signal: AbortSignal): Promise<void> {
    const { threadId } = this.#state.source;
    let notice = 'the run has ended';
    try {
      let isStale = false;
      let reading: Promise<void> | undefined;
      const reload = async (): Promise<void> => {
        while (isStale && !signal.aborted) {
          isStale = false;
          const start = performance.now();
          const source = await readTree(this.#rye, threadId);
          if (!signal.aborted) this.#refresh(source, this.#state.notice);
          // a large log is not read all the time
          const pause = Math.max(FOLLOW_MS, 4 * (performance.now() - start));
          await sleep(pause, undefined, { signal });
        }
        reading = undefined;
      };
      for await (const _ of this.#rye.threads.logs(threadId, { tail: 1, follow: true, signal })) {
        isStale = true;
        reading ??= reload().catch((error: unknown) => {
          if (!signal.aborted) this.#refresh(this.#state.source, toRyeError(error).message);
        });
      }
      await reading;
    } catch (error) {
      notice = toRyeError(error).message;
    }
    if (signal.aborted) return;
    this.#stopFollowing();
    this.#refresh(this.#state.source, notice);
  }

  #refresh(source: TreeSource, notice: string): void {
    if (this.#isBusy) return;
    this.#guarded(() => {
      this.#state = withSource(this.#state, source, notice);
      this.#draw();
    });
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

function isEnding(effect: Effect): effect is EndingEffect {
  const { kind } = effect;
  return kind === 'quit' || kind === 'resume' || (kind === 'branch' && effect.summary === 'model');
}
