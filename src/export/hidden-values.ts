import { REDACTED } from './secret-shapes.ts';

/** A value shorter than this is a word of every text. */
const MIN_LENGTH = 3;
/** A line of a value shorter than this is not looked for alone. */
const MIN_LINE = 12;
/** A longer value is not the part of a word. */
const MAX_WORD = 200;

/** Texts that are removed wherever another text repeats them as a whole word. */
export class HiddenValues {
  readonly #values: readonly (string | RegExp)[];

  /** Takes the strings and numbers of any JSON value. */
  constructor(given: unknown) {
    const texts = new Set([...leavesOf(given)].flatMap(spellings));
    this.#values = [...texts]
      .filter((text) => text.length >= MIN_LENGTH && /[\p{L}\p{N}]/u.test(text))
      // a value that is part of another one must not cut it
      .toSorted((one, two) => two.length - one.length)
      .map((text) => (text.length > MAX_WORD ? text : wholeWord(text)));
  }

  /** Returns the text without the values, and how many were found. */
  removeFrom(text: string): { readonly text: string; readonly found: number } {
    let found = 0;
    const replace = (): string => {
      found += 1;
      return REDACTED;
    };
    const clean = this.#values.reduce<string>(
      (rest, value) => rest.replaceAll(value, replace),
      text,
    );
    return { text: clean, found };
  }
}

function* leavesOf(value: unknown): Iterable<string> {
  if (typeof value === 'string') yield value;
  else if (typeof value === 'number') yield String(value);
  else if (typeof value === 'object' && value !== null) {
    for (const member of Object.values(value)) yield* leavesOf(member);
  }
}

/** A text, the same within JSON, and its long lines: they may be indented or quoted. */
function spellings(text: string): readonly string[] {
  const whole = text.trim();
  const lines = whole.split(/\s*\n\s*/).filter((line) => line.length >= MIN_LINE);
  return [whole, ...lines].flatMap((one) => [one, JSON.stringify(one).slice(1, -1)]);
}

const WORD = '[\\p{L}\\p{N}_]';

function wholeWord(text: string): RegExp {
  const before = new RegExp(`^${WORD}`, 'u').test(text) ? `(?<!${WORD})` : '';
  const after = new RegExp(`${WORD}$`, 'u').test(text) ? `(?!${WORD})` : '';
  return new RegExp(`${before}${escaped(text)}${after}`, 'gu');
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
}
