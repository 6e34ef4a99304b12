import { isEntryType, type LogEvent, type UnknownEvent } from '../core/events.ts';
import { compact, isRecord } from '../core/json.ts';
import type { AssistantBlock, ContentBlock, Message } from '../core/message.ts';

type Payload = Readonly<Record<string, unknown>>;

/**
 * Takes out of a log what its reader need not know to follow the conversation: what tools were given and gave, images,
 * thinking, the state and details of hooks, and everywhere else what looks like a secret. The tree, names, outcomes, times
 * and costs stay. Types that it does not know lose their payload.
 */
export class Redaction {
  #count = 0;

  /** Number of values redacted so far. */
  get count(): number {
    return this.#count;
  }

  event<E extends LogEvent | UnknownEvent>(event: E): E {
    return { ...event, payload: this.#payload(event.event_type, event.payload) };
  }

  /** Any JSON value without what looks like a secret. */
  scrub<T>(value: T): T {
    return this.#scrub(value) as T;
  }

  #payload(type: string, payload: object): object {
    // an imported entry has the whole line that it was
    const { pi_line: _original, ...given } = payload as Payload;
    switch (type) {
      case 'message': {
        const { message, label, turn, original_time, original_usd } = given;
        const rest = this.scrub({ label, original_time, original_usd });
        return compact({ message: this.#message(message as Message), turn, ...rest });
      }
      case 'custom':
        return compact({
          custom_type: given['custom_type'],
          data: this.#blank(given['data']),
          original_time: this.scrub(given['original_time']),
        });
      case 'custom_message': {
        const { details: _details, ...rest } = given;
        const content = rest['display'] === true ? rest['content'] : this.#text(rest['content']);
        return this.scrub({ ...rest, content });
      }
      case 'tool_call_start':
        return { ...given, input: this.#blank(given['input']) };
      case 'tool_settled': {
        const { reason: _reason, ...rest } = given;
        return this.scrub(rest);
      }
      case 'tool_call_progress':
        return { ...given, text: this.#text(given['text']) };
      case 'toolcall_delta':
        return { ...given, json: this.#text(given['json']) };
      case 'thinking_delta':
        return { ...given, text: this.#text(given['text']) };
      case 'thread_started':
        return { ...this.scrub({ ...given, inputs: null }), inputs: this.#blank(given['inputs']) };
      default:
        return isEntryType(type) || KEPT.has(type) ? this.scrub(given) : this.#blank(given);
    }
  }

  #message(message: Message): Message {
    if (message.role === 'assistant') {
      return { ...message, content: message.content.flatMap((block) => this.#answerBlock(block)) };
    }
    if (message.role === 'user') {
      return { ...message, content: message.content.map((block) => this.#contentBlock(block)) };
    }
    const { data: _data, ...rest } = message;
    const length = message.content.reduce((sum, block) => sum + lengthOf(block), 0);
    this.#count += 1;
    return { ...rest, content: [{ type: 'text', text: `${REDACTED} ${length} characters` }] };
  }

  #contentBlock(block: ContentBlock): ContentBlock {
    if (block.type === 'text') return this.scrub(block);
    this.#count += 1;
    return { type: 'text', text: '[redacted image]' };
  }

  #answerBlock(block: AssistantBlock): readonly AssistantBlock[] {
    switch (block.type) {
      case 'text':
        return [this.scrub(block)];
      case 'thinking':
        this.#count += 1;
        return [{ type: 'thinking', text: REDACTED }];
      case 'tool_call': {
        const { malformed, ...call } = block;
        const input = this.#blank(call.input) as typeof call.input;
        return [{ ...call, input, ...(malformed === undefined ? {} : { malformed: REDACTED }) }];
      }
    }
  }

  /** The names of an object's members, where they are plain ones: they come from a tool's schema. */
  #blank(value: unknown): object {
    if (!isRecord(value)) return {};
    const members = Object.keys(value).map((name, index) => {
      this.#count += 1;
      return [/^[A-Za-z_][\w-]{0,40}$/.test(name) ? name : `member_${index + 1}`, REDACTED];
    });
    return Object.fromEntries(members) as object;
  }

  #text(value: unknown): string {
    if (typeof value !== 'string' || value === '') return '';
    this.#count += 1;
    return REDACTED;
  }

  #scrub(value: unknown): unknown {
    if (typeof value === 'string') {
      const { text, found } = withoutSecretShapes(value);
      this.#count += found;
      return text;
    }
    if (Array.isArray(value)) return value.map((item) => this.#scrub(item));
    if (!isRecord(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [this.scrub(name), this.#scrub(member)]),
    );
  }
}

/** Log-only types whose payload describes the course of the run, not its subject. */
const KEPT: ReadonlySet<string> = new Set([
  'thread_continued',
  'run_started',
  'plan_changed',
  'turn_started',
  'request_started',
  'token_delta',
  'hook_fired',
  'rule_matched',
  'limit_reached',
  'error_classified',
  'retry_scheduled',
  'cost',
  'child_thread_started',
  'child_thread_finished',
  'delivery',
  'budget',
  'thread_finished',
  'checkpoint',
  'log_quarantined',
  'note',
]);

function lengthOf(block: ContentBlock): number {
  return block.type === 'text' ? block.text.length : block.data.length;
}

/**
 * Patterns of secrets: providers' key prefixes, private key blocks, tokens after words that announce them, credentials in
 * addresses. Each pattern is linear. Unknown kinds of secrets are not found.
 */
const SHAPES: readonly RegExp[] = [
  // a block without an end counts up to the maximum length
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,8000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
  // Anthropic, OpenAI and their like; Stripe
  /\b[sr]k[-_][\w-]{16,}/g,
  // GitHub, GitLab, npm, Slack, Hugging Face
  /\b(?:gh[pousr]_|github_pat_|glpat-|npm_|xox[abeoprs]-|hf_)[\w-]{16,}/g,
  // AWS, Google
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  /\bAIza[\w-]{30,}/g,
  // JSON Web Tokens
  /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g,
  /(?<=\b(?:Bearer|Basic)\s)(?=[A-Za-z.~+/=_-]{0,200}\d)[\w.~+/=-]{16,}/g,
  // user:password@host
  /(?<=:\/\/[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)/g,
  // PASSWORD=…, "api_key": "…"
  /(?<=(?:pass(?:word|wd)?|secret|token|api[_-]?key|access[_-]?key|private[_-]?key|credentials?)\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?)[^\s"',;&\\]{8,}/gi,
];

/** Replaces each redacted value. */
const REDACTED = '[redacted]';

/** The text without what looks like a secret, and how many were found. */
export function withoutSecretShapes(text: string): {
  readonly text: string;
  readonly found: number;
} {
  let found = 0;
  let clean = text;
  for (const shape of SHAPES) {
    clean = clean.replaceAll(shape, (match) => {
      if (match === REDACTED) return match;
      found += 1;
      return REDACTED;
    });
  }
  return { text: clean, found };
}
