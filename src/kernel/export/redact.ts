import type { ErrorInfo } from '../core/errors.ts';
import { isEntryType, type LogEvent, type UnknownEvent } from '../core/events.ts';
import { compact, isRecord, type JsonObject } from '../core/json.ts';
import type { AssistantBlock, ContentBlock, Message } from '../core/message.ts';
import { DELIVERY_ENTRY } from '../log/delivery-facts.ts';

/** Replaces each redacted value. */
const REDACTED = '[redacted]';

/** The beginnings of keys of one kind; what follows has at least 16 characters. */
const PREFIXES = [
  // OpenAI, Anthropic, OpenRouter and their like; Stripe
  'sk[-_]',
  'rk[-_]',
  // Groq, xAI, Perplexity, Cerebras, Together, Replicate, NVIDIA
  'gsk_',
  'xai-',
  'pplx-',
  'csk-',
  'tgp_v1_',
  'r8_',
  'nvapi-',
  // Bedrock
  'ABSK',
  'bedrock-api-key-',
  // GitHub, GitLab, npm, PyPI, Docker, Slack, Hugging Face
  'gh[pousr]_',
  'github_pat_',
  'glpat-',
  'npm_',
  'pypi-',
  'dckr_pat_',
  'xox[abceoprs]-',
  'xapp-',
  'hf_',
  // Stripe's webhooks, SendGrid, Vault, Shopify, Linear, Notion, DigitalOcean
  'whsec_',
  'SG\\.',
  'hv[sb]\\.',
  'shp(?:at|ss|ca|pa)_',
  'lin_api_',
  'ntn_',
  'do[opr]_v1_',
  // Google
  'AIza',
  'AQ\\.',
  'ya29\\.',
  // age
  'AGE-SECRET-KEY-1',
];

const PASSWORD = 'pass(?:word|wd|phrase)?|pwd';
const ANNOUNCED = `${PASSWORD}|secret|token|api[_-]?key|access[_-]?key|account[_-]?key|subscription-key|private[_-]?key|credentials?`;
/** A name that ends with a word which announces a secret, such as `api_key`, `dbPassword` and `passwords`; not `bypass`. */
const SECRET_NAME = new RegExp(`(?:${ANNOUNCED.replace('?|pwd', '|pwd')})s?$`, 'i');
const PASS = /(?:^|[^a-z])pass$|Pass$/;

/** True for the name of a member whose value is a secret, however it looks. */
function announcesSecret(name: string): boolean {
  return SECRET_NAME.test(name) || PASS.test(name);
}

/** Between the name of a value and the value; JSON within JSON has its quotes escaped. */
const ASSIGNED = String.raw`\\?["']?\s{0,3}[:=]\s{0,3}`;
/** A value without quotes ends at white space, a quote, `&`, or a comma or semicolon that ends its part. */
const BARE = String.raw`(?:[^\s"'&\\,;]|[,;](?=[^\s"'])|\\(?!["'nrt]))`;

/**
 * Patterns of secrets: key prefixes, private key blocks, web tokens, values after words that announce them, credentials
 * and secret addresses. Each pattern is linear. Unknown kinds of secrets are not found.
 */
