interface OpenCheck {
  readonly offset: number;
  readonly good: Promise<boolean>;
}

/** Checks that are under way, in the order in which they were begun. */
export class OpenChecks {
  #open: OpenCheck[] = [];

  /** `good` never rejects. `offset` is the place of what is checked. */
  add(offset: number, good: Promise<boolean>): void {
    this.#open.push({ offset, good });
  }

  /** Waits until at most `count` are open; the offset of the first that failed, whereupon the rest no longer counts. */
  async settle(count: number): Promise<number | undefined> {
    while (this.#open.length > count) {
      const [first] = this.#open.splice(0, 1);
      if (first && !(await first.good)) {
        this.#open = [];
        return first.offset;
      }
    }
    return undefined;
  }
}
