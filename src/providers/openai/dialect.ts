import { isJsonObject, isRecord, type JsonObject } from '../../core/json.ts';
import type { Dialect, ThinkingStyle } from '../catalog.ts';
import type { ThinkingLevel } from '../provider.ts';

/** The differences of one kind of server. */
export interface DialectTraits {
  /** Member for the limit of the answer. */
  readonly maxTokens: 'max_completion_tokens' | 'max_tokens';
  /** The member that asks for thinking; `none`: no member is sent. */
  readonly effort: 'reasoning_effort' | 'reasoning' | 'chat_template_kwargs' | 'none';
  /** Member of an assistant message in which the server takes its reasoning back; null: it takes none. */
  readonly reasoningBack: 'reasoning_details' | 'reasoning_content' | 'reasoning' | null;
  /** True if the server understands `cache_control` marks on parts. */
  readonly cacheMarks: boolean;
  /** True if an answer with a format may call tools; other servers then make no calls, or refuse the request. */
  readonly formatBesideTools: boolean;
}

export const DIALECT_TRAITS: Readonly<Record<Dialect, DialectTraits>> = {
  compatible: {
    maxTokens: 'max_tokens',
    effort: 'none',
    reasoningBack: null,
    cacheMarks: false,
    formatBesideTools: true,
  },
  openai: {
    maxTokens: 'max_completion_tokens',
    effort: 'reasoning_effort',
    reasoningBack: null,
    cacheMarks: false,
    formatBesideTools: true,
  },
  openrouter: {
    maxTokens: 'max_tokens',
    effort: 'reasoning',
    reasoningBack: 'reasoning_details',
    cacheMarks: true,
    formatBesideTools: true,
  },
  ollama: {
    maxTokens: 'max_tokens',
    effort: 'reasoning_effort',
    reasoningBack: 'reasoning',
    cacheMarks: false,
    formatBesideTools: false,
  },
  vllm: {
    maxTokens: 'max_tokens',
    effort: 'chat_template_kwargs',
    reasoningBack: 'reasoning_content',
    cacheMarks: false,
    formatBesideTools: false,
  },
  llamacpp: {
    maxTokens: 'max_tokens',
    effort: 'chat_template_kwargs',
    reasoningBack: 'reasoning_content',
    cacheMarks: false,
    formatBesideTools: false,
  },
};

/**
 * Returns the thinking style by the model's id, if the configuration sets none: `gpt-5.1` and newer can be told not
 * to, `gpt-5` and the o-series always do, and older ones refuse to be asked.
 */
export function styleOfId(model: string, dialect: Dialect): ThinkingStyle {
  if (dialect === 'openrouter') return 'adaptive';
  if (dialect !== 'openai') return 'none';
  if (/^(?:o\d|gpt-5(?:-|$))/.test(model)) return 'always';
  return /^gpt-(?:5\.\d|[6-9]|\d\d)/.test(model) ? 'adaptive' : 'none';
}

/** Members of the request that set how hard the model thinks. */
export function thinkingMembers(
  level: ThinkingLevel,
  style: ThinkingStyle,
  { effort }: DialectTraits,
): Readonly<Record<string, unknown>> {
  if (style === 'none') return {};
  const isOff = level === 'off';
  const word = isOff ? (style === 'always' ? 'low' : 'none') : level;
  switch (effort) {
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
