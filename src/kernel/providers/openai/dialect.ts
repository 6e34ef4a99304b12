import { isJsonObject, isRecord, type JsonObject, parseJson } from '../../core/json.ts';
import type { Dialect, ThinkingStyle } from '../catalog.ts';
import type { ThinkingLevel } from '../provider.ts';

/** The differences of one kind of server. */
export interface DialectTraits {
  /** Member for the limit of the answer. */
  readonly maxTokens: 'max_completion_tokens' | 'max_tokens';
  /** The member that asks for thinking; `none`: no member is sent. `groq`, `mistral`: efforts with their own words. */
  readonly effort:
    | 'reasoning_effort'
    | 'reasoning'
    | 'chat_template_kwargs'
    | 'groq'
    | 'mistral'
    | 'none';
  /**
   * Member of an assistant message in which the server takes its reasoning back; null: it takes none. `extra_content` is a
   * member of each call, `content` a part of the content.
   */
  readonly reasoningBack:
    | 'reasoning_details'
    | 'reasoning_content'
    | 'reasoning'
    | 'extra_content'
    | 'content'
    | null;
  /** True if the server understands `cache_control` marks on parts. */
  readonly cacheMarks: boolean;
  /** True if an answer with a format may call tools; other servers then make no calls, or refuse the request. */
  readonly formatBesideTools: boolean;
  /** False for servers that refuse `stream_options` and report the usage unasked. */
  readonly usageOption: boolean;
  /** The word that forces any call, and whether one tool can be named. */
  readonly force: { readonly any: 'required' | 'any'; readonly byName: boolean };
  /** True if the server can be asked what an answer cost. */
  readonly settles: boolean;
}

/** Traits that every server has. */
const COMMON: DialectTraits = {
  maxTokens: 'max_tokens',
  effort: 'none',
  reasoningBack: null,
  cacheMarks: false,
  formatBesideTools: true,
  usageOption: true,
  force: { any: 'required', byName: true },
  settles: false,
};

const OPENAI: DialectTraits = {
  ...COMMON,
  maxTokens: 'max_completion_tokens',
  effort: 'reasoning_effort',
};

const TEMPLATE: DialectTraits = {
  ...COMMON,
  effort: 'chat_template_kwargs',
  reasoningBack: 'reasoning_content',
  formatBesideTools: false,
};

export const DIALECT_TRAITS: Readonly<Record<Dialect, DialectTraits>> = {
  compatible: COMMON,
  openai: OPENAI,
  azure: OPENAI,
  openrouter: {
    ...COMMON,
    effort: 'reasoning',
    reasoningBack: 'reasoning_details',
    cacheMarks: true,
    settles: true,
  },
  ollama: {
    ...COMMON,
    effort: 'reasoning_effort',
    reasoningBack: 'reasoning',
    formatBesideTools: false,
  },
  vllm: TEMPLATE,
  llamacpp: TEMPLATE,
  lmstudio: {
    ...COMMON,
    formatBesideTools: false,
    force: { any: 'required', byName: false },
  },
  gemini: {
    ...COMMON,
    effort: 'reasoning_effort',
    reasoningBack: 'extra_content',
    formatBesideTools: false,
  },
  groq: {
    ...COMMON,
    maxTokens: 'max_completion_tokens',
    effort: 'groq',
    formatBesideTools: false,
  },
  mistral: {
    ...COMMON,
    effort: 'mistral',
    reasoningBack: 'content',
    formatBesideTools: false,
    usageOption: false,
    force: { any: 'any', byName: true },
  },
};

/**
 * Returns the thinking style by the model's id, if the configuration sets none: `gpt-5.1` and newer can be told not
 * to, `gpt-5` and the o-series always do, and older ones refuse to be asked.
 */
export function styleOfId(model: string, dialect: Dialect): ThinkingStyle {
  if (dialect === 'openrouter') return 'adaptive';
  if (dialect === 'gemini') return geminiStyle(model);
  if (dialect === 'groq') return groqStyle(model);
  if (dialect !== 'openai' && dialect !== 'azure') return 'none';
  if (/^(?:o\d|gpt-5(?:-|$))/.test(model)) return 'always';
  return /^gpt-(?:5\.\d|[6-9]|\d\d)/.test(model) ? 'adaptive' : 'none';
}

