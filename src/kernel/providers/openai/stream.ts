import { isRecord, type JsonObject } from '../../core/json.ts';
import type { AssistantBlock } from '../../core/message.ts';
import { GrowingText } from '../../core/text.ts';
import { laterUsage, NO_USAGE, type Usage } from '../../core/usage.ts';
import {
  type Decoded,
  distinctId,
  type IdSet,
  type StreamDecoder,
  type ToolNames,
} from '../adapter.ts';
import { argumentText, callOfJson, isObject, joined } from '../call-json.ts';
import type { StreamFault } from '../failure.ts';
import type { ModelEvent } from '../provider.ts';
import { stopReasonOf } from '../stop-reason.ts';
import { TaggedThought, TextCallReader, type TextPiece } from './answer-text.ts';
import { CallExtras, contentText, ReasoningDetails, reasoningText } from './dialect.ts';

interface TextBlock {
  readonly kind: 'text' | 'thinking';
  readonly text: GrowingText;
}

interface CallBlock {
  readonly kind: 'call';
  /** As the server gave it, to tell its calls apart. */
  wireId: string;
  /** Undefined until the server has given the id, or the call is named. */
  callId: string | undefined;
  name: string;
  readonly pieces: string[];
}

type Block = TextBlock | CallBlock;

export interface DecoderOptions {
  /** Call ids of the conversation so far; one that comes again is made distinct. */
  readonly takenIds: IdSet;
  readonly names: ToolNames;
  /** Read calls from the text, for models that know no others. */
  readonly textCalls: boolean;
  /** The server can be asked what an answer cost. */
  readonly settles?: boolean;
}

export function chunkDecoder(options: DecoderOptions): StreamDecoder {
  return new Decoder(options);
}

class Decoder implements StreamDecoder {
  readonly #takenIds: IdSet;
  readonly #names: ToolNames;
  readonly #reader: TextCallReader | undefined;
  readonly #details = new ReasoningDetails();
  readonly #extras = new CallExtras();
  readonly #settles: boolean;
  readonly #tagged = new TaggedThought();
  readonly #blocks: Block[] = [];
  /** The call that the server's index means now. */
  readonly #byIndex = new Map<number, CallBlock>();
  #hasStarted = false;
  #usage: Usage = NO_USAGE;
  #reason: string | undefined;

  constructor(options: DecoderOptions) {
    const { takenIds, textCalls, names, settles = false } = options;
    this.#settles = settles;
    this.#takenIds = takenIds;
    this.#names = names;
    this.#reader = textCalls ? new TextCallReader() : undefined;
  }

