import { isJsonObject, isRecord, type JsonObject } from '../../core/json.ts';

/**
 * Collects the `reasoning_details` of a streamed answer, which OpenRouter wants back unchanged: pieces of one index are
 * one detail, with their texts joined.
 */
export class ReasoningDetails {
  readonly #details = new Map<string, Record<string, unknown>>();

  add(raw: unknown): void {
    if (!Array.isArray(raw)) return;
    for (const piece of raw.filter(isRecord)) {
      const index = piece['index'];
      const key = `${String(piece['type'])}:${typeof index === 'number' ? index : this.#details.size}`;
      const known = this.#details.get(key);
      if (known === undefined) this.#details.set(key, { ...piece });
      else merge(known, piece);
    }
  }

  /** As JSON text; undefined where there was none. */
  toSignature(): string | undefined {
    const details = [...this.#details.values()].filter((one): one is JsonObject & typeof one =>
      isJsonObject(one),
    );
    return details.length === 0 ? undefined : JSON.stringify(details);
  }
}

const JOINED: ReadonlySet<string> = new Set(['text', 'summary', 'data']);

function merge(known: Record<string, unknown>, piece: Record<string, unknown>): void {
  for (const [name, value] of Object.entries(piece)) {
    const before = known[name];
    const joins = JOINED.has(name) && typeof before === 'string' && typeof value === 'string';
    if (joins) known[name] = before + value;
    else if (value !== null && value !== undefined) known[name] = value;
  }
}

/** The reasoning of a delta as text, whatever the server calls it; a second name repeats the first. */
export function reasoningText(delta: Readonly<Record<string, unknown>>): string {
  for (const name of ['reasoning_content', 'reasoning']) {
    const text = delta[name];
    if (typeof text === 'string' && text !== '') return text;
  }
  const details = delta['reasoning_details'];
  if (!Array.isArray(details)) return '';
  return details
    .filter(isRecord)
    .map((detail) => detail['text'] ?? detail['summary'])
    .filter((text): text is string => typeof text === 'string')
    .join('');
}
