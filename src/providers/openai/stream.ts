import { isJsonObject, isRecord, type JsonObject, parseJson } from '../../core/json.ts';
import type { AssistantBlock, StopReason } from '../../core/message.ts';
import { GrowingText } from '../../core/text.ts';
import type { Usage } from '../../core/usage.ts';
import {
  callOfJson,
  type Decoded,
  distinctId,
  type IdSet,
  type StreamDecoder,
} from '../adapter.ts';
import type { StreamFault } from '../failure.ts';
import type { ModelEvent } from '../provider.ts';
import { TaggedThought, TextCallReader, type TextPiece } from './answer-text.ts';
import { CallExtras, contentText, ReasoningDetails, reasoningText } from './dialect.ts';

interface TextBlock {
  readonly kind: 'text' | 'thinking';
  readonly text: GrowingText;
}

interface CallBlock {
  readonly kind: 'call';
  /** As the server gave it, to tell its calls apart. */
  readonly wireId: string;
  readonly callId: string;
  name: string;
  readonly json: GrowingText;
}

type Block = TextBlock | CallBlock;

export interface DecoderOptions {
  /** Call ids of the conversation so far; one that comes again is made distinct. */
  readonly takenIds: IdSet;
  /** The full names of tools by their names on the wire, where those had to be cut. */
  readonly longNames: ReadonlyMap<string, string>;
  /** Read calls from the text, for models that know no others. */
  readonly textCalls: boolean;
  /** Thoughts count in the total of the usage only. */
  readonly hiddenThoughts?: boolean;
}

export function chunkDecoder(options: DecoderOptions): StreamDecoder {
  return new Decoder(options);
}

class Decoder implements StreamDecoder {
  readonly #takenIds: IdSet;
  readonly #longNames: ReadonlyMap<string, string>;
  readonly #reader: TextCallReader | undefined;
  readonly #details = new ReasoningDetails();
  readonly #extras = new CallExtras();
  readonly #hiddenThoughts: boolean;
  readonly #tagged = new TaggedThought();
  readonly #blocks: Block[] = [];
  /** The call that the server's index means now. */
  readonly #byIndex = new Map<number, CallBlock>();
  #hasStarted = false;
  #reason: string | undefined;

  constructor({ takenIds, textCalls, longNames, hiddenThoughts = false }: DecoderOptions) {
    this.#hiddenThoughts = hiddenThoughts;
    this.#takenIds = takenIds;
    this.#longNames = longNames;
    this.#reader = textCalls ? new TextCallReader() : undefined;
  }