  push(chunk: JsonObject): Decoded {
    const fault = faultOf(chunk['error']) ?? faultInPlace(chunk);
    const events: ModelEvent[] = [];
    const [choice] = Array.isArray(chunk['choices']) ? chunk['choices'] : [];
    const model = asText(chunk['model']);
    // Azure begins with the result of its content filter, which names no model
    const isPrelude = model === '' && choice === undefined && !isRecord(chunk['usage']);
    if (!this.#hasStarted && fault === undefined && !isPrelude) {
      this.#hasStarted = true;
      events.push({ type: 'start', model, ...this.#nameOf(chunk) });
    }
    if (isRecord(choice)) {
      events.push(...this.#delta(deltaOf(choice)));
      if (typeof choice['finish_reason'] === 'string') this.#reason = choice['finish_reason'];
    }
    const usage = usageOf(rawUsage(chunk, choice));
    if (usage) {
      this.#usage = laterUsage(this.#usage, usage);
      events.push({ type: 'usage', usage: this.#usage });
    }
    return fault === undefined ? { events } : { events: [], error: fault };
  }

  #nameOf(chunk: JsonObject): { readonly id?: string } {
    const id = this.#settles ? asText(chunk['id']) : '';
    return id === '' ? {} : { id };
  }

  /** Without the mark an answer that has named no reason is cut. */
  end(isMarked: boolean): Decoded {
    const { thought, text } = this.#tagged.end();
    const events = [
      ...this.#think(thought),
      ...this.#addText(text),
      ...this.#pieces(this.#reader?.end() ?? []),
    ];
    if (this.#reason === undefined && !(isMarked && this.#hasStarted)) {
      const message = 'the answer ended before its last chunk';
      return { events, error: { type: 'incomplete_stream', message } };
    }
    for (const block of this.#blocks) {
      if (block.kind !== 'call' || this.#reader !== undefined) continue;
      events.push(...this.#begin(block), { type: 'toolcall_end', call_id: this.#idOf(block) });
    }
    const content = this.#content();
    const reason = stopReasonOf(this.#reason, content);
    if (typeof reason !== 'string') return { events, error: reason };
    events.push({ type: 'finish', reason, content });
    return { events };
  }

  whole(document: JsonObject): Decoded {
    const { events, error } = this.push(document);
    if (error) return { events, error };
    const end = this.end(false);
    return { ...end, events: [...events, ...end.events] };
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
    for (const call of callsOf(delta)) events.push(...this.#call(call));
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
      block.pieces.push(json);
      return [...this.#begin(block), { type: 'toolcall_end', call_id: this.#idOf(block) }];
    });
  }

  #append(kind: TextBlock['kind'], text: string): void {
    const last = this.#blocks.at(-1);
    if (last?.kind === kind) last.text.add(text);
    else this.#blocks.push({ kind, text: new GrowingText(text) });
  }

  /** Takes a piece of a call. Servers differ in what the pieces hold, so that the call is put together at the end. */
  #call(raw: Record<string, unknown>): ModelEvent[] {
    const given = isRecord(raw['function']) ? raw['function'] : raw;
    const piece: CallPiece = {
      id: asText(raw['id']),
      name: this.#names.full(asText(given['name'])),
      json: argumentText(given['arguments']),
      index: typeof raw['index'] === 'number' ? raw['index'] : undefined,
    };
    const known =
      piece.index === undefined
        ? this.#blocks.findLast((block) => block.kind === 'call')
        : this.#byIndex.get(piece.index);
    const isNew = known === undefined || isNext(known, piece);
    const block = isNew ? this.#open(piece.id, piece.name) : known;
    if (isNew) this.#byIndex.set(piece.index ?? this.#byIndex.size, block);
    if (block.wireId === '') block.wireId = piece.id;
    if (block.name === '') block.name = piece.name;
    const hasBegun = block.callId !== undefined;
    if (piece.json !== '') block.pieces.push(piece.json);
    // a call without a name is announced with it, or at the end
    const events = hasBegun
      ? piece.json === ''
        ? []
        : [{ type: 'toolcall_delta', call_id: this.#idOf(block), json: piece.json } as const]
      : block.name === ''
        ? []
        : this.#begin(block);
    if (raw['extra_content'] !== undefined)
      this.#extras.add(this.#idOf(block), raw['extra_content']);
    return events;
  }

  /** Announces a call with all that has come of it. */
  #begin(block: CallBlock): ModelEvent[] {
    if (block.callId !== undefined) return [];
    const call_id = this.#idOf(block);
    const json = block.pieces.join('');
    const start: ModelEvent = { type: 'toolcall_start', call_id, name: block.name };
    return json === '' ? [start] : [start, { type: 'toolcall_delta', call_id, json }];
  }

  #idOf(block: CallBlock): string {
    block.callId ??= distinctId(block.wireId, this.#takenIds);
    return block.callId;
  }

  #open(wireId: string, name: string): CallBlock {
    const block: CallBlock = { kind: 'call', wireId, callId: undefined, name, pieces: [] };
    this.#blocks.push(block);
    return block;
  }

  #content(): AssistantBlock[] {
    const signature = this.#details.toSignature() ?? this.#extras.toSignature();
    const content = this.#blocks.map((block): AssistantBlock => {
      if (block.kind === 'call') {
        const json = joined(block.pieces);
        const callId = this.#idOf(block);
        return callOfJson({ ...block, callId, json: json.trim() === '' ? '{}' : json });
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

/** A piece of a call as the server gave it; texts are empty where they are missing. */
interface CallPiece {
  readonly id: string;
  readonly name: string;
  readonly json: string;
  readonly index: number | undefined;
}

/**
 * True if a piece begins another call than the known one of its index. Some servers give every call the index 0 and tell
 * them apart by id only, some give no index or no id at all, and some repeat the name or change the id in each piece.
 */
function isNext(known: CallBlock, piece: CallPiece): boolean {
  const { id, name, json, index } = piece;
  if (id !== '' && known.wireId !== '') return id !== known.wireId && isOther(known, piece);
  const isNamed = name !== '' && known.name !== '';
  if (!isNamed) return false;
  if (id === '' ? index === undefined : name !== known.name) return true;
  return json !== '' && isWhole(known) && json !== joined(known.pieces);
}

/** True if a piece with another id is not one of a server that changes the id in each piece. */
function isOther(known: CallBlock, { name }: CallPiece): boolean {
  const goesOn = known.pieces.length > 0 && !isWhole(known);
  if (name === '') return !goesOn && (known.name !== '' || known.pieces.length > 0);
  return known.name !== '' && !(goesOn && name === known.name);
}

function isWhole({ pieces }: CallBlock): boolean {
  return pieces.at(-1)?.trimEnd().endsWith('}') === true && isObject(joined(pieces));
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

/**
 * The error whose members are in place of an answer, as old vLLM, z.ai (`msg`), FastAPI (`detail`) and MiniMax (`base_resp`)
 * send it with the status 200.
 */
function faultInPlace(chunk: JsonObject): StreamFault | undefined {
  const { object, choices, code, error, msg, message, detail, success, base_resp: base } = chunk;
  if (object === 'error') return faultOf({ ...chunk });
  if (Array.isArray(choices)) return undefined;
  if (isRecord(base) && base['status_code'] !== 0)
    return faultOf({ code: base['status_code'], message: base['status_msg'] });
  // a number that is not 0 or 200; a status of the work alone is no error
  const isFault = !NO_FAULTS.has(code ?? error) || success === false;
  const text = asText(detail) || (isFault ? asText(msg) || asText(message) : '');
  return text === '' ? undefined : faultOf({ code, type: chunk['type'], message: text });
}

const NO_FAULTS: ReadonlySet<unknown> = new Set([undefined, null, 0, 200]);

/** The piece of an answer in a choice; old servers have its text alone. */
function deltaOf(choice: Record<string, unknown>): Record<string, unknown> {
  const delta = choice['delta'] ?? choice['message'];
  return isRecord(delta) ? delta : { content: choice['text'] };
}

/** The pieces of calls in a piece of an answer: in a list, one alone, or the one call that old servers make. */
function callsOf({
  tool_calls: calls,
  function_call: old,
}: Record<string, unknown>): readonly Record<string, unknown>[] {
  if (Array.isArray(calls) && calls.length > 0) return calls.filter(isRecord);
  if (isRecord(calls)) return [calls];
  return isRecord(old) ? [{ index: 0, function: old }] : [];
}

function asText(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

/**
 * The counts of a chunk's `usage`; undefined where it has none. `prompt_tokens` includes what was read from and written
 * to a cache, which rye counts apart. DeepSeek names cache reads `prompt_cache_hit_tokens`.
 */
function usageOf(raw: unknown): Usage | undefined {
  if (!isRecord(raw)) return undefined;
  const details = isRecord(raw['prompt_tokens_details']) ? raw['prompt_tokens_details'] : {};
  const prompt = count(raw['prompt_tokens'] ?? raw['input_tokens']);
  const cached =
    details['cached_tokens'] ?? raw['prompt_cache_hit_tokens'] ?? raw['num_cached_tokens'];
  const read = Math.min(prompt, count(cached));
  const spoken = count(raw['completion_tokens'] ?? raw['output_tokens']);
  const parts = isRecord(raw['completion_tokens_details']) ? raw['completion_tokens_details'] : {};
  const thought = count(parts['reasoning_tokens']);
  // more thoughts than all of the answer are beside it
  const completion = thought > spoken ? spoken + thought : spoken;
  // thoughts of Gemini and xAI count in the total alone
  const beyondPrompt = prompt === 0 ? 0 : count(raw['total_tokens']) - prompt;
  const written = Math.min(prompt - read, count(details['cache_write_tokens']));
  return {
    input_tokens: prompt - read - written,
    output_tokens: Math.max(completion, beyondPrompt),
    cache_read_tokens: read,
    cache_write_tokens: written,
  };
}

/**
 * The counts of OpenRouter's record of an answer (`GET /generation`), which it has some seconds after the answer ended,
 * also for one whose connection was cut.
 */
export function usageOfRecord(raw: unknown): Usage | undefined {
  const data = isRecord(raw) ? raw['data'] : undefined;
  if (!isRecord(data) || typeof data['native_tokens_prompt'] !== 'number') return undefined;
  const prompt = count(data['native_tokens_prompt']);
  const read = Math.min(prompt, count(data['native_tokens_cached']));
  const completion = count(data['native_tokens_completion']);
  return {
    input_tokens: prompt - read,
    output_tokens: Math.max(completion, count(data['native_tokens_reasoning'])),
    cache_read_tokens: read,
    cache_write_tokens: 0,
  };
}

/** The usage in its place, in that of Moonshot, or in that of Groq. */
function rawUsage({ usage, x_groq: own }: JsonObject, choice: JsonObject | undefined): unknown {
  return usage ?? choice?.['usage'] ?? (isRecord(own) ? own['usage'] : undefined);
}

function count(value: unknown): number {
  return typeof value === 'number' && Number.isSafeInteger(value) && value > 0 ? value : 0;
}
