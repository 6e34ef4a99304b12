const OPEN = '<think>';
const CLOSE = '</think>';

/** A piece of an answer, parted into what the model thinks and what it says. */
export interface Parted {
  readonly thought: string;
  readonly text: string;
}

type State = 'start' | 'opened' | 'thinking' | 'closed' | 'text';

/**
 * Reads the `<think>` element that models begin their answer with, where the server does not part it from the text. Only at
 * the very beginning: later on the tag is text. What may be the beginning of a tag waits for what follows.
 */
export class TaggedThought {
  #state: State = 'start';
  #waiting = '';

  push(piece: string): Parted {
    if (piece === '' || this.#is('text')) return { thought: '', text: piece };
    this.#waiting += piece;
    if (this.#is('start')) this.#begin();
    if (this.#is('opened')) this.#skipSpace('thinking');
    const thought = this.#is('thinking') ? this.#think() : '';
    if (this.#is('closed')) this.#skipSpace('text');
    return { thought, text: this.#is('text') ? this.#take(this.#waiting.length) : '' };
  }

  /** What still waits: the answer is over. */
  end(): Parted {
    const isThought = this.#is('opened') || this.#is('thinking');
    const rest = this.#is('closed') ? '' : this.#take(this.#waiting.length);
    return isThought ? { thought: rest, text: '' } : { thought: '', text: rest };
  }

  #is(state: State): boolean {
    return this.#state === state;
  }

  /** Whether the answer begins with the element; undecided as long as it may. */
  #begin(): void {
    const begun = this.#waiting.trimStart();
    if (begun.startsWith(OPEN)) {
      this.#state = 'opened';
      this.#waiting = begun.slice(OPEN.length);
    } else if (!OPEN.startsWith(begun)) this.#state = 'text';
  }

  #skipSpace(next: 'thinking' | 'text'): void {
    this.#waiting = this.#waiting.trimStart();
    if (this.#waiting !== '') this.#state = next;
  }

  #think(): string {
    const end = this.#waiting.indexOf(CLOSE);
    if (end === -1) return this.#take(this.#waiting.length - unsure(this.#waiting));
    const thought = this.#take(end).trimEnd();
    this.#waiting = this.#waiting.slice(CLOSE.length);
    this.#state = 'closed';
    return thought;
  }

  #take(length: number): string {
    const taken = this.#waiting.slice(0, length);
    this.#waiting = this.#waiting.slice(length);
    return taken;
  }
}

/** Length of the end that may be white space before the closing tag, or the beginning of it. */
function unsure(text: string): number {
  for (let length = Math.min(text.length, CLOSE.length - 1); length > 0; length -= 1) {
    if (CLOSE.startsWith(text.slice(-length))) {
      const before = text.slice(0, -length);
      return length + before.length - before.trimEnd().length;
    }
  }
  return text.length - text.trimEnd().length;
}
