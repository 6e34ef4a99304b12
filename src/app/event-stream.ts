/** Values for any number of iterations. Each iteration gets the values that are pushed after its start. */
export class EventStream<T> {
  readonly #readers = new Set<Reader<T>>();
  #isEnded = false;

  push(value: T): void {
    for (const reader of this.#readers) {
      reader.queue.push(value);
      reader.wake();
    }
  }

  /** Ends all iterations after what they have not read yet. */
  end(): void {
    this.#isEnded = true;
    for (const reader of this.#readers) reader.wake();
  }

  iterate(): AsyncGenerator<T, void> {
    const reader: Reader<T> = { queue: [], wake: () => undefined };
    this.#readers.add(reader); // now, not with the first `next()`: no value may be lost in between
    const values = this.#values(reader);
    const end = values.return.bind(values);
    // a generator that has not begun runs no `finally`
    values.return = async (value) => {
      this.#readers.delete(reader);
      return await end(value);
    };
    return values;
  }

  async *#values(reader: Reader<T>): AsyncGenerator<T, void> {
    try {
      for (;;) {
        const values = reader.queue.splice(0);
        yield* values;
        if (reader.queue.length > 0) continue;
        if (this.#isEnded) return;
        await new Promise<void>((resolve) => {
          reader.wake = resolve;
        });
      }
    } finally {
      this.#readers.delete(reader);
    }
  }
}

interface Reader<T> {
  readonly queue: T[];
  wake: () => void;
}