/** Only the flash models of 2.5 can be told not to think, and older models refuse to be asked. */
function geminiStyle(model: string): ThinkingStyle {
  if (/gemini-2\.5-flash/.test(model)) return 'adaptive';
  return /gemini-(?:2\.5|[3-9]|\d\d|pro-latest|flash-latest|flash-lite-latest)/.test(model)
    ? 'always'
    : 'none';
}

function groqStyle(model: string): ThinkingStyle {
  if (model.includes('gpt-oss')) return 'always';
  return model.includes('qwen3') ? 'adaptive' : 'none';
}

/** Members of the request that set how hard the model thinks. */
export function thinkingMembers(
  level: ThinkingLevel,
  { style, model }: { readonly style: ThinkingStyle; readonly model: string },
  { effort }: DialectTraits,
): Readonly<Record<string, unknown>> {
  if (style === 'none') return {};
  const isOff = level === 'off';
  const word = isOff ? (style === 'always' ? 'low' : 'none') : level;
  switch (effort) {
    case 'groq':
      return groqMembers(word, model);
    case 'mistral':
      return { reasoning_effort: style === 'always' ? ofThree(word) : onOrOff(word) };
    case 'reasoning_effort':
      return { reasoning_effort: word };
    case 'reasoning':
      return { reasoning: word === 'none' ? { enabled: false } : { effort: word } };
    case 'chat_template_kwargs':
      return {
        chat_template_kwargs: {
          enable_thinking: word !== 'none',
          ...(word === 'none' ? {} : { reasoning_effort: word }),
        },
      };
    case 'none':
      break;
  }
  return {};
}

/** Qwen thinks or not, and shows it separately if asked; gpt-oss has three degrees and always shows it so. */
function groqMembers(word: string, model: string): Readonly<Record<string, unknown>> {
  if (!model.includes('qwen')) return { reasoning_effort: ofThree(word) };
  return { reasoning_effort: word === 'none' ? 'none' : 'default', reasoning_format: 'parsed' };
}

function ofThree(word: string): string {
  return word === 'minimal' ? 'low' : word;
}

function onOrOff(word: string): string {
  return word === 'none' ? 'none' : 'high';
}

/**
 * Collects the `extra_content` of calls, which Gemini wants back with each of them. It is opaque: it holds the signature
 * of the thoughts that led to the call.
 */
export class CallExtras {
  readonly #extras = new Map<string, JsonObject>();

  add(callId: string, extra: unknown): void {
    if (isJsonObject(extra)) this.#extras.set(callId, extra);
  }

  /** As JSON text; undefined where there was none. */
  toSignature(): string | undefined {
    if (this.#extras.size === 0) return undefined;
    return JSON.stringify({ call_extras: Object.fromEntries(this.#extras) });
  }

  /** Reads the text back. */
  static parse(signature: string | undefined): Readonly<Record<string, unknown>> {
    const value = signature === undefined ? undefined : parseJson(signature);
    const extras = isRecord(value) ? value['call_extras'] : undefined;
    return isRecord(extras) ? extras : {};
  }
}

/** Accepted by Gemini instead of the signature of a call that another model made. */
export const FOREIGN_CALL = {
  google: { thought_signature: 'skip_thought_signature_validator' },
} as const;

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

/** A content of parts, as Mistral streams it, split into thinking and text; a text has no thinking. */
export function contentText(content: unknown): { readonly thought: string; readonly text: string } {
  if (typeof content === 'string') return { thought: '', text: content };
  const parts = [content].flat().filter(isRecord);
  const thoughts = parts.flatMap(({ thinking }) => (Array.isArray(thinking) ? thinking : []));
  return { thought: textsOf(thoughts.filter(isRecord)), text: textsOf(parts) };
}

function textsOf(parts: readonly Record<string, unknown>[]): string {
  return parts.map(({ text }) => (typeof text === 'string' ? text : '')).join('');
}

/** Returns the reasoning of a delta as text. Servers use different names for it; a second name repeats the first. */
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
