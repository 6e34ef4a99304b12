/** Starts and ends a block of lines that is one message. */
const FENCE = '"""';

/**
 * Joins typed lines to messages: a backslash at the end of a line continues it, and the lines between two `"""` are one
 * message. Blank lines outside of a block are no messages.
 */
export class MessageLines {
  #parts: string[] = [];
  #isBlock = false;

  /** Takes a line without its end. Returns the message that it completes. */
  take(line: string): string | undefined {
    if (this.#isBlock) return this.#inBlock(line);
    const trimmed = line.trim();
    if (this.#parts.length === 0 && trimmed.startsWith(FENCE)) {
      const rest = trimmed.slice(FENCE.length);
      if (rest.endsWith(FENCE)) return kept(rest.slice(0, -FENCE.length));
      this.#isBlock = true;
      if (rest !== '') this.#parts.push(rest);
      return undefined;
    }
    if (endsInBackslash(line)) {
      this.#parts.push(line.slice(0, -1));
      return undefined;
    }
    this.#parts.push(line);
    return this.end();
  }

  /** Returns the message whose end has not been typed, at the end of the input. */
  end(): string | undefined {
    const text = this.#parts.join('\n');
    this.#parts = [];
    this.#isBlock = false;
    return kept(text);
  }

  #inBlock(line: string): string | undefined {
    const text = line.trimEnd();
    if (!text.endsWith(FENCE)) {
      this.#parts.push(line);
      return undefined;
    }
    const last = text.slice(0, -FENCE.length);
    if (last.trim() !== '') this.#parts.push(last);
    return this.end();
  }
}

/** True if a line ends in a backslash that is not escaped itself. */
function endsInBackslash(line: string): boolean {
  const [slashes = ''] = /\\*$/.exec(line) ?? [];
  return slashes.length % 2 === 1;
}

/** True if a text has a `"""` block that is still open. */
export function isOpenBlock(text: string): boolean {
  const lines = new MessageLines();
  const all = text.split('\n');
  if (!(all[0] ?? '').trim().startsWith(FENCE)) return false;
  return all.every((line) => lines.take(line) === undefined);
}

/** Returns a typed text as the message that it is: without the marks of a block and of continued lines. */
export function messageOfText(text: string): string {
  const lines = new MessageLines();
  const messages: string[] = [];
  if (!text.trimStart().startsWith(FENCE)) return text;
  for (const line of text.split('\n')) {
    const message = lines.take(line);
    if (message !== undefined) messages.push(message);
  }
  const rest = lines.end();
  return [...messages, ...(rest === undefined ? [] : [rest])].join('\n');
}

function kept(text: string): string | undefined {
  return text.trim() === '' ? undefined : text;
}