const SHAPES: readonly RegExp[] = [
  // a block without an end counts up to the maximum length
  /-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?:(?!-----END)[\s\S]){0,8000}(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?/g,
  new RegExp(
    String.raw`(?<![A-Za-z0-9])(?:${PREFIXES.join('|')})[\w-]{16,}[\w./+=-]{0,2000}(?<![./])`,
    'g',
  ),
  // AWS
  /\b(?:AKIA|ASIA)[A-Z0-9]{16}\b/g,
  // JSON Web Tokens
  /\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*/g,
  /(?<=\b(?:Bearer|Basic)\s)(?=[A-Za-z.~+/=_-]{0,200}\d)[\w.~+/=-]{16,}/g,
  /(?<=\bAuthorization\\?["']?\s{0,3}[:=]\s{0,3}\\?["']?(?:[A-Za-z]{1,12}\s)?)[^\s"',;\\]{8,}/gi,
  // webhooks of Slack and Discord, signatures in addresses
  /(?<=\bhooks\.slack\.com\/(?:services|workflows|triggers)\/)[\w/]{8,}/g,
  /(?<=\bdiscord(?:app)?\.com\/api\/webhooks\/)[\w/-]{8,}/g,
  /(?<=[?&](?:sig|signature|X-Amz-Signature)=)[\w%+/=-]{16,}/gi,
  // user:password@host, where the password may have an @; token@host
  /(?<=:\/\/[^\s/:@]{0,100}:)[^\s/]{1,200}(?=@)/g,
  /(?<=:\/\/)(?:[^\s/:@]{16,200}|(?=[^\s/:@]{0,16}\d)[^\s/:@]{8,16})(?=@)/g,
  // options of a command
  new RegExp(
    String.raw`(?<=(?:^|\s)--?[\w-]{0,40}(?:${ANNOUNCED})\s{1,3}["']?)(?!-)[^\s"']{3,400}`,
    'gi',
  ),
  /(?<=\s(?:-u|--user)[\s=]{0,3}["']?[^\s:"']{1,100}:)[^\s"']{3,200}/g,
  /(?<=\bCookie\\?["']?\s{0,3}:\s{0,3}\\?["']?)[^\s"'=;]{1,60}=[^\r\n"'\\]{8,}/gi,
  // a list of them in JSON, from its first quote to its last
  new RegExp(
    String.raw`(?<=(?:${ANNOUNCED})s?${ASSIGNED}\[\s{0,40}\\?["'])[^\]]{1,2000}(?=["']\s{0,40}\])`,
    'gi',
  ),
  // "api_key": "…", also within a string of JSON; then the same without quotes
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}\\")[^"\\]{1,400}(?=\\")`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}")(?:[^"\\\n]|\\.){1,400}(?=")`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED}')(?:[^'\\\n]|\\.){1,400}(?=')`, 'gi'),
  new RegExp(String.raw`(?<=(?:${PASSWORD})${ASSIGNED})${BARE}{3,}`, 'gi'),
  new RegExp(String.raw`(?<=(?:${ANNOUNCED})${ASSIGNED})${BARE}{8,}`, 'gi'),
];

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

/** A value shorter than this is a word of every text. */
const MIN_LENGTH = 3;
/** A line of a value shorter than this is not looked for alone. */
const MIN_LINE = 12;
/** A longer value is not the part of a word. */
const MAX_WORD = 200;

/** Texts that are removed wherever another text repeats them as a whole word. */
class HiddenValues {
  readonly #values: readonly (string | RegExp)[];

  /** Takes the strings and numbers of any JSON value. */
  constructor(given: unknown) {
    const texts = new Set([...leavesOf(given)].flatMap(spellings));
    this.#values = [...texts]
      .filter((text) => text.length >= MIN_LENGTH && /[\p{L}\p{N}]/u.test(text))
      // a value that is part of another one must not cut it
      .toSorted((one, two) => two.length - one.length)
      .map((text) => (text.length > MAX_WORD ? text : wholeWord(text)));
  }

  /** Returns the text without the values, and how many were found. */
  removeFrom(text: string): { readonly text: string; readonly found: number } {
    let found = 0;
    const replace = (): string => {
      found += 1;
      return REDACTED;
    };
    const clean = this.#values.reduce<string>(
      (rest, value) => rest.replaceAll(value, replace),
      text,
    );
    return { text: clean, found };
  }
}

function* leavesOf(value: unknown): Iterable<string> {
  if (typeof value === 'string') yield value;
  else if (typeof value === 'number') yield String(value);
  else if (typeof value === 'object' && value !== null) {
    for (const member of Object.values(value)) yield* leavesOf(member);
  }
}

/** A text, the same within JSON, and its long lines: they may be indented or quoted. */
function spellings(text: string): readonly string[] {
  const whole = text.trim();
  const lines = whole.split(/\s*\n\s*/).filter((line) => line.length >= MIN_LINE);
  return [whole, ...lines].flatMap((one) => [one, JSON.stringify(one).slice(1, -1)]);
}

const WORD = '[\\p{L}\\p{N}_]';

function wholeWord(text: string): RegExp {
  const before = new RegExp(`^${WORD}`, 'u').test(text) ? `(?<!${WORD})` : '';
  const after = new RegExp(`${WORD}$`, 'u').test(text) ? `(?!${WORD})` : '';
  return new RegExp(`${before}${escaped(text)}${after}`, 'gu');
}

function escaped(text: string): string {
  return text.replaceAll(/[\\^$.*+?()[\]{}|/]/g, String.raw`\$&`);
}

type Payload = Readonly<Record<string, unknown>>;

/** The facts of a thread that decide what is removed from its texts. */
export interface Redacted {
  readonly directive: string;
  /** Inputs of the directive: their values are removed wherever a text repeats them. */
  readonly inputs: readonly JsonObject[];
  /** Other texts that are removed: keys of providers, folders of this machine. */
  readonly hidden: readonly string[];
  /** True if steps were played: then the result and the outputs come from tools. */
  readonly isPlayed: boolean;
}

/** The member of the outcome of a thread that an export shows. */
interface Outcome {
  readonly result?: string;
  readonly outputs?: JsonObject;
  readonly error?: ErrorInfo;
}

/**
 * Takes out of a log what its reader need not know to follow the conversation: what tools were given and gave, inputs,
 * images, thinking, the state and details of hooks, and everywhere else what looks like a secret. The tree, names, statuses,
 * codes, times and costs stay. Types that it does not know lose their payload.
 */
export class Redaction {
  readonly #isPlayed: boolean;
  readonly #values: HiddenValues;
  /** Entries whose replacement in the context may stay: those that stay themselves. */
  readonly #spoken = new Set<string>();
  #count = 0;

  constructor({ directive, inputs, hidden, isPlayed }: Redacted) {
    this.#isPlayed = isPlayed;
    const given = inputs.flatMap((one) => Object.entries(one));
    const unspoken = given.filter(([name]) => SPOKEN[directive] !== name);
    this.#values = new HiddenValues([unspoken.map(([, value]) => value), hidden]);
  }

  /** Number of values redacted so far. */
  get count(): number {
    return this.#count;
  }

  event<E extends LogEvent | UnknownEvent>(event: E): E {
    const payload = this.#payload(event.event_type, event.payload);
    const { message } = payload as { readonly message?: Message };
    if (event.id !== undefined && message && message.role !== 'tool_result') {
      this.#spoken.add(event.id);
    }
    return { ...event, payload };
  }

  /** The outcome of a thread as its document has it. */
  outcome<O extends Outcome>(outcome: O): O {
    const { result, outputs, error } = outcome;
    return {
      ...outcome,
      ...(result === undefined ? {} : { result: this.#result(result) }),
      ...(outputs === undefined ? {} : { outputs: this.#outputs(outputs) }),
      ...(error === undefined ? {} : { error: this.#error(error) }),
    };
  }

  /** Any JSON value without what looks like a secret. */
  scrub<T>(value: T): T {
    return this.#scrub(value, (text) => this.#shapeless(text)) as T;
  }

  /** Any JSON value of texts, also without the values of inputs. */
  prose<T>(value: T): T {
    return this.#scrub(value, (text) => this.#valueless(this.#shapeless(text))) as T;
  }

  #payload(type: string, payload: object): object {
    // an imported entry has the whole line that it was
    const { pi_line: _original, ...given } = payload as Payload;
    return isEntryType(type) ? this.#entry(type, given) : this.#record(type, given);
  }

  #entry(type: string, given: Payload): object {
    switch (type) {
      case 'message': {
        const { message, label, turn, original_time, original_usd, appended } = given;
        const rest = {
          label: this.prose(label),
          ...this.scrub({ original_time, original_usd, appended }),
        };
        return compact({ message: this.#message(message as Message), turn, ...rest });
      }
      case 'custom':
        return compact({
          custom_type: given['custom_type'],
          data: this.#blank(given['data']),
          original_time: this.scrub(given['original_time']),
        });
      case 'custom_message': {
        const { details, images = [], ...rest } = given;
        const isShown = rest['display'] === true && !isOfTool(rest['custom_type'], details);
        const content = isShown ? this.prose(rest['content']) : this.#text(rest['content']);
        const blocks = (images as readonly ContentBlock[]).map((one) => this.#contentBlock(one));
        return this.scrub({ ...rest, content, ...(blocks.length === 0 ? {} : { images: blocks }) });
      }
      case 'context_edit':
        return this.#contextEdit(given);
      case 'compaction':
      case 'branch_summary': {
        const { details: _details, ...rest } = given;
        return this.prose(rest);
      }
      default:
        return NAMES.has(type) ? this.scrub(given) : this.prose(given);
    }
  }

  /** Log-only events. */
  #record(type: string, given: Payload): object {
    switch (type) {
      case 'tool_call_start':
        return { ...given, input: this.#blank(given['input']) };
      case 'tool_settled': {
        const { reason: _reason, ...rest } = given;
        return this.scrub(rest);
      }
      case 'tool_call_progress':
      // a secret may be in several; the message has the whole text
      case 'token_delta':
      case 'thinking_delta':
        return { ...given, text: this.#text(given['text']) };
      case 'toolcall_delta':
        return { ...given, json: this.#text(given['json']) };
      case 'thread_started':
        return { ...this.scrub({ ...given, inputs: null }), inputs: this.#blank(given['inputs']) };
      case 'thread_finished': {
        const { result, outputs, error, ...rest } = given as Outcome & Payload;
        return { ...this.scrub(rest), ...this.outcome(compact({ result, outputs, error })) };
      }
      case 'note': {
        const { details: _details, ...rest } = given;
        return { ...rest, text: this.#note(given['text']) };
      }
      default: {
        if (!KEPT.has(type)) return this.#blank(given);
        const unkept = QUOTING.filter((member) => given[member] !== undefined);
        const quotes = unkept.map((member) => [member, this.#text(given[member])]);
        return this.scrub({ ...given, ...Object.fromEntries(quotes) });
      }
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
    if (block.type === 'text') return { ...block, text: this.prose(block.text) };
    this.#count += 1;
    return { type: 'text', text: '[redacted image]' };
  }

  #answerBlock(block: AssistantBlock): readonly AssistantBlock[] {
    switch (block.type) {
      case 'text':
        return [{ ...block, text: this.prose(block.text) }];
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

  /** A context edit of a tool's result has that result, shortened. */
  #contextEdit(given: Payload): object {
    const { content, ...rest } = given;
    if (content === undefined) return this.prose(rest);
    const isSpoken = this.#spoken.has(String(given['target_id']));
    return { ...this.prose(rest), content: isSpoken ? this.prose(content) : this.#text(content) };
  }

  /** The beginning of a note is rye's; after a colon it may quote what failed. */
  #note(text: unknown): string {
    const [head = '', ...rest] = String(text).split(': ');
    if (rest.length === 0) return this.prose(head);
    return `${this.prose(head)}: ${this.#text(rest.join(': '))}`;
  }

  #result(result: string): string {
    return this.#isPlayed ? this.#text(result) : this.prose(result);
  }

  #outputs(outputs: JsonObject): JsonObject {
    return this.#isPlayed ? (this.#blank(outputs) as JsonObject) : this.prose(outputs);
  }

  /** Keeps the code, and of the message what is certainly rye's: the rest may quote a tool, a hook or a server. */
  #error({ code, message }: ErrorInfo): ErrorInfo {
    if (OWN_WORDS.test(code)) return { code, message: this.prose(message) };
    const [step] = /^step "[^"\n]*"/.exec(message) ?? [];
    const rest = this.#text(message);
    return { code, message: step === undefined ? rest : `${this.prose(step)}: ${rest}` };
  }

  #shapeless(text: string): string {
    const clean = withoutSecretShapes(text);
    this.#count += clean.found;
    return clean.text;
  }

  #valueless(text: string): string {
    const clean = this.#values.removeFrom(text);
    this.#count += clean.found;
    return clean.text;
  }

  #scrub(value: unknown, clean: (text: string) => string): unknown {
    if (typeof value === 'string') return clean(value);
    if (Array.isArray(value)) return value.map((item) => this.#scrub(item, clean));
    if (!isRecord(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [
        clean(name),
        announcesSecret(name) && !isCount(name, member)
          ? this.#withoutLeaves(member)
          : this.#scrub(member, clean),
      ]),
    );
  }

  /** The value of a member that its name makes a secret: its shape stays, of its texts and numbers nothing. */
  #withoutLeaves(value: unknown): unknown {
    if (typeof value === 'string') return this.#text(value);
    if (typeof value === 'number') return this.#text(String(value));
    if (Array.isArray(value)) return value.map((item) => this.#withoutLeaves(item));
    if (!isRecord(value)) return value;
    return Object.fromEntries(
      Object.entries(value).map(([name, member]) => [name, this.#withoutLeaves(member)]),
    );
  }
}

function isCount(name: string, value: unknown): boolean {
  return typeof value === 'number' && /tokens?$/i.test(name);
}

/** Inputs that are what a person wrote to the model, by directive: a message, which stays. */
const SPOKEN: Readonly<Record<string, string>> = {
  'rye/core/chat': 'message',
  'rye/core/plan': 'task',
  'rye/core/build': 'task',
  'rye/core/ask': 'question',
};

/** Members of log-only events that may quote a tool, a hook or a server, or are made of inputs. */
const QUOTING = ['error', 'message', 'label'] as const;

/** Codes whose messages have nothing but numbers and names of limits in them. */
const OWN_WORDS = /^(?:limit_|budget_|cancelled$|wait_timeout$)/;

/** True for a message that has the result of a child, which the call of a tool asked for. */
function isOfTool(customType: unknown, details: unknown): boolean {
  return customType === DELIVERY_ENTRY && isRecord(details) && details['kind'] === 'child_result';
}

/** Types of entries that have no text, only names and IDs. */
const NAMES: ReadonlySet<string> = new Set([
  'model_change',
  'thinking_change',
  'rule_injection',
  'leaf',
]);

/** Log-only types whose payload describes the course of the run, not its subject. */
const KEPT: ReadonlySet<string> = new Set([
  'thread_continued',
  'run_started',
  'plan_changed',
  'turn_started',
  'request_started',
  'answer_started',
  'rule_matched',
  'hook_fired',
  'error_classified',
  'child_thread_started',
  'limit_reached',
  'limit_raised',
  'retry_scheduled',
  'cost',
  'child_thread_finished',
  'delivery',
  'budget',
  'checkpoint',
  'log_quarantined',
]);

function lengthOf(block: ContentBlock): number {
  return block.type === 'text' ? block.text.length : block.data.length;
}