  push(chunk: JsonObject): Decoded {
    const fault = faultOf(chunk['error']) ?? faultOfOldServers(chunk);
    const events: ModelEvent[] = [];
    const [choice] = Array.isArray(chunk['choices']) ? chunk['choices'] : [];
    const model = asText(chunk['model']);
    // Azure begins with the result of its content filter, which names no model
    const isPrelude = model === '' && choice === undefined && !isRecord(chunk['usage']);
    if (!this.#hasStarted && fault === undefined && !isPrelude) {
      this.#hasStarted = true;
      events.push({ type: 'start', model });
    }
    if (isRecord(choice)) {
      if (isRecord(choice['delta'])) events.push(...this.#delta(choice['delta']));
      if (typeof choice['finish_reason'] === 'string') this.#reason = choice['finish_reason'];
    }
    const usage = usageOf(chunk['usage'] ?? groqUsage(chunk), this.#hiddenThoughts);
    if (usage) events.push({ type: 'usage', usage });
    return fault === undefined ? { events } : { events: [], error: fault };
  }

  /** Without the mark an answer that has named no reason is cut. */
  end(isMarked: boolean): Decoded {
    const { thought, text } = this.#tagged.end();
    const events = [
      ...this.#think(thought),
      ...this.#addText(text),
      ...this.#pieces(this.#reader?.end() ?? []),
    ];
    if (this.#reason === 'error') {
      const message = 'the server ended the answer with an error';
      return { events, error: { type: 'api_error', message } };
    }
    if (this.#reason === undefined && !(isMarked && this.#hasStarted)) {
      const message = 'the answer ended before its last chunk';
      return { events, error: { type: 'incomplete_stream', message } };
    }
    for (const block of this.#blocks) {
      if (block.kind === 'call' && this.#reader === undefined) {
        events.push({ type: 'toolcall_end', call_id: block.callId });
      }
    }
    const content = this.#content();
    events.push({ type: 'finish', reason: stopReason(this.#reason, content), content });
    return { events };
  }

  #delta(delta: Record<string, unknown>): ModelEvent[] {
    this.#details.add(delta['reasoning_details']);
    const events: ModelEvent[] = [];
    const thought = reasoningText(delta);
    events.push(...this.#think(thought));
    const content = contentText(delta['content']);
    const { thought: tagged, text: spoken } = this.#tagged.push(content.text);
    events.push(
      ...this.#think(content.thought),
      ...this.#think(tagged),
      ...this.#addText(spoken),
      ...this.#addText(asText(delta['refusal'])),
    );
    const calls = delta['tool_calls'];
    if (Array.isArray(calls)) {
      for (const call of calls.filter(isRecord)) events.push(...this.#call(call));
    }
    return events;
  }

  #think(text: string): ModelEvent[] {
    if (text === '') return [];
    this.#append('thinking', text);
    return [{ type: 'thinking_delta', text }];
  }

  #addText(text: string): ModelEvent[] {
    return text === '' ? [] : this.#pieces(this.#reader?.push(text) ?? [{ kind: 'text', text }]);
  }

  #pieces(pieces: readonly TextPiece[]): ModelEvent[] {
    return pieces.flatMap((piece): ModelEvent[] => {
      if (piece.kind === 'text') {
        this.#append('text', piece.text);
        return [{ type: 'text_delta', text: piece.text }];
      }
      const { name, input, malformed } = piece.call;
      const block = this.#open('', name);
      const json = malformed ?? JSON.stringify(input);
      block.json.add(json);
      const { callId: call_id } = block;
      return [
        { type: 'toolcall_start', call_id, name },
        { type: 'toolcall_delta', call_id, json },
        { type: 'toolcall_end', call_id },
      ];
    });
  }

  #append(kind: TextBlock['kind'], text: string): void {
    const last = this.#blocks.at(-1);
    if (last?.kind === kind) last.text.add(text);
    else this.#blocks.push({ kind, text: new GrowingText(text) });
  }

  /** Some servers give every call the index 0 and tell them apart by id only, and some give no index at all. */
  #call(raw: Record<string, unknown>): ModelEvent[] {
    const id = asText(raw['id']);
    const given = isRecord(raw['function']) ? raw['function'] : {};
    const wireName = asText(given['name']);
    const name = this.#longNames.get(wireName) ?? wireName;
    const json = argumentText(given['arguments']);
    const index = typeof raw['index'] === 'number' ? raw['index'] : undefined;
    const known =
      index === undefined
        ? this.#blocks.findLast((block) => block.kind === 'call')
        : this.#byIndex.get(index);
    const isNext =
      id === ''
        ? name !== '' && (index === undefined || (json !== '' && isWhole(known)))
        : id !== known?.wireId;
    const events: ModelEvent[] = [];
    let block = known;
    if (block === undefined || isNext) {
      block = this.#open(id, name);
      this.#byIndex.set(index ?? this.#byIndex.size, block);
      events.push({ type: 'toolcall_start', call_id: block.callId, name });
    }
    this.#extras.add(block.callId, raw['extra_content']);
    if (json === '') return events;
    block.json.add(json);
    return [...events, { type: 'toolcall_delta', call_id: block.callId, json }];
  }

  #open(wireId: string, name: string): CallBlock {
    const callId = distinctId(wireId, this.#takenIds);
    const block: CallBlock = { kind: 'call', wireId, callId, name, json: new GrowingText() };
    this.#blocks.push(block);
    return block;
  }

  #content(): AssistantBlock[] {
    const signature = this.#details.toSignature() ?? this.#extras.toSignature();
    const content = this.#blocks.map((block): AssistantBlock => {
      if (block.kind === 'call') {
        const json = block.json.toString();
        return callOfJson({ ...block, json: json.trim() === '' ? '{}' : json });
      }
      return { type: block.kind, text: block.text.toString() };
    });
    if (signature === undefined) return content;
    // one signature for all of the reasoning: the first block carries it
    const at = content.findIndex(({ type }) => type === 'thinking');
    const first = content[at];
    if (first?.type === 'thinking') return content.with(at, { ...first, signature });
    return [{ type: 'thinking', text: '', signature }, ...content];
  }
}

