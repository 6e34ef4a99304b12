import type { Dialect, ThinkingStyle } from '../catalog.ts';
import type { ThinkingLevel } from '../provider.ts';

/** How one kind of server wants what all of them can do. */
export interface DialectTraits {
  /** Member for the limit of the answer. */
  readonly maxTokens: 'max_completion_tokens' | 'max_tokens';
  /** How thinking is asked for; `none`: no member is sent. */
  readonly effort: 'reasoning_effort' | 'reasoning' | 'chat_template_kwargs' | 'none';
  /** Member of an assistant message in which the server takes its reasoning back; null: it takes none. */
  readonly reasoningBack: 'reasoning_details' | 'reasoning_content' | 'reasoning' | null;
  /** Whether `cache_control` marks on parts are understood. */
  readonly cacheMarks: boolean;
}

export const DIALECT_TRAITS: Readonly<Record<Dialect, DialectTraits>> = {
  compatible: {
    maxTokens: 'max_tokens',
    effort: 'none',
    reasoningBack: null,
    cacheMarks: false,
  },
  openai: {
    maxTokens: 'max_completion_tokens',
    effort: 'reasoning_effort',
    reasoningBack: null,
    cacheMarks: false,
  },
  openrouter: {
    maxTokens: 'max_tokens',
    effort: 'reasoning',
    reasoningBack: 'reasoning_details',
    cacheMarks: true,
  },
  ollama: {
    maxTokens: 'max_tokens',
    effort: 'reasoning_effort',
    reasoningBack: 'reasoning',
    cacheMarks: false,
  },
  vllm: {
    maxTokens: 'max_tokens',
    effort: 'chat_template_kwargs',
    reasoningBack: 'reasoning_content',
    cacheMarks: false,
  },
  llamacpp: {
    maxTokens: 'max_tokens',
    effort: 'chat_template_kwargs',
    reasoningBack: 'reasoning_content',
    cacheMarks: false,
  },
};

/**
 * How a model thinks by its id, for models whose configuration does not say: `gpt-5.1` and newer can be told not
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
