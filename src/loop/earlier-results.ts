import { wireName } from '../core/ids.ts';
import { type JsonObject, jsonEquals } from '../core/json.ts';
import type { ContentBlock } from '../core/message.ts';
import type { Tool } from '../tools/tool.ts';

interface Earlier {
  readonly input: JsonObject;
  readonly content: readonly ContentBlock[];
}

/**
 * The last result of each tool that may be replayed when it is called alike again. Only tools that just read are ever
 * replayed, and whatever may have changed something makes all results stale.
 */
export class EarlierResults {
  readonly #listed: ReadonlySet<string>;
  readonly #last = new Map<string, Earlier>();

  constructor(listed: ReadonlySet<string>) {
    this.#listed = listed;
  }

  /** The earlier result of this very call. */
  find(tool: Tool, input: JsonObject): readonly ContentBlock[] | undefined {
    const earlier = this.#last.get(tool.id);
    return earlier && jsonEquals(earlier.input, input) ? earlier.content : undefined;
  }

  /** Notes that a tool has run; `content` where it did well. */
  note(tool: Tool, input: JsonObject, content: readonly ContentBlock[] | undefined): void {
    if (!tool.traits.reads_only) this.forget();
    else if (content && this.#listed.has(wireName(tool.id)))
      this.#last.set(tool.id, { input, content });
  }

  forget(): void {
    this.#last.clear();
  }
}
