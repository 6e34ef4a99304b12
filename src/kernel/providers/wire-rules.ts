import { isRecord } from '../core/json.ts';
import type { WireFile } from '../schemas/provider.ts';

/** The form of a text of a request. */
export interface TextRule {
  /** Matches a text that is sent as it is. */
  readonly form: RegExp;
  /** Matches each character that is replaced. */
  readonly other: RegExp;
  /** Replaces a character; empty if the API does not take `_` either. */
  readonly filler: string;
  readonly length: number;
  readonly exact: boolean;
  readonly startsWithLetter: boolean;
}

/** An API's rules for requests. The log keeps what happened; these make a request of it. */
export interface WireRules {
  readonly toolName: TextRule;
  readonly callId: TextRule;
  /** For names at the top of a tool's schema; absent: all are sent. */
  readonly propertyName?: TextRule;
  /** Keywords that are refused at the top of a tool's schema. Below it they are allowed. */
  readonly refusedAtTop: readonly string[];
  /** True if a list in a schema needs `items`. */
  readonly listItems: boolean;
  readonly images: readonly string[];
  /** True if a text of white space only may be sent. */
  readonly blankText: boolean;
  /** The role that may follow the results of calls. */
  readonly afterResults: 'user' | 'assistant';
}

type Rules = { readonly [K in keyof WireFile]-?: Exclude<WireFile[K], undefined> };

const COMMON = {
  tool_name: { punctuation: '_-', length: 64 },
  refused_at_top: 'oneOf anyOf allOf not if then else enum const $ref'.split(' '),
  images: ['png', 'jpeg', 'gif', 'webp'],
  blank_text: false,
  after_results: 'user',
} satisfies WireFile;

/** The rules of each API. The `wire` of a provider's file replaces single members. */
const DEFAULTS: Readonly<Record<'messages' | 'chat', Rules>> = {
  // https://docs.anthropic.com/en/api/messages
  messages: {
    ...COMMON,
    tool_name: { punctuation: '_-', length: 128 },
    call_id: { punctuation: '_-', length: 64 },
    property_name: { punctuation: '_.-', length: 64 },
    list_items: false,
  },
  // https://platform.openai.com/docs/api-reference/chat/create; Moonshot's ids have dots and colons
  chat: {
    ...COMMON,
    call_id: { punctuation: '!"#$%&\'()*+,-./:;<=>?@[\\]^_`{|}~', length: 40 },
    property_name: null,
    list_items: true,
  },
};

/** Returns rules with single members replaced. */
export function withRules<T extends WireFile>(rules: T, own: WireFile): T {
  const members = Object.entries(own).map(([name, value]) => {
    const before = rules[name as keyof WireFile];
    return [name, isRecord(value) && isRecord(before) ? { ...before, ...value } : value];
  });
  return { ...rules, ...Object.fromEntries(members) };
}

/** Returns the rules of an API, overridden by the rules of a provider's file. */
export function wireRules(api: keyof typeof DEFAULTS, file: WireFile = {}): WireRules {
  const rules = withRules(DEFAULTS[api], file);
  const { tool_name, call_id, property_name, images } = rules;
  return {
    toolName: textRule(tool_name),
    callId: textRule(call_id),
    ...(property_name ? { propertyName: textRule(property_name) } : {}),
    refusedAtTop: rules.refused_at_top,
    listItems: rules.list_items,
    images: images.map((type) => `image/${type}`),
    blankText: rules.blank_text,
    afterResults: rules.after_results,
  };
}

/** Characters are a set, not an expression of the file's own, so that no text takes long to match. */
function textRule({
  punctuation = '_-',
  length = 64,
  exact = false,
  starts_with_letter: startsWithLetter = false,
}: NonNullable<WireFile['tool_name']>): TextRule {
  const set = `A-Za-z0-9${punctuation.replaceAll(/./g, String.raw`\$&`)}`;
  const filler = punctuation.includes('_') ? '_' : '';
  const start = startsWithLetter ? `(?=[A-Za-z${filler}])` : '';
  return {
    form: new RegExp(`^${start}[${set}]{${exact ? length : 1},${length}}$`),
    other: new RegExp(`[^${set}]`, 'g'),
    filler,
    length,
    exact,
    startsWithLetter,
  };
}