/** True if the arguments of a call are complete: a server that gives no ids and one index to all calls has begun the next. */
function isWhole(call: CallBlock | undefined): boolean {
  return call !== undefined && isJsonObject(parseJson(call.json.toString()));
}

/** Arguments are JSON text; a few servers send the object itself. */
function argumentText(value: unknown): string {
  if (typeof value === 'string') return value;
  return isRecord(value) ? JSON.stringify(value) : '';
}

/** The error inside a stream. OpenRouter and llama.cpp name the status in `code`. */
function faultOf(error: unknown): StreamFault | undefined {
  if (typeof error === 'string') return { type: 'api_error', message: error };
  if (!isRecord(error)) return undefined;
  const { code, type, message } = error;
  const status = typeof code === 'number' ? code : Number.NaN;
  const isStatus = Number.isInteger(status) && status >= 400 && status <= 599;
  return {
    type: asText(code) || asText(type) || 'api_error',
    message: asText(message) || 'the server reported an error without a message',
    ...(isStatus ? { status } : {}),
  };
}

/** Before its error object vLLM sent the error's members at the top. */
function faultOfOldServers(chunk: JsonObject): StreamFault | undefined {
  return chunk['object'] === 'error' ? faultOf({ ...chunk }) : undefined;
}

function stopReason(
  reason: string | undefined,
  content: readonly AssistantBlock[],
): Exclude<StopReason, 'aborted'> {
  if (reason === 'length' || reason === 'model_length') return 'max_tokens';
  if (reason === 'content_filter') return 'content_filtered';
  // not every server sends tool_calls, and some send it without a call
  return content.some(({ type }) => type === 'tool_call') ? 'tool_calls' : 'end';
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/**
 * The counts of a chunk's `usage`; undefined where it has none. `prompt_tokens` includes what was read from and written
 * to a cache, which rye counts apart. DeepSeek names cache reads `prompt_cache_hit_tokens`.
 */
function usageOf(raw: unknown, hiddenThoughts: boolean): Usage | undefined {
  if (!isRecord(raw)) return undefined;
  const details = isRecord(raw['prompt_tokens_details']) ? raw['prompt_tokens_details'] : {};
  const prompt = count(raw['prompt_tokens']);
  const cached =
    details['cached_tokens'] ?? raw['prompt_cache_hit_tokens'] ?? raw['num_cached_tokens'];
  const read = Math.min(prompt, count(cached));
  const completion = count(raw['completion_tokens']);
  const beyondPrompt = hiddenThoughts ? count(raw['total_tokens']) - prompt : 0;
  const written = Math.min(prompt - read, count(details['cache_write_tokens']));
  return {
    input_tokens: prompt - read - written,
    output_tokens: Math.max(completion, beyondPrompt),
    cache_read_tokens: read,
    cache_write_tokens: written,
  };
}

/** Groq's own place for the usage. */
function groqUsage(chunk: JsonObject): unknown {
  const own = chunk['x_groq'];
  return isRecord(own) ? own['usage'] : undefined;
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
