/** Runs a JavaScript expression outside of the program's own thread, under a time limit. */
export interface SlowMatcher {
  /** Whether the expression is found in the text. Never rejects; `timeout` past the limit. */
  find(expression: string, text: string): Promise<boolean | 'timeout'>;
}

/** A rule whose check took too long this often is not checked again in the run. */
const MAX_TIMEOUTS = 2;

/**
 * Checks of rules with `engine: js`. They come late: what one answer asked is worth nothing once the answer is over.
 */
export class SlowChecks {
  readonly #matcher: SlowMatcher;
  readonly #timeouts = new Map<string, number>();
  readonly #onDisabled: (rule: string) => void;

  constructor(matcher: SlowMatcher, onDisabled: (rule: string) => void) {
    this.#matcher = matcher;
    this.#onDisabled = onDisabled;
  }

  /** Whether any of a rule's expressions is found; a check that takes too long finds nothing. */
  async matches(
    rule: { readonly name: string; readonly slow: readonly string[] },
    text: string,
  ): Promise<boolean> {
    for (const expression of rule.slow) {
      if ((this.#timeouts.get(rule.name) ?? 0) >= MAX_TIMEOUTS) return false;
      const found = await this.#matcher.find(expression, text);
      if (found === true) return true;
      if (found === 'timeout') this.#noteTimeout(rule.name);
    }
    return false;
  }

  #noteTimeout(rule: string): void {
    const count = (this.#timeouts.get(rule) ?? 0) + 1;
    this.#timeouts.set(rule, count);
    if (count === MAX_TIMEOUTS) this.#onDisabled(rule);
  }
}
